-- Nothing to do: SQLite has one writer at a time, which flushes before anybody sees what it wrote, so the head is
-- always durable. The number is taken because both backends count alike.
SELECT 2;
