-- Operators: the people who look after other people's money, what each may do, and what each has done. And the check of withdrawals that somebody
-- outside makes before anybody may agree to them.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- A person, as the treasury file has it. Every change of a row is in setting_changes. Nobody is ever removed, only switched off.
CREATE TABLE operators (
    id INTEGER PRIMARY KEY,
    -- What their tokens and the log call them, for ever.
    name TEXT NOT NULL CONSTRAINT operators_name_length CHECK (length(name) BETWEEN 1 AND 64),
    role TEXT NOT NULL CONSTRAINT operators_role CHECK (role IN ('viewer', 'operator', 'approver', 'administrator')),
    -- The customer that this person is too. Nobody decides about their own money. NULL: this person is no customer.
    user_id INTEGER CONSTRAINT operators_user CHECK (user_id > 0),
    is_active INTEGER NOT NULL CONSTRAINT operators_active_flag CHECK (is_active IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX operators_name ON operators (name);
-- A customer is one person.
CREATE UNIQUE INDEX operators_by_user ON operators (user_id) WHERE user_id IS NOT NULL;

-- What they sign with. A key stays whose it was, also when it is switched off.
CREATE TABLE operator_keys (
    id INTEGER PRIMARY KEY,
    -- As the signer's policy names it.
    name TEXT NOT NULL CONSTRAINT operator_keys_name_length CHECK (length(name) BETWEEN 1 AND 64),
    operator_id INTEGER NOT NULL CONSTRAINT operator_keys_operator REFERENCES operators (id),
    kind TEXT NOT NULL CONSTRAINT operator_keys_kind CHECK (kind IN ('ed25519', 'passkey')),
    -- In small hexadecimal digits: 32 bytes of Ed25519; of a passkey 04, x and y.
    public_key TEXT NOT NULL,
    -- Where a passkey may be used: its relying party, and the origins as a JSON list.
    relying_party TEXT,
    origins TEXT,
    is_active INTEGER NOT NULL CONSTRAINT operator_keys_active_flag CHECK (is_active IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT operator_keys_length CHECK (length(public_key) = CASE kind WHEN 'ed25519' THEN 64 ELSE 130 END),
    CONSTRAINT operator_keys_place CHECK ((kind = 'passkey') = (relying_party IS NOT NULL) AND (relying_party IS NULL) = (origins IS NULL))
) STRICT;
CREATE UNIQUE INDEX operator_keys_name ON operator_keys (name);
-- Else one key could count as two people.
CREATE UNIQUE INDEX operator_keys_once ON operator_keys (public_key);
CREATE INDEX operator_keys_by_operator ON operator_keys (operator_id);

-- What was done, and what was tried and refused. Written with the change, and never changed (law 7).
CREATE TABLE operator_log (
    id INTEGER PRIMARY KEY,
    -- Who: an operator's name; over the command line whatever the caller says.
    operator TEXT NOT NULL CONSTRAINT operator_log_operator CHECK (length(operator) BETWEEN 1 AND 64),
    -- Through which door.
    door TEXT NOT NULL CONSTRAINT operator_log_door CHECK (door IN ('http', 'command_line')),
    action TEXT NOT NULL CONSTRAINT operator_log_action CHECK (length(action) BETWEEN 1 AND 32),
    -- On what: wr-NUMBER.
    subject TEXT NOT NULL CONSTRAINT operator_log_subject CHECK (length(subject) BETWEEN 1 AND 64),
    reason TEXT NOT NULL CONSTRAINT operator_log_reason CHECK (length(reason) <= 500),
    -- The request's id. Empty over the command line.
    request_id TEXT NOT NULL CONSTRAINT operator_log_request CHECK (length(request_id) <= 64),
    -- done, or the code of why not.
    outcome TEXT NOT NULL CONSTRAINT operator_log_outcome CHECK (length(outcome) BETWEEN 1 AND 64),
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX operator_log_by_subject ON operator_log (subject, id);
CREATE INDEX operator_log_by_operator ON operator_log (operator, id);

-- Who sees to a withdrawal. The newest row holds.
CREATE TABLE withdrawal_assignments (
    id INTEGER PRIMARY KEY,
    withdrawal_id INTEGER NOT NULL CONSTRAINT withdrawal_assignments_request REFERENCES withdrawal_requests (id),
    -- NULL: nobody in particular any more.
    operator_id INTEGER CONSTRAINT withdrawal_assignments_operator REFERENCES operators (id),
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX withdrawal_assignments_newest ON withdrawal_assignments (withdrawal_id, id);

-- From which amount on somebody outside is asked about a withdrawal first: a row for each version, and the newest holds. NULL: never.
CREATE TABLE withdrawal_check_rules (
    listing_id INTEGER NOT NULL CONSTRAINT withdrawal_check_rules_listing REFERENCES asset_on_chain (id),
    version INTEGER NOT NULL CONSTRAINT withdrawal_check_rules_version CHECK (version > 0),
    from_amount INTEGER CONSTRAINT withdrawal_check_rules_amount CHECK (from_amount >= 0),
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT withdrawal_check_rules_pkey PRIMARY KEY (listing_id, version)
) STRICT;

-- What a customer says of where the money goes (travel rule), as JSON. It is passed on, and read by nobody here.
CREATE TABLE withdrawal_travel_rules (
    withdrawal_id INTEGER NOT NULL CONSTRAINT withdrawal_travel_rules_pkey PRIMARY KEY
        CONSTRAINT withdrawal_travel_rules_request REFERENCES withdrawal_requests (id),
    document TEXT NOT NULL CONSTRAINT withdrawal_travel_rules_length CHECK (length(document) <= 16384),
    at INTEGER NOT NULL
) STRICT;

-- The check of each withdrawal that wants one. Its row is written with the withdrawal's.
CREATE TABLE withdrawal_checks (
    withdrawal_id INTEGER NOT NULL CONSTRAINT withdrawal_checks_pkey PRIMARY KEY
        CONSTRAINT withdrawal_checks_request REFERENCES withdrawal_requests (id),
    -- dropped: the withdrawal ended before anybody had answered.
    state TEXT NOT NULL CONSTRAINT withdrawal_checks_state CHECK (state IN ('waiting', 'allowed', 'review', 'refused', 'dropped')),
    -- How often it was asked, when it is asked next, and why it has no answer yet.
    tries INTEGER NOT NULL CONSTRAINT withdrawal_checks_tries CHECK (tries >= 0),
    due_at INTEGER NOT NULL,
    -- Until when somebody waits for an answer: nobody else asks before. NULL: nobody waits.
    claimed_until INTEGER,
    trouble TEXT,
    -- What was answered, with the digest of what it was about.
    reason TEXT,
    digest TEXT,
    answered_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT withdrawal_checks_answered CHECK ((state IN ('allowed', 'review', 'refused')) = (answered_at IS NOT NULL)
        AND (answered_at IS NULL) = (digest IS NULL) AND (answered_at IS NULL) = (reason IS NULL))
) STRICT;
CREATE INDEX withdrawal_checks_due ON withdrawal_checks (due_at, withdrawal_id) WHERE state = 'waiting';

CREATE TRIGGER trg_operator_fixed AFTER UPDATE ON operators
WHEN (OLD.id, OLD.name, OLD.created_at) IS NOT (NEW.id, NEW.name, NEW.created_at)
BEGIN SELECT RAISE(ABORT, 'trg_operator_fixed'); END;
CREATE TRIGGER trg_operator_kept AFTER DELETE ON operators
BEGIN SELECT RAISE(ABORT, 'trg_operator_kept'); END;
CREATE TRIGGER trg_operator_key_fixed AFTER UPDATE ON operator_keys
WHEN (OLD.id, OLD.name, OLD.operator_id, OLD.kind, OLD.public_key, OLD.relying_party, OLD.origins, OLD.created_at)
    IS NOT (NEW.id, NEW.name, NEW.operator_id, NEW.kind, NEW.public_key, NEW.relying_party, NEW.origins, NEW.created_at)
BEGIN SELECT RAISE(ABORT, 'trg_operator_key_fixed'); END;
CREATE TRIGGER trg_operator_key_kept AFTER DELETE ON operator_keys
BEGIN SELECT RAISE(ABORT, 'trg_operator_key_kept'); END;
CREATE TRIGGER trg_operator_log_fixed AFTER UPDATE ON operator_log
BEGIN SELECT RAISE(ABORT, 'trg_operator_log_fixed'); END;
CREATE TRIGGER trg_operator_log_kept AFTER DELETE ON operator_log
BEGIN SELECT RAISE(ABORT, 'trg_operator_log_kept'); END;
CREATE TRIGGER trg_assignment_fixed AFTER UPDATE ON withdrawal_assignments
BEGIN SELECT RAISE(ABORT, 'trg_assignment_fixed'); END;
CREATE TRIGGER trg_assignment_kept AFTER DELETE ON withdrawal_assignments
BEGIN SELECT RAISE(ABORT, 'trg_assignment_kept'); END;
CREATE TRIGGER trg_check_rule_fixed AFTER UPDATE ON withdrawal_check_rules
BEGIN SELECT RAISE(ABORT, 'trg_check_rule_fixed'); END;
CREATE TRIGGER trg_check_rule_kept AFTER DELETE ON withdrawal_check_rules
BEGIN SELECT RAISE(ABORT, 'trg_check_rule_kept'); END;
CREATE TRIGGER trg_travel_rule_fixed AFTER UPDATE ON withdrawal_travel_rules
BEGIN SELECT RAISE(ABORT, 'trg_travel_rule_fixed'); END;
CREATE TRIGGER trg_travel_rule_kept AFTER DELETE ON withdrawal_travel_rules
BEGIN SELECT RAISE(ABORT, 'trg_travel_rule_kept'); END;
-- What was answered stays answered.
CREATE TRIGGER trg_check_fixed AFTER UPDATE ON withdrawal_checks
WHEN OLD.state <> 'waiting' OR OLD.withdrawal_id <> NEW.withdrawal_id OR OLD.created_at <> NEW.created_at
BEGIN SELECT RAISE(ABORT, 'trg_check_fixed'); END;
CREATE TRIGGER trg_check_kept AFTER DELETE ON withdrawal_checks
BEGIN SELECT RAISE(ABORT, 'trg_check_kept'); END;
-- Whoever approves or pays, by whichever way: not before the check has answered, and never against its no. Of what two people say that it was paid in a
-- time which this database does not know, there is nothing left to check.
CREATE TRIGGER trg_withdrawal_checked AFTER UPDATE ON withdrawal_requests
WHEN NEW.status IN ('approved', 'queued', 'completed') AND OLD.status <> NEW.status AND NEW.judged IS NULL
    AND EXISTS (SELECT 1 FROM withdrawal_checks c WHERE c.withdrawal_id = NEW.id AND c.state NOT IN ('allowed', 'review'))
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_checked'); END;
