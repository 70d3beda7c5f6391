-- The Bitcoin wallet: what our addresses were paid, what of it is spent, and by what. Outputs are at its centre; rows are
-- marked, never deleted, but for an explicit prune.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE wallets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL CONSTRAINT uidx_wallets_name UNIQUE,
    -- bitcoin | testnet | testnet4 | signet | regtest. All wallets of a database are on one: they share its blocks.
    network TEXT NOT NULL CONSTRAINT valid_network CHECK (network IN ('bitcoin', 'testnet', 'testnet4', 'signet', 'regtest')),
    -- active; or restoring: a backup was put back or a wallet imported, and nothing is selected until the nodes were asked.
    status TEXT NOT NULL CONSTRAINT valid_wallet_status CHECK (status IN ('active', 'restoring')),
    -- From this block on the chain was not read for all of its addresses. It must be before the wallet is active.
    unread_from INTEGER CONSTRAINT check_unread CHECK (unread_from IS NULL OR (unread_from >= 0 AND status = 'restoring')),
    created_at INTEGER NOT NULL
) STRICT;

-- The best chain as far as it was connected. A block that leaves it is deleted here: this is a view of the node's chain,
-- not a history.
CREATE TABLE blocks (
    block_height INTEGER NOT NULL CONSTRAINT pidx_blocks PRIMARY KEY CONSTRAINT check_height CHECK (block_height >= 0),
    -- In the order in which hashes are printed, as all hashes here.
    block_hash BLOB NOT NULL CONSTRAINT uidx_blocks_hash UNIQUE CONSTRAINT check_block_hash CHECK (length(block_hash) = 32),
    -- What its header says.
    block_time INTEGER NOT NULL,
    -- Read whole, or known only for transactions of it that were imported. Above a connected one no block is imported.
    connected INTEGER NOT NULL CONSTRAINT check_connected_flag CHECK (connected IN (0, 1))
) STRICT;

CREATE TABLE addresses (
    wallet_id INTEGER NOT NULL REFERENCES wallets (id) ON DELETE RESTRICT,
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The account of BIP 44. Balances and selections are by account.
    account INTEGER NOT NULL CONSTRAINT check_account CHECK (account >= 0),
    -- 0 receiving, 1 change; with the index below it is the end of the derivation path. NULL for a script without one.
    branch INTEGER CONSTRAINT check_branch CHECK (branch IN (0, 1)),
    child_index INTEGER CONSTRAINT check_child_index CHECK (child_index >= 0),
    -- What it takes to spend from it: p2wpkh | p2tr | other (seen and counted, not selected).
    kind TEXT NOT NULL CONSTRAINT valid_kind CHECK (kind IN ('p2wpkh', 'p2tr', 'other')),
    script_pub_key BLOB NOT NULL CONSTRAINT check_script CHECK (length(script_pub_key) BETWEEN 1 AND 520),
    created_at INTEGER NOT NULL,
    CONSTRAINT pidx_addresses UNIQUE (wallet_id, id),
    -- One script has one owner. Two wallets with the same script would both count the same coin.
    CONSTRAINT uidx_addresses_script UNIQUE (script_pub_key),
    -- What the outputs refer to: an output and its address are of one wallet and one account.
    CONSTRAINT uidx_addresses_account UNIQUE (wallet_id, account, id),
    CONSTRAINT uidx_addresses_path UNIQUE (wallet_id, account, kind, branch, child_index),
    CONSTRAINT check_path CHECK ((branch IS NULL) = (child_index IS NULL))
) STRICT;

