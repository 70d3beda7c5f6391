-- The chains' own books: every change of a balance of ours as a chain shows it, what the ledger has made of it, and users'
-- deposits (docs/adr/0013-deposits.md).
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- How deep a block must be before what it paid may be withdrawn. NULL: as deep as for the credit.
ALTER TABLE chains ADD COLUMN final_confirmations INTEGER;

-- The addresses of Bitcoin scripts as people write them. A table of its own: addresses is what selections read, and is kept small.
CREATE TABLE address_texts (
    script_pub_key BLOB NOT NULL CONSTRAINT address_texts_pkey PRIMARY KEY,
    address TEXT NOT NULL CONSTRAINT address_texts_address UNIQUE
) STRICT;

-- A chain whose payments are kept, and how far.
CREATE TABLE chain_cursors (
    chain_id INTEGER NOT NULL CONSTRAINT chain_cursors_pkey PRIMARY KEY REFERENCES chains (id),
    -- Nothing is known of the blocks below this one. A wallet that had coins before them is brought to its balance by a look.
    first_height INTEGER NOT NULL CONSTRAINT chain_cursors_first CHECK (first_height >= 0),
    -- All blocks up to this one were held against headers that a quorum has.
    proven_height INTEGER NOT NULL CONSTRAINT chain_cursors_proven CHECK (proven_height >= -1),
    -- Who reads the chain, until when, and how often that changed. Every write names the number: who was paused while another
    -- took over writes nothing.
    worker TEXT NOT NULL,
    fence INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    -- Why nothing of this chain moves until a person looks. NULL: it moves.
    halted TEXT,
    updated_at INTEGER NOT NULL
) STRICT;

