-- Nothing to do: snapshots can be deleted at any time, and lie in a file of their own. The number is taken because both
-- backends count alike.
SELECT 3;