-- A transaction is here once for each wallet that it pays or spends from, and for each whose transactions it conflicts
-- with. Its status is the same in all of them.
CREATE TABLE transactions (
    wallet_id INTEGER NOT NULL REFERENCES wallets (id) ON DELETE RESTRICT,
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tx_hash BLOB NOT NULL CONSTRAINT check_tx_hash CHECK (length(tx_hash) = 32),
    -- NULL: in no block of the best chain. Deleting a block makes its transactions unconfirmed.
    block_height INTEGER CONSTRAINT fkey_transactions_block REFERENCES blocks (block_height) ON DELETE SET NULL,
    -- pending    made here, not yet broadcast
    -- published  valid: in a block, or in the mempool as far as we know; not necessarily broadcast by us
    -- replaced   another unconfirmed transaction took its inputs (RBF)
    -- failed     a transaction in a block took its inputs, a parent of it is no longer valid, or it was abandoned
    -- orphaned   a coinbase whose block has left the best chain
    status TEXT NOT NULL,
    received_time INTEGER NOT NULL,
    is_coinbase INTEGER NOT NULL CONSTRAINT check_is_coinbase_flag CHECK (is_coinbase IN (0, 1)),
    -- All its inputs were ours, and confirmed or our own, when it was written: its change may be spent unconfirmed.
    is_own INTEGER NOT NULL CONSTRAINT check_is_own_flag CHECK (is_own IN (0, 1)),
    -- The hot paths never read it. The last column: SQLite walks through all of it to reach a column behind it.
    raw_tx BLOB NOT NULL,
    -- Composite, so that whatever refers to it must be of the same wallet.
    CONSTRAINT pidx_transactions UNIQUE (wallet_id, id),
    -- The hash first: a block's transactions are looked up for all wallets at once.
    CONSTRAINT uidx_transactions_hash UNIQUE (tx_hash, wallet_id),
    CONSTRAINT valid_status CHECK (status IN ('pending', 'published', 'replaced', 'failed', 'orphaned')),
    CONSTRAINT check_confirmed_published CHECK (block_height IS NULL OR status = 'published'),
    CONSTRAINT check_coinbase_not_pending CHECK (NOT (is_coinbase AND status = 'pending')),
    -- A coinbase cannot be in the mempool.
    CONSTRAINT check_coinbase_confirmation_state CHECK (NOT is_coinbase
        OR (block_height IS NOT NULL AND status = 'published') OR (block_height IS NULL AND status = 'orphaned')),
    CONSTRAINT check_orphaned_coinbase CHECK (status <> 'orphaned' OR is_coinbase)
) STRICT;
-- What a selection asks of a transaction and of an address, so that it reads nothing but indexes.
CREATE INDEX idx_transactions_covering ON transactions (wallet_id, id, status, block_height, is_coinbase, is_own);
CREATE INDEX idx_addresses_covering ON addresses (wallet_id, id, kind);
CREATE INDEX idx_transactions_unconfirmed ON transactions (wallet_id, id)
    WHERE block_height IS NULL AND status IN ('pending', 'published');
-- The block first: deleting one looks for its transactions in all wallets.
CREATE INDEX idx_transactions_by_block ON transactions (block_height, wallet_id) WHERE block_height IS NOT NULL;
CREATE INDEX idx_transactions_by_received_time ON transactions (wallet_id, received_time DESC);
-- Immature coinbases are its last hundred blocks.
CREATE INDEX idx_transactions_coinbase ON transactions (wallet_id, block_height, id, is_coinbase) WHERE is_coinbase;

-- What each transaction spends, ours or not: it is how conflicts with other people's outputs, and spends that arrive
-- before their parents, are known.
CREATE TABLE tx_inputs (
    wallet_id INTEGER NOT NULL,
    tx_id INTEGER NOT NULL,
    input_index INTEGER NOT NULL CONSTRAINT check_input_index CHECK (input_index >= 0),
    prev_hash BLOB NOT NULL CONSTRAINT check_prev_hash CHECK (length(prev_hash) = 32),
    prev_index INTEGER NOT NULL CONSTRAINT check_prev_index CHECK (prev_index >= 0),
    -- Whether the transaction is pending or published. Kept by a trigger.
    active INTEGER NOT NULL CONSTRAINT check_active_flag CHECK (active IN (0, 1)),
    CONSTRAINT pidx_tx_inputs PRIMARY KEY (wallet_id, tx_id, input_index),
    CONSTRAINT fkey_tx_inputs_tx FOREIGN KEY (wallet_id, tx_id) REFERENCES transactions (wallet_id, id) ON DELETE CASCADE
) STRICT;
-- Of the transactions that are valid, one spends an output.
CREATE UNIQUE INDEX uidx_tx_inputs_active ON tx_inputs (prev_hash, prev_index, wallet_id) WHERE active;
-- Children and conflicts, valid or not.
CREATE INDEX idx_tx_inputs_prev ON tx_inputs (prev_hash, prev_index) WHERE NOT active;

