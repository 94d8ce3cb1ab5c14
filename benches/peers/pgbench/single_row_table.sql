-- What a program without an event store would have: one table, one row per transaction, the version guarded by an index.
CREATE TABLE single_row (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream TEXT NOT NULL,
    version BIGINT NOT NULL,
    event_id UUID NOT NULL,
    event_type TEXT NOT NULL,
    recorded_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    actor TEXT NOT NULL,
    facts BYTEA NOT NULL,
    content BYTEA,
    UNIQUE (stream, version)
);
