-- Free outputs that are claimed: a transaction that was broadcast spends them and lost another input to one that is in no block, so it
-- may still be mined (law 5, docs/adr/0007-bitcoin-wallet.md). Nothing selects, leases or spends them. It is no lease: nobody holds it,
-- and an output may be under a lease too. What is claimed follows from the other tables; each event writes what it changes, and
-- `bursar utxo check` derives it anew.
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE utxo_claims (
    wallet_id BIGINT NOT NULL,
    utxo_id BIGINT NOT NULL,
    -- The transaction that claims it; of several the one with the lowest hash.
    claimant BYTEA NOT NULL CONSTRAINT check_claimant CHECK (length(claimant) = 32),
    CONSTRAINT pidx_utxo_claims PRIMARY KEY (wallet_id, utxo_id),
    CONSTRAINT fkey_utxo_claims_utxo FOREIGN KEY (wallet_id, utxo_id) REFERENCES utxos (wallet_id, id) ON DELETE CASCADE
);

-- What is so already.
WITH RECURSIVE hopeless(tx_hash) AS (
    SELECT t.tx_hash FROM transactions t
    WHERE t.status NOT IN ('pending', 'published') AND (t.status = 'orphaned' OR t.given_up
        OR NOT EXISTS (SELECT 1 FROM transaction_events v WHERE v.tx_hash = t.tx_hash AND v.status = 'published')
        OR EXISTS (SELECT 1 FROM tx_inputs i
                JOIN tx_inputs o ON o.prev_hash = i.prev_hash AND o.prev_index = i.prev_index AND o.active
                JOIN transactions s ON s.wallet_id = o.wallet_id AND s.id = o.tx_id
            WHERE i.wallet_id = t.wallet_id AND i.tx_id = t.id AND s.block_height IS NOT NULL))
    UNION
    SELECT c.tx_hash FROM hopeless h JOIN tx_inputs i ON i.prev_hash = h.tx_hash AND NOT i.active
        JOIN transactions c ON c.wallet_id = i.wallet_id AND c.id = i.tx_id)
INSERT INTO utxo_claims (wallet_id, utxo_id, claimant)
SELECT u.wallet_id, u.id, t.tx_hash FROM tx_inputs i
    JOIN transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id
    JOIN transactions p ON p.tx_hash = i.prev_hash
    JOIN utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = i.prev_index
WHERE NOT i.active AND u.valid AND u.spent_by_tx_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM hopeless h WHERE h.tx_hash = t.tx_hash)
ORDER BY t.tx_hash
ON CONFLICT (wallet_id, utxo_id) DO NOTHING;