-- Our outputs, spent ones too.
CREATE TABLE utxos (
    wallet_id INTEGER NOT NULL REFERENCES wallets (id) ON DELETE RESTRICT,
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tx_id INTEGER NOT NULL,
    output_index INTEGER NOT NULL CONSTRAINT check_output_index CHECK (output_index >= 0),
    -- Satoshi.
    amount INTEGER NOT NULL CONSTRAINT check_utxo_amount CHECK (amount BETWEEN 0 AND 2100000000000000),
    address_id INTEGER NOT NULL,
    account INTEGER NOT NULL,
    -- Whether the transaction that made it is pending or published. Kept by a trigger.
    valid INTEGER NOT NULL CONSTRAINT check_valid_flag CHECK (valid IN (0, 1)),
    -- The valid transaction that spends it, and with which input.
    spent_by_tx_id INTEGER,
    spent_input_index INTEGER CONSTRAINT check_spent_input_index CHECK (spent_input_index >= 0),
    CONSTRAINT pidx_utxos UNIQUE (wallet_id, id),
    CONSTRAINT fkey_utxos_tx FOREIGN KEY (wallet_id, tx_id) REFERENCES transactions (wallet_id, id) ON DELETE RESTRICT,
    CONSTRAINT fkey_utxos_address FOREIGN KEY (wallet_id, account, address_id)
        REFERENCES addresses (wallet_id, account, id) ON DELETE RESTRICT,
    -- Not ON DELETE SET NULL, which would clear wallet_id too: pruning clears both columns itself.
    CONSTRAINT fkey_utxos_spent_by FOREIGN KEY (wallet_id, spent_by_tx_id)
        REFERENCES transactions (wallet_id, id) ON DELETE RESTRICT,
    CONSTRAINT check_spent_tx_and_index_pair CHECK ((spent_by_tx_id IS NULL) = (spent_input_index IS NULL)),
    CONSTRAINT check_not_self_spent CHECK (spent_by_tx_id <> tx_id),
    -- Also lists a transaction's outputs.
    CONSTRAINT uidx_utxos_outpoint UNIQUE (wallet_id, tx_id, output_index)
) STRICT;
-- What a selection reads, by amount: as large as what can be spent, whatever the history. (The columns of its condition are
-- in it too: otherwise SQLite holds the table itself for needed.)
CREATE INDEX idx_utxos_unspent ON utxos (wallet_id, account, amount, id, tx_id, address_id, spent_by_tx_id, valid)
    WHERE spent_by_tx_id IS NULL AND valid;
-- Of immature coinbases, and of leases, the amounts.
CREATE INDEX idx_utxos_by_tx ON utxos (wallet_id, tx_id, account, amount, spent_by_tx_id, valid)
    WHERE spent_by_tx_id IS NULL AND valid;
CREATE INDEX idx_utxos_unspent_by_id ON utxos (wallet_id, id, account, amount, spent_by_tx_id, valid)
    WHERE spent_by_tx_id IS NULL AND valid;
CREATE INDEX idx_utxos_by_address ON utxos (wallet_id, address_id);
CREATE INDEX idx_utxos_spent_by ON utxos (wallet_id, spent_by_tx_id) WHERE spent_by_tx_id IS NOT NULL;

