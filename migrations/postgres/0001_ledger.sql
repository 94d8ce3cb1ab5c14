-- Marks this database as a Midwatch ledger, and says which migrations it has had.
CREATE TABLE ledger_schema (
    version INTEGER PRIMARY KEY,
    application TEXT NOT NULL CHECK (application = 'midwatch'),
    applied_at BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
);

-- Text is compared by bytes (COLLATE "C"): faster, and no change of a language's rules can break an index.
CREATE TABLE events (
    position BIGINT PRIMARY KEY CHECK (position > 0),
    stream TEXT COLLATE "C" NOT NULL CHECK (stream <> ''),
    version BIGINT NOT NULL CHECK (version > 0),
    event_id UUID NOT NULL UNIQUE,
    event_type TEXT COLLATE "C" NOT NULL CHECK (event_type <> ''),
    schema INTEGER NOT NULL CHECK (schema BETWEEN 0 AND 65535),
    recorded_at BIGINT NOT NULL,
    actor TEXT COLLATE "C" NOT NULL CHECK (actor <> ''),
    correlation_id TEXT COLLATE "C",
    causation_id UUID,
    facts BYTEA NOT NULL,
    content BYTEA,
    salt BYTEA CHECK (octet_length(salt) = 16),
    commitment BYTEA CHECK (octet_length(commitment) = 32),
    leaf_hash BYTEA NOT NULL CHECK (octet_length(leaf_hash) = 32),
    UNIQUE (stream, version),
    CHECK ((content IS NULL) = (salt IS NULL)),
    CHECK (content IS NULL OR commitment IS NOT NULL)
);

CREATE INDEX events_by_category ON events (split_part(stream, '-', 1), position);
CREATE INDEX events_by_type ON events (event_type, position);

CREATE TABLE ledger_key (
    key_hash BYTEA PRIMARY KEY CHECK (octet_length(key_hash) = 32),
    digest BYTEA NOT NULL CHECK (octet_length(digest) = 32),
    first_position BIGINT NOT NULL CHECK (first_position > 0),
    count BIGINT NOT NULL CHECK (count > 0)
);

CREATE INDEX ledger_key_by_position ON ledger_key (first_position);

-- Who appends holds this row. It is locked and never updated: an updated head row rots under an open snapshot.
CREATE TABLE ledger_lock (
    id INTEGER PRIMARY KEY CHECK (id = 1)
);
INSERT INTO ledger_lock VALUES (1);

CREATE TABLE blob (
    id UUID PRIMARY KEY,
    length BIGINT NOT NULL CHECK (length >= 0),
    created_at BIGINT NOT NULL,
    expired_at BIGINT -- its chunks are gone; it says so
);

CREATE TABLE blob_chunk (
    blob UUID NOT NULL REFERENCES blob (id) ON DELETE CASCADE,
    n INTEGER NOT NULL CHECK (n >= 0),
    bytes BYTEA NOT NULL CHECK (octet_length(bytes) BETWEEN 1 AND 262144),
    PRIMARY KEY (blob, n)
);
-- What goes to blobs is mostly packed already.
ALTER TABLE blob_chunk ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Half of each page stays free, so that a beat finds room beside the row it replaces and touches no index.
CREATE TABLE run_lease (
    run UUID PRIMARY KEY,
    take BIGINT NOT NULL,
    beat BIGINT NOT NULL
) WITH (fillfactor = 50);

-- The guards. ENABLE ALWAYS: they hold for replicated and restored statements too.
CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is refused on %: the ledger only grows', TG_OP, TG_TABLE_NAME;
END
$$;

-- Once per statement, so that a batch of events costs one look at the head. The settings keep it on these tables and
-- on their indexes, whatever the session or the statistics say.
CREATE FUNCTION ledger_only_at_head() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    lowest BIGINT;
    highest BIGINT;
    many BIGINT;
BEGIN
    SELECT min(position), max(position), count(*) INTO lowest, highest, many FROM added;
    IF many > 0 AND (
        highest - lowest + 1 <> many
        OR lowest <> coalesce((SELECT max(position) FROM events WHERE position < lowest), 0) + 1
    ) THEN
        RAISE EXCEPTION 'events are added at the head of the ledger';
    END IF;
    IF EXISTS (
        SELECT 1 FROM added a
        WHERE a.version > 1
            AND NOT EXISTS (SELECT 1 FROM events e WHERE e.stream = a.stream AND e.version = a.version - 1)
    ) THEN
        RAISE EXCEPTION 'events are added at the head of their stream';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION ledger_only_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.content IS NULL OR NEW.content IS NOT NULL OR NEW.salt IS NOT NULL
        OR (NEW.position, NEW.stream, NEW.version, NEW.event_id, NEW.event_type, NEW.schema, NEW.recorded_at, NEW.actor,
            NEW.correlation_id, NEW.causation_id, NEW.facts, NEW.commitment, NEW.leaf_hash)
        IS DISTINCT FROM
           (OLD.position, OLD.stream, OLD.version, OLD.event_id, OLD.event_type, OLD.schema, OLD.recorded_at, OLD.actor,
            OLD.correlation_id, OLD.causation_id, OLD.facts, OLD.commitment, OLD.leaf_hash)
    THEN
        RAISE EXCEPTION 'events do not change; only content and salt can be erased, together';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER events_only_at_head AFTER INSERT ON events
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ledger_only_at_head();
CREATE TRIGGER events_only_erased BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION ledger_only_erased();
CREATE TRIGGER events_never_deleted BEFORE DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
CREATE TRIGGER ledger_key_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_key
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
CREATE TRIGGER ledger_lock_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_lock
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();

ALTER TABLE events ENABLE ALWAYS TRIGGER events_only_at_head;
ALTER TABLE events ENABLE ALWAYS TRIGGER events_only_erased;
ALTER TABLE events ENABLE ALWAYS TRIGGER events_never_deleted;
ALTER TABLE ledger_key ENABLE ALWAYS TRIGGER ledger_key_only_added;
ALTER TABLE ledger_lock ENABLE ALWAYS TRIGGER ledger_lock_never_changed;
