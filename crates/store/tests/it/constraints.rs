//! The database's own rules, broken by hand: each engine refuses, and each refusal is known by name.

use store::error::Constraint;
use store::testing::{NOW, TestDb};
use store::{StoreError, db_test};

use crate::support::*;

/// A statement for each rule that breaks exactly it. `USER` and `ASSET` stand for ids of the bank.
const BREAKING: [(Constraint, &str); 20] = [
    (
        Constraint::MovementKey,
        "INSERT INTO movements (op_key, leg, action, outcome, from_account, to_account, asset_id,
        amount, reference, at, checksum) VALUES ('fund-0', 0, 1, 0, -1, USER, ASSET, 1, '', 0, 0)",
    ),
    (
        Constraint::HoldEnd,
        "INSERT INTO movements (op_key, leg, action, outcome, from_account, to_account, asset_id,
        amount, hold_key, reference, at, checksum) VALUES ('again', 0, 4, 0, USER, USER, ASSET, 1, 'h', '', 0, 0)",
    ),
    (
        Constraint::StatusChangeKey,
        "INSERT INTO account_status_changes
        (op_key, account_id, after_status, outcome, actor, reason, at) VALUES ('f', 1, 'active', 0, '', '', 0)",
    ),
    (
        Constraint::AmountPositive,
        "INSERT INTO movements (op_key, leg, action, outcome, from_account, to_account,
        asset_id, amount, reference, at, checksum) VALUES ('x', 0, 1, 0, -1, USER, ASSET, 0, '', 0, 0)",
    ),
    (
        Constraint::HoldKeyByAction,
        "INSERT INTO movements (op_key, leg, action, outcome, from_account, to_account,
        asset_id, amount, reference, at, checksum) VALUES ('x', 0, 3, 0, -1, USER, ASSET, 1, '', 0, 0)",
    ),
    (Constraint::AvailableNotNegative, "UPDATE accounts SET available = -1 WHERE id = USER"),
    (Constraint::FrozenNotNegative, "UPDATE accounts SET frozen = -1 WHERE id = USER"),
    (Constraint::HouseIsSystem, "UPDATE accounts SET owner = 0 WHERE id = USER"),
    (Constraint::SystemHasNoBalance, "UPDATE accounts SET available = 1 WHERE id = -1"),
    (
        Constraint::OneAccountPerOwner,
        "INSERT INTO accounts (owner, kind, asset_id, status, available, frozen,
        created_at, checksum) VALUES (1, 'funding', ASSET, 'active', 0, 0, 0, 0)",
    ),
    (
        Constraint::TransferId,
        "INSERT INTO transfers (id, user_id, asset_id, amount, direction, funding_account, state, tries, due_at,
        version, created_at, updated_at) VALUES (7, 1, ASSET, 1, 1, USER, 0, 0, 0, 1, 0, 0)",
    ),
    (
        Constraint::TransferOrder,
        "INSERT INTO transfers (id, user_id, asset_id, amount, direction, funding_account, state, client_order_id,
        tries, due_at, version, created_at, updated_at) VALUES (8, 1, ASSET, 1, 1, USER, 0, 'o', 0, 0, 1, 0, 0)",
    ),
    (Constraint::TransferAmountPositive, "UPDATE transfers SET amount = 0"),
    (Constraint::TransferState, "UPDATE transfers SET state = 5"),
    (Constraint::TransferError, "UPDATE transfers SET state = -10"),
    (
        Constraint::TransferVersion,
        "INSERT INTO transfer_events (transfer_id, version, path, reason, at) VALUES (7, 1, 'INIT', '', 0)",
    ),
    (
        Constraint::AssetSymbol,
        "INSERT INTO assets (symbol, precision, status, internal_transfer_enabled,
        min_transfer_amount, max_transfer_amount, daily_transfer_amount, created_at, updated_at)
        SELECT symbol, precision, status, internal_transfer_enabled, 1, 1, 1, 0, 0 FROM assets",
    ),
    (Constraint::AssetLimits, "UPDATE assets SET min_transfer_amount = max_transfer_amount + 1"),
    (
        Constraint::ChainName,
        "INSERT INTO chains (name, kind, network, confirmations, status, created_at, updated_at)
        SELECT name, kind, network, confirmations, status, 0, 0 FROM chains",
    ),
    (
        Constraint::AssetOnChainPair,
        "INSERT INTO asset_on_chain (asset_id, chain_id, decimals, min_deposit_amount,
        status, created_at, updated_at) SELECT asset_id, chain_id, 18, 1, 'active', 0, 0 FROM asset_on_chain",
    ),
];

#[test]
fn every_rule_is_tried() {
    let tried: Vec<Constraint> = BREAKING
        .iter()
        .map(|(constraint, _)| *constraint)
        .chain(crate::utxo_rules::tried())
        .chain(crate::wallets::tried())
        .chain(crate::withdrawals::tried())
        .collect();
    let forgotten: Vec<_> = Constraint::ALL.iter().filter(|constraint| !tried.contains(constraint)).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

async fn break_rule(db: &TestDb, bank: &Bank, statement: &str) -> StoreError {
    let statement = statement.replace("USER", &bank.users[0].to_string()).replace("ASSET", &bank.usdt.0.to_string());
    db.by_hand(&statement).await.expect_err(&statement).into()
}

db_test! {
    async fn each_rule_is_refused_by_its_name(db: TestDb) {
        let bank = Bank::open(db, 1, 100).await;
        let operations = [bank.hold("h", 0, 1), bank.release("r", "h", 0, 1)];
        assert_all_applied(&db.post(&operations, NOW).await.unwrap());
        let freeze = store::ledger::StatusChange {
            key: key("f"),
            account: bank.users[0],
            status: domain::AccountStatus::Frozen,
            actor: "ana".into(),
            reason: "test".into(),
        };
        db.set_status(&[freeze], NOW).await.unwrap();
        let transfer = "INSERT INTO transfers (id, user_id, asset_id, amount, direction, funding_account, state,
            client_order_id, tries, due_at, version, created_at, updated_at)
            VALUES (7, 1, ASSET, 1, 1, USER, 0, 'o', 0, 0, 1, 0, 0);
            INSERT INTO transfer_events (transfer_id, version, path, reason, at) VALUES (7, 1, 'INIT', '', 0)";
        let transfer = transfer.replace("USER", &bank.users[0].to_string()).replace("ASSET", &bank.usdt.0.to_string());
        db.by_hand(&transfer).await.unwrap();
        for (constraint, statement) in BREAKING {
            let error = break_rule(db, &bank, statement).await;
            assert!(matches!(error, StoreError::Violates(found) if found == constraint), "{constraint:?}: {error:?}");
        }
        assert_clean(db).await;
    }
}