-- What each account's valid unspent outputs come to; written with every change of them, proven by `bursar utxo check`.
CREATE TABLE account_totals (
    wallet_id INTEGER NOT NULL REFERENCES wallets (id) ON DELETE RESTRICT,
    account INTEGER NOT NULL,
    -- In a block, immature coinbases included.
    confirmed INTEGER NOT NULL CONSTRAINT check_confirmed_total CHECK (confirmed >= 0),
    confirmed_count INTEGER NOT NULL CONSTRAINT check_confirmed_count CHECK (confirmed_count >= 0),
    -- Made by transactions that are pending, or published and in no block.
    unconfirmed INTEGER NOT NULL CONSTRAINT check_unconfirmed_total CHECK (unconfirmed >= 0),
    unconfirmed_count INTEGER NOT NULL CONSTRAINT check_unconfirmed_count CHECK (unconfirmed_count >= 0),
    CONSTRAINT pidx_account_totals PRIMARY KEY (wallet_id, account)
) STRICT, WITHOUT ROWID;

-- Which transaction took another's inputs.
CREATE TABLE tx_replacements (
    wallet_id INTEGER NOT NULL REFERENCES wallets (id) ON DELETE RESTRICT,
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    replaced_tx_id INTEGER NOT NULL,
    replacement_tx_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT pidx_tx_replacements UNIQUE (wallet_id, id),
    CONSTRAINT fkey_tx_replacements_replaced FOREIGN KEY (wallet_id, replaced_tx_id)
        REFERENCES transactions (wallet_id, id) ON DELETE CASCADE,
    CONSTRAINT fkey_tx_replacements_replacement FOREIGN KEY (wallet_id, replacement_tx_id)
        REFERENCES transactions (wallet_id, id) ON DELETE CASCADE,
    CONSTRAINT check_not_self_replacement CHECK (replaced_tx_id <> replacement_tx_id),
    CONSTRAINT uidx_tx_replacements_edge UNIQUE (wallet_id, replaced_tx_id, replacement_tx_id)
) STRICT;
CREATE INDEX idx_tx_replacements_replacement ON tx_replacements (wallet_id, replacement_tx_id, replaced_tx_id);

