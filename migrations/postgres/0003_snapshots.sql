-- What long streams folded to, so that they need not be read from their first event. Not history: it can be emptied at
-- any time.
CREATE TABLE stream_snapshot (
    stream TEXT COLLATE "C" NOT NULL,
    fold BIGINT NOT NULL, -- which version of the program's fold made it
    version BIGINT NOT NULL CHECK (version > 0),
    event_id UUID NOT NULL, -- of the event at that version
    seal BYTEA NOT NULL, -- under the deployment's key
    state BYTEA NOT NULL,
    PRIMARY KEY (stream, fold)
);