-- The newest blocks that were read, to find where a fork begins. A view of the nodes' chain, not a history: what leaves the
-- chain, and what is too old to matter, is deleted here. (Bitcoin's are in blocks.)
CREATE TABLE chain_blocks (
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    height INTEGER NOT NULL,
    block_hash BLOB NOT NULL CONSTRAINT chain_blocks_hash CHECK (length(block_hash) = 32),
    -- The node that it was read from.
    source TEXT NOT NULL,
    CONSTRAINT chain_blocks_pkey PRIMARY KEY (chain_id, height)
) STRICT;

-- One change of one balance. Rows are only added; of an old row only alive, posting and due_height change.
CREATE TABLE chain_entries (
    id INTEGER PRIMARY KEY,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- The coin: an asset on this chain.
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    -- Which address of ours.
    address TEXT NOT NULL,
    height INTEGER NOT NULL,
    block_hash BLOB NOT NULL CONSTRAINT chain_entries_block CHECK (length(block_hash) = 32),
    -- NULL for what only a look at the balance has shown.
    tx_hash BLOB CONSTRAINT chain_entries_hash CHECK (length(tx_hash) = 32),
    -- value, output:N, input:N, log:N, internal:N, fee, balance: where in the transaction.
    place TEXT NOT NULL,
    -- 1 it came, -1 it left.
    side INTEGER NOT NULL CONSTRAINT chain_entries_side CHECK (side IN (1, -1)),
    -- Signed chain units, in decimal.
    amount_raw TEXT NOT NULL,
    cause TEXT NOT NULL CONSTRAINT chain_entries_cause CHECK (cause IN ('deposit', 'reverted', 'fee', 'payout', 'topup_in', 'topup_out',
        'sweep_in', 'sweep_out', 'change', 'unattributed_in', 'foreign_spend')),
    -- How often this change was in a block before.
    generation INTEGER NOT NULL CONSTRAINT chain_entries_generation CHECK (generation >= 0),
    -- The entry that this one takes back, because its block left the chain or the proof did not have it.
    reverses INTEGER CONSTRAINT chain_entries_reverses UNIQUE,
    -- Whether its block is in the chain as far as we know. False for what was taken back, and for what takes back.
    alive INTEGER NOT NULL CONSTRAINT flag_alive CHECK (alive IN (0, 1)),
    -- 0 the ledger has yet to book it; 1 booked; 2 taken back before it was booked, so never; 3 more than the ledger can hold.
    posting INTEGER NOT NULL CONSTRAINT chain_entries_posting CHECK (posting BETWEEN 0 AND 3),
    -- It is booked when the block of this height is deep enough. 0 for what takes back: at once.
    due_height INTEGER NOT NULL,
    -- The node, or balance.
    source TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT chain_entries_reversal CHECK (reverses IS NULL OR NOT alive)
) STRICT;
-- Exactly once: one change is in one block.
CREATE UNIQUE INDEX chain_entries_alive ON chain_entries (chain_id, tx_hash, place, side) WHERE alive AND tx_hash IS NOT NULL;
CREATE UNIQUE INDEX chain_entries_key ON chain_entries (chain_id, tx_hash, place, side, generation)
    WHERE reverses IS NULL AND tx_hash IS NOT NULL;
-- What a reorganisation takes along, and what a proof is held against.
CREATE INDEX chain_entries_by_height ON chain_entries (chain_id, height) WHERE alive;
CREATE INDEX chain_entries_due ON chain_entries (chain_id, due_height, id) WHERE posting = 0;
CREATE INDEX chain_entries_by_address ON chain_entries (address, chain_id, listing_id, id);

-- What each address has by its entries. Written with every entry; the audit adds them up again.
CREATE TABLE wallet_balances (
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    address TEXT NOT NULL,
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    on_chain_balance_raw TEXT NOT NULL,
    -- Set and cleared by rules.
    needs_gas INTEGER NOT NULL CONSTRAINT flag_needs_gas CHECK (needs_gas IN (0, 1)),
    needs_consolidation INTEGER NOT NULL CONSTRAINT flag_needs_consolidation CHECK (needs_consolidation IN (0, 1)),
    -- The highest block that changed it, and the highest at which the chain itself was asked and said the same; -1 never.
    changed_height INTEGER NOT NULL,
    checked_height INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT wallet_balances_pkey PRIMARY KEY (chain_id, address, listing_id)
) STRICT;
CREATE INDEX wallet_balances_unchecked ON wallet_balances (chain_id, changed_height) WHERE checked_height < changed_height;

-- Of each coin on each chain: booked chain units that are too few for a ledger unit.
CREATE TABLE chain_residues (
    listing_id INTEGER NOT NULL CONSTRAINT chain_residues_pkey PRIMARY KEY REFERENCES asset_on_chain (id),
    residue_raw TEXT NOT NULL,
    -- What custody had, in ledger units, when the chain's books began: nothing of it is in the entries.
    opening INTEGER NOT NULL
) STRICT;

-- A payment to an address of ours, each time that it was mined. Its id is that of its entry.
CREATE TABLE deposits (
    id INTEGER NOT NULL CONSTRAINT deposits_pkey PRIMARY KEY,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    tx_hash BLOB NOT NULL,
    place TEXT NOT NULL,
    generation INTEGER NOT NULL,
    address TEXT NOT NULL,
    amount_raw TEXT NOT NULL,
    height INTEGER NOT NULL,
    block_hash BLOB NOT NULL,
    -- Whose address it is by its row; before the credit, by the key. NULL: no user's.
    user_id INTEGER,
    state TEXT NOT NULL CONSTRAINT deposits_state CHECK (state IN
        ('detected', 'proven', 'credited', 'final', 'orphaned', 'reversed', 'refused', 'unattributed')),
    -- Why it is unattributed or refused.
    reason TEXT,
    -- In ledger units: what its user got, what suspense got because an earlier generation owed it, what suspense got because
    -- it is nobody's, and what its user still owes since it was taken back.
    amount INTEGER NOT NULL CONSTRAINT deposits_amount CHECK (amount >= 0),
    repaid INTEGER NOT NULL CONSTRAINT deposits_repaid CHECK (repaid >= 0),
    left_over INTEGER NOT NULL CONSTRAINT deposits_left_over CHECK (left_over >= 0),
    receivable INTEGER NOT NULL CONSTRAINT deposits_receivable CHECK (receivable >= 0),
    -- The number of its newest event.
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT deposits_key UNIQUE (chain_id, tx_hash, place, generation),
    CONSTRAINT deposits_reason CHECK (state NOT IN ('unattributed', 'refused') OR reason IS NOT NULL)
) STRICT;
CREATE INDEX deposits_by_user ON deposits (user_id, id) WHERE user_id IS NOT NULL;
CREATE INDEX deposits_by_state ON deposits (state, id);
-- What waits for its proof, and what waits to be final.
CREATE INDEX deposits_open ON deposits (chain_id, state, height) WHERE state IN ('detected', 'proven', 'credited');

-- What happened to each, in order (law 7).
CREATE TABLE deposit_events (
    deposit_id INTEGER NOT NULL REFERENCES deposits (id),
    -- 1, 2, … within the deposit.
    version INTEGER NOT NULL,
    -- The state that it came to.
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT deposit_events_pkey PRIMARY KEY (deposit_id, version)
) STRICT;

-- What somebody should know of a chain: a node that lied, coins that left unexplained, a credit that was taken back.
CREATE TABLE chain_findings (
    id INTEGER PRIMARY KEY,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    kind TEXT NOT NULL,
    -- A node, a transaction, an address, a deposit.
    subject TEXT NOT NULL,
    detail TEXT NOT NULL,
    at INTEGER NOT NULL,
    -- Who has seen to it. Both are NULL while nobody has.
    resolved_by TEXT,
    resolved_at INTEGER,
    CONSTRAINT chain_findings_resolved CHECK ((resolved_by IS NULL) = (resolved_at IS NULL))
) STRICT;
CREATE INDEX chain_findings_open ON chain_findings (chain_id, id) WHERE resolved_at IS NULL;

-- What a chain has shown is not unsaid: the facts of an entry stay, and so does every deposit and its history.
CREATE TRIGGER trg_chain_entry_fixed AFTER UPDATE ON chain_entries
WHEN (OLD.id, OLD.chain_id, OLD.listing_id, OLD.address, OLD.height, OLD.block_hash, OLD.tx_hash, OLD.place,
        OLD.side, OLD.amount_raw, OLD.cause, OLD.generation, OLD.reverses)
    IS NOT (NEW.id, NEW.chain_id, NEW.listing_id, NEW.address, NEW.height, NEW.block_hash, NEW.tx_hash, NEW.place,
        NEW.side, NEW.amount_raw, NEW.cause, NEW.generation, NEW.reverses)
BEGIN SELECT RAISE(ABORT, 'trg_chain_entry_fixed'); END;
CREATE TRIGGER trg_chain_entry_kept AFTER DELETE ON chain_entries
BEGIN SELECT RAISE(ABORT, 'trg_chain_entry_kept'); END;
CREATE TRIGGER trg_deposit_kept AFTER DELETE ON deposits
BEGIN SELECT RAISE(ABORT, 'trg_deposit_kept'); END;
CREATE TRIGGER trg_deposit_event_fixed_update AFTER UPDATE ON deposit_events
BEGIN SELECT RAISE(ABORT, 'trg_deposit_event_fixed'); END;
CREATE TRIGGER trg_deposit_event_fixed_delete AFTER DELETE ON deposit_events
BEGIN SELECT RAISE(ABORT, 'trg_deposit_event_fixed'); END;
