-- The lock first. With the wallet first, the planner took this index for as good as the primary key while there were few leases, and
-- each output that was offered to a selection read all leases of the wallet. Whoever looks for a lock names both columns.
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

DROP INDEX idx_utxo_leases_lock;
CREATE INDEX idx_utxo_leases_lock ON utxo_leases (external_lock_id, wallet_id);
