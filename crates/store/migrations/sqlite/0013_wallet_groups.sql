-- Whose address is whose: wallet groups, the house's own wallets, and users' deposit wallets. All of it is an index. An
-- address follows from the extended public key that the treasury file pins and from a number; whoever reads an address here
-- derives it again and compares (ADR 12).
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE wallet_groups (
    id INTEGER PRIMARY KEY,
    -- What the treasury file, the signer and people call it.
    name TEXT NOT NULL CONSTRAINT wallet_groups_name UNIQUE,
    -- Which chains its keys are for. All EVM chains share their addresses, so they share a family.
    family TEXT NOT NULL CONSTRAINT wallet_groups_family CHECK (family IN
        ('bitcoin', 'bitcoin-testnet', 'bitcoin-testnet4', 'bitcoin-signet', 'bitcoin-regtest', 'evm', 'tron')),
    -- What its wallets are for: deposit (users'), hot, gas, treasury.
    purpose TEXT NOT NULL CONSTRAINT wallet_groups_purpose CHECK (purpose IN ('deposit', 'hot', 'gas', 'treasury')),
    -- The extended public key of its account. Two groups with the same keys would be one wallet with two purposes.
    xpub TEXT NOT NULL CONSTRAINT wallet_groups_xpub UNIQUE,
    -- Such as m/44'/60'/0'/hi/lo, for people: hi and lo are the upper and lower 31 bits of the derivation index.
    derivation_path_template TEXT NOT NULL,
    -- Whether users get wallets of it, or jobs are given to its wallets. Its addresses are watched in any case.
    is_active INTEGER NOT NULL CONSTRAINT wallet_groups_active_flag CHECK (is_active IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- What the house's wallets refer to: a wallet's role is its group's purpose.
    CONSTRAINT wallet_groups_id_purpose UNIQUE (id, purpose)
) STRICT;

-- The house's own wallets, each on one chain.
CREATE TABLE operation_wallet_addresses (
    id INTEGER PRIMARY KEY,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- NULL for a cold wallet: its key is not in any group of ours.
    wallet_group_id INTEGER,
    derivation_index INTEGER CONSTRAINT operation_wallets_index_range
        CHECK (derivation_index BETWEEN 0 AND 4611686018427387903),
    address TEXT NOT NULL CONSTRAINT operation_wallets_address_length CHECK (length(address) BETWEEN 1 AND 128),
    role TEXT NOT NULL CONSTRAINT operation_wallets_role CHECK (role IN ('gas', 'hot', 'treasury', 'cold')),
    -- Whether new jobs are given to it.
    is_active INTEGER NOT NULL CONSTRAINT operation_wallets_active_flag CHECK (is_active IN (0, 1)),
    -- When a job was last given to it: the one that has rested longest is next. NULL: never.
    last_used_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT operation_wallets_group FOREIGN KEY (wallet_group_id, role) REFERENCES wallet_groups (id, purpose),
    -- An address on a chain is one wallet, with one role.
    CONSTRAINT operation_wallets_address UNIQUE (chain_id, address),
    CONSTRAINT operation_wallets_index UNIQUE (wallet_group_id, derivation_index, chain_id),
    -- A wallet is derived, or it is cold and its address was written down.
    CONSTRAINT operation_wallets_cold
        CHECK ((wallet_group_id IS NULL) = (role = 'cold') AND (derivation_index IS NULL) = (role = 'cold'))
) STRICT;

-- Users' deposit wallets: one for each user and group, on all chains of the group's family.
CREATE TABLE user_wallets (
    id INTEGER PRIMARY KEY,
    wallet_group_id INTEGER NOT NULL CONSTRAINT user_wallets_group REFERENCES wallet_groups (id),
    -- The path has room for 62 bits.
    user_id INTEGER NOT NULL CONSTRAINT user_wallets_user_range CHECK (user_id BETWEEN 1 AND 4611686018427387903),
    -- The user's number, and nothing else: another one would give the user somebody else's address.
    derivation_index INTEGER NOT NULL CONSTRAINT user_wallets_index_is_user CHECK (derivation_index = user_id),
    address TEXT NOT NULL CONSTRAINT user_wallets_address_length CHECK (length(address) BETWEEN 1 AND 128),
    created_at INTEGER NOT NULL,
    -- The user first: all wallets of a user are found by it too.
    CONSTRAINT user_wallets_user UNIQUE (user_id, wallet_group_id),
    -- What is paid to an address is credited to one user.
    CONSTRAINT user_wallets_address UNIQUE (address)
) STRICT;
-- The wallets of a group, a page at a time.
CREATE INDEX user_wallets_by_group ON user_wallets (wallet_group_id, id);

-- What was told to the world is not changed afterwards. A new key, or a new address, is a new group.
CREATE TRIGGER trg_wallet_group_fixed AFTER UPDATE ON wallet_groups
WHEN (OLD.id, OLD.name, OLD.family, OLD.purpose, OLD.xpub, OLD.derivation_path_template)
    IS NOT (NEW.id, NEW.name, NEW.family, NEW.purpose, NEW.xpub, NEW.derivation_path_template)
BEGIN SELECT RAISE(ABORT, 'trg_wallet_group_fixed'); END;
CREATE TRIGGER trg_wallet_group_kept AFTER DELETE ON wallet_groups
BEGIN SELECT RAISE(ABORT, 'trg_wallet_group_kept'); END;
CREATE TRIGGER trg_operation_wallet_fixed AFTER UPDATE ON operation_wallet_addresses
WHEN (OLD.id, OLD.chain_id, OLD.wallet_group_id, OLD.derivation_index, OLD.address, OLD.role)
    IS NOT (NEW.id, NEW.chain_id, NEW.wallet_group_id, NEW.derivation_index, NEW.address, NEW.role)
BEGIN SELECT RAISE(ABORT, 'trg_operation_wallet_fixed'); END;
CREATE TRIGGER trg_operation_wallet_kept AFTER DELETE ON operation_wallet_addresses
BEGIN SELECT RAISE(ABORT, 'trg_operation_wallet_kept'); END;
CREATE TRIGGER trg_user_wallet_fixed_update AFTER UPDATE ON user_wallets
BEGIN SELECT RAISE(ABORT, 'trg_user_wallet_fixed'); END;
CREATE TRIGGER trg_user_wallet_fixed_delete AFTER DELETE ON user_wallets
BEGIN SELECT RAISE(ABORT, 'trg_user_wallet_fixed'); END;