-- Outputs that somebody is about to spend.
CREATE TABLE utxo_leases (
    wallet_id INTEGER NOT NULL REFERENCES wallets (id) ON DELETE RESTRICT,
    utxo_id INTEGER NOT NULL,
    external_lock_id BLOB NOT NULL CONSTRAINT check_lock_id CHECK (length(external_lock_id) = 32),
    expires_at INTEGER NOT NULL,
    CONSTRAINT pidx_utxo_leases PRIMARY KEY (wallet_id, utxo_id),
    CONSTRAINT fkey_utxo_leases_utxo FOREIGN KEY (wallet_id, utxo_id) REFERENCES utxos (wallet_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_utxo_leases_expires_at ON utxo_leases (expires_at);
CREATE INDEX idx_utxo_leases_lock ON utxo_leases (wallet_id, external_lock_id);

CREATE TABLE transaction_labels (
    wallet_id INTEGER NOT NULL,
    tx_id INTEGER NOT NULL,
    label TEXT NOT NULL CONSTRAINT check_transaction_label CHECK (length(label) BETWEEN 1 AND 500),
    actor TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT pidx_transaction_labels PRIMARY KEY (wallet_id, tx_id),
    CONSTRAINT fkey_transaction_labels FOREIGN KEY (wallet_id, tx_id) REFERENCES transactions (wallet_id, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE address_labels (
    wallet_id INTEGER NOT NULL,
    address_id INTEGER NOT NULL,
    label TEXT NOT NULL CONSTRAINT check_address_label CHECK (length(label) BETWEEN 1 AND 500),
    actor TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT pidx_address_labels PRIMARY KEY (wallet_id, address_id),
    CONSTRAINT fkey_address_labels FOREIGN KEY (wallet_id, address_id) REFERENCES addresses (wallet_id, id) ON DELETE RESTRICT
) STRICT;

-- Every change of a transaction: who, when, why (law 7). Rows are only ever added, and outlive a prune. A row that says
-- pruned and has a height keeps a transaction of that block from being taken for a new one.
CREATE TABLE transaction_events (
    wallet_id INTEGER NOT NULL REFERENCES wallets (id) ON DELETE RESTRICT,
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tx_hash BLOB NOT NULL,
    -- What it became: a status, or pruned.
    status TEXT NOT NULL CONSTRAINT valid_event_status
        CHECK (status IN ('pending', 'published', 'replaced', 'failed', 'orphaned', 'pruned')),
    block_height INTEGER,
    reason TEXT NOT NULL,
    -- The block or transaction that did it.
    cause BLOB,
    -- Who; empty for the chain itself.
    actor TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT pidx_transaction_events UNIQUE (wallet_id, id)
) STRICT;
CREATE INDEX idx_transaction_events_tx ON transaction_events (tx_hash, wallet_id);
CREATE INDEX idx_transaction_events_pruned ON transaction_events (block_height) WHERE status = 'pruned';

-- What may be spent, before maturity and leases, which depend on the moment. Pending parents are in it. (valid says the
-- same as the status; it is there for idx_utxos_unspent.)
CREATE VIEW spendable_utxos AS
SELECT u.*, t.block_height, t.is_coinbase, t.status AS tx_status
FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
WHERE u.spent_by_tx_id IS NULL AND u.valid AND t.status IN ('published', 'pending');

-- SQLite has no trigger that could change a row on its way, so whoever deletes a block orphans its coinbase first, in the
-- same transaction; check_coinbase_confirmation_state refuses the delete otherwise.

-- A transaction that is no longer valid spends nothing and has no valid outputs; one that is valid again has.
CREATE TRIGGER trg_carry_transaction_validity AFTER UPDATE OF status ON transactions
WHEN (OLD.status IN ('pending', 'published')) <> (NEW.status IN ('pending', 'published'))
BEGIN
    UPDATE tx_inputs SET active = NEW.status IN ('pending', 'published') WHERE wallet_id = NEW.wallet_id AND tx_id = NEW.id;
    UPDATE utxos SET valid = NEW.status IN ('pending', 'published') WHERE wallet_id = NEW.wallet_id AND tx_id = NEW.id;
    UPDATE utxos SET spent_by_tx_id = NULL, spent_input_index = NULL
        WHERE wallet_id = NEW.wallet_id AND spent_by_tx_id = NEW.id AND NEW.status NOT IN ('pending', 'published');
END;

-- What an output and an input say of their transactions is true once the row is written. (Not before: a row that
-- ON CONFLICT leaves alone is not looked at, as in PostgreSQL.)
CREATE TRIGGER trg_utxo_valid_insert AFTER INSERT ON utxos
WHEN NEW.valid <> (SELECT status IN ('pending', 'published') FROM transactions WHERE wallet_id = NEW.wallet_id AND id = NEW.tx_id)
BEGIN SELECT RAISE(ABORT, 'trg_utxo_valid'); END;
CREATE TRIGGER trg_utxo_valid_update AFTER UPDATE OF valid ON utxos
WHEN NEW.valid <> (SELECT status IN ('pending', 'published') FROM transactions WHERE wallet_id = NEW.wallet_id AND id = NEW.tx_id)
BEGIN SELECT RAISE(ABORT, 'trg_utxo_valid'); END;
CREATE TRIGGER trg_utxo_spender_insert AFTER INSERT ON utxos
WHEN NEW.spent_by_tx_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM tx_inputs i JOIN transactions p ON p.wallet_id = i.wallet_id
        AND p.tx_hash = i.prev_hash AND p.id = NEW.tx_id
    WHERE i.wallet_id = NEW.wallet_id AND i.tx_id = NEW.spent_by_tx_id AND i.input_index = NEW.spent_input_index
        AND i.prev_index = NEW.output_index AND i.active)
BEGIN SELECT RAISE(ABORT, 'trg_utxo_spender'); END;
CREATE TRIGGER trg_utxo_spender_update AFTER UPDATE OF spent_by_tx_id, spent_input_index ON utxos
WHEN NEW.spent_by_tx_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM tx_inputs i JOIN transactions p ON p.wallet_id = i.wallet_id
        AND p.tx_hash = i.prev_hash AND p.id = NEW.tx_id
    WHERE i.wallet_id = NEW.wallet_id AND i.tx_id = NEW.spent_by_tx_id AND i.input_index = NEW.spent_input_index
        AND i.prev_index = NEW.output_index AND i.active)
BEGIN SELECT RAISE(ABORT, 'trg_utxo_spender'); END;
CREATE TRIGGER trg_input_active_insert AFTER INSERT ON tx_inputs
WHEN NEW.active <> (SELECT status IN ('pending', 'published') FROM transactions WHERE wallet_id = NEW.wallet_id AND id = NEW.tx_id)
BEGIN SELECT RAISE(ABORT, 'trg_input_active'); END;
CREATE TRIGGER trg_input_active_update AFTER UPDATE OF active ON tx_inputs
WHEN NEW.active <> (SELECT status IN ('pending', 'published') FROM transactions WHERE wallet_id = NEW.wallet_id AND id = NEW.tx_id)
BEGIN SELECT RAISE(ABORT, 'trg_input_active'); END;

-- What the chain said is not changed afterwards, nor is what happened; the store marks, and adds.
-- What was shown to anybody is never pending again.
CREATE TRIGGER trg_transaction_fixed AFTER UPDATE ON transactions
WHEN (OLD.wallet_id, OLD.id, OLD.tx_hash, OLD.is_coinbase)
    IS NOT (NEW.wallet_id, NEW.id, NEW.tx_hash, NEW.is_coinbase)
    OR (NEW.status = 'pending' AND OLD.status <> 'pending')
BEGIN SELECT RAISE(ABORT, 'trg_transaction_fixed'); END;
CREATE TRIGGER trg_input_fixed AFTER UPDATE OF wallet_id, tx_id, input_index, prev_hash, prev_index ON tx_inputs
WHEN (OLD.wallet_id, OLD.tx_id, OLD.input_index, OLD.prev_hash, OLD.prev_index)
    IS NOT (NEW.wallet_id, NEW.tx_id, NEW.input_index, NEW.prev_hash, NEW.prev_index)
BEGIN SELECT RAISE(ABORT, 'trg_input_fixed'); END;
CREATE TRIGGER trg_output_fixed AFTER UPDATE OF wallet_id, id, tx_id, output_index, amount, address_id, account ON utxos
WHEN (OLD.wallet_id, OLD.id, OLD.tx_id, OLD.output_index, OLD.amount, OLD.address_id, OLD.account)
    IS NOT (NEW.wallet_id, NEW.id, NEW.tx_id, NEW.output_index, NEW.amount, NEW.address_id, NEW.account)
BEGIN SELECT RAISE(ABORT, 'trg_output_fixed'); END;
-- What somebody could spend is not forgotten.
CREATE TRIGGER trg_output_kept AFTER DELETE ON utxos WHEN OLD.valid AND OLD.spent_by_tx_id IS NULL
BEGIN SELECT RAISE(ABORT, 'trg_output_kept'); END;
CREATE TRIGGER trg_event_fixed_update AFTER UPDATE ON transaction_events
BEGIN SELECT RAISE(ABORT, 'trg_event_fixed'); END;
CREATE TRIGGER trg_event_fixed_delete AFTER DELETE ON transaction_events
BEGIN SELECT RAISE(ABORT, 'trg_event_fixed'); END;

-- All wallets share the blocks, so they are on one network.
CREATE TRIGGER trg_wallet_network_insert BEFORE INSERT ON wallets
WHEN EXISTS (SELECT 1 FROM wallets WHERE network <> NEW.network AND id <> COALESCE(NEW.id, -1))
BEGIN SELECT RAISE(ABORT, 'trg_wallet_network'); END;
CREATE TRIGGER trg_wallet_network_update BEFORE UPDATE OF network ON wallets
WHEN EXISTS (SELECT 1 FROM wallets WHERE network <> NEW.network AND id <> COALESCE(NEW.id, -1))
BEGIN SELECT RAISE(ABORT, 'trg_wallet_network'); END;
