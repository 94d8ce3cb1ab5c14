-- How far the ledger is flushed, so that writers need not hold the lock while the disk works. A row for each process
-- that appends; the largest `durable` is the mark, and readers see nothing above it. 9223372036854775807 says that
-- every commit is synchronous, so that whatever can be seen is durable; so does an empty table.
CREATE TABLE ledger_writer (
    writer UUID PRIMARY KEY,
    durable BIGINT NOT NULL CHECK (durable >= 0),
    beat BIGINT NOT NULL -- µs of this database's clock; 0 once the process has closed the ledger
) WITH (fillfactor = 10); -- a row is written with every flush, and should find room on its own page
