-- Nothing to change here: see the file of the same name for PostgreSQL.
SELECT 1;
