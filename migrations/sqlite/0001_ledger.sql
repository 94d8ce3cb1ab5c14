-- Marks this database as a Midwatch ledger, and says which migrations it has had.
CREATE TABLE ledger_schema (
    version INTEGER PRIMARY KEY,
    application TEXT NOT NULL CHECK (application = 'midwatch'),
    applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;

CREATE TABLE events (
    position INTEGER PRIMARY KEY CHECK (position > 0),
    stream TEXT NOT NULL CHECK (stream <> ''),
    version INTEGER NOT NULL CHECK (version > 0),
    event_id BLOB NOT NULL UNIQUE CHECK (length(event_id) = 16),
    event_type TEXT NOT NULL CHECK (event_type <> ''),
    schema INTEGER NOT NULL CHECK (schema BETWEEN 0 AND 65535),
    recorded_at INTEGER NOT NULL,
    actor TEXT NOT NULL CHECK (actor <> ''),
    correlation_id TEXT,
    causation_id BLOB CHECK (length(causation_id) = 16),
    facts BLOB NOT NULL,
    content BLOB,
    salt BLOB CHECK (length(salt) = 16),
    commitment BLOB CHECK (length(commitment) = 32),
    leaf_hash BLOB NOT NULL CHECK (length(leaf_hash) = 32),
    category TEXT GENERATED ALWAYS AS (substr(stream, 1, instr(stream || '-', '-') - 1)) VIRTUAL,
    UNIQUE (stream, version),
    CHECK ((content IS NULL) = (salt IS NULL)),
    CHECK (content IS NULL OR commitment IS NOT NULL)
) STRICT;

-- A SQLite index ends with the rowid, which is the position: each of these is read in order of position.
CREATE INDEX events_by_category ON events (category);
CREATE INDEX events_by_type ON events (event_type);

CREATE TABLE ledger_key (
    key_hash BLOB NOT NULL PRIMARY KEY CHECK (length(key_hash) = 32),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    first_position INTEGER NOT NULL CHECK (first_position > 0),
    count INTEGER NOT NULL CHECK (count > 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX ledger_key_by_position ON ledger_key (first_position);

CREATE TABLE blob (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    length INTEGER NOT NULL CHECK (length >= 0),
    created_at INTEGER NOT NULL,
    expired_at INTEGER -- its chunks are gone; it says so
) STRICT, WITHOUT ROWID;

CREATE TABLE blob_chunk (
    blob BLOB NOT NULL REFERENCES blob (id) ON DELETE CASCADE,
    n INTEGER NOT NULL CHECK (n >= 0),
    bytes BLOB NOT NULL CHECK (length(bytes) BETWEEN 1 AND 262144),
    PRIMARY KEY (blob, n)
) STRICT;

-- The guards. `INSERT OR REPLACE` removes rows without firing a DELETE trigger, so duplicates are refused on the way in.
CREATE TRIGGER events_only_at_head BEFORE INSERT ON events
WHEN NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM events)
    OR NEW.version IS NOT (SELECT coalesce(max(version), 0) + 1 FROM events WHERE stream = NEW.stream)
    OR EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id)
BEGIN
    SELECT RAISE(ABORT, 'events are added at the head of the ledger and of their stream, each once');
END;

CREATE TRIGGER events_only_erased BEFORE UPDATE ON events
WHEN NOT (
    OLD.content IS NOT NULL AND NEW.content IS NULL AND NEW.salt IS NULL
    AND NEW.position IS OLD.position AND NEW.stream IS OLD.stream AND NEW.version IS OLD.version
    AND NEW.event_id IS OLD.event_id AND NEW.event_type IS OLD.event_type AND NEW.schema IS OLD.schema
    AND NEW.recorded_at IS OLD.recorded_at AND NEW.actor IS OLD.actor
    AND NEW.correlation_id IS OLD.correlation_id AND NEW.causation_id IS OLD.causation_id
    AND NEW.facts IS OLD.facts AND NEW.commitment IS OLD.commitment AND NEW.leaf_hash IS OLD.leaf_hash
)
BEGIN
    SELECT RAISE(ABORT, 'events do not change; only content and salt can be erased, together');
END;

CREATE TRIGGER events_never_deleted BEFORE DELETE ON events
BEGIN
    SELECT RAISE(ABORT, 'events are never deleted');
END;

CREATE TRIGGER ledger_key_only_added BEFORE INSERT ON ledger_key
WHEN EXISTS (SELECT 1 FROM ledger_key WHERE key_hash = NEW.key_hash)
BEGIN
    SELECT RAISE(ABORT, 'keys are added once');
END;

CREATE TRIGGER ledger_key_never_changed BEFORE UPDATE ON ledger_key
BEGIN
    SELECT RAISE(ABORT, 'keys do not change');
END;

CREATE TRIGGER ledger_key_never_deleted BEFORE DELETE ON ledger_key
BEGIN
    SELECT RAISE(ABORT, 'keys are never deleted');
END;
