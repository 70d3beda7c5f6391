//! Accounts, resources, prices, the node, and the endpoints that contradict.

use super::TronDevnet;
use super::build::FIXED_FEES;
use super::calls::{Call, object};
use super::check::prefixed;
use super::execute::{FREE_BYTES, Rules, free_used};
use super::proto::Header;
use super::refusal::Failed;
use super::render::{self, Object};
use super::state::{Owner, Slot, account_in};
use super::transaction::Id;
use crate::View;

type Reply = Result<String, Failed>;

/// Which kinds of contract the default active permission may sign, as the main network has it.
const OPERATIONS: &str = "7fff1fc0033ec30f000000000000000000000000000000000000000000000000";

impl TronDevnet {
    pub(super) fn get_account(&self, call: &Call<'_>) -> Reply {
        let owner = call.owner("address")?;
        let Some(account) = account_in(self.cell_at(call.top, Slot::Account(owner))) else {
            return Ok("{}".to_owned());
        };
        Ok(object(|o| {
            o.address("address", &prefixed(&owner), call.visible)
                .number("balance", account.balance)
                .number("create_time", account.created_ms)
                .number("latest_opration_time", account.last_operation_ms)
                .number("free_net_usage", account.free_used)
                .number("latest_consume_free_time", account.free_slot)
                .number("net_window_size", 28_800_000)
                .raw("net_window_optimized", "true");
            if account.is_contract {
                o.text("type", "Contract");
            }
            let mut resource = Object::open(o.key("account_resource"));
            resource.number("energy_window_size", 28_800_000).raw("energy_window_optimized", "true");
            resource.close();
            permission(Object::open(o.key("owner_permission")), &owner, "owner", call.visible);
            render::list(o.key("active_permission"), [owner], |out, owner| {
                let mut active = Object::open(out);
                active.text("type", "Active").number("id", 2).text("operations", OPERATIONS);
                permission(active, &owner, "active", call.visible);
            });
            o.raw("frozenV2", "[{},{\"type\":\"ENERGY\"},{\"type\":\"TRON_POWER\"}]").raw("asset_optimized", "true")
        }))
    }

    /// Nobody has staked, so that all there is is the free bandwidth.
    pub(super) fn get_resources(&self, call: &Call<'_>) -> Reply {
        let owner = call.owner("address")?;
        let Some(account) = account_in(self.cell_at(call.top, Slot::Account(owner))) else {
            return Ok("{}".to_owned());
        };
        let slot = self.block(call.top).map_or(0, |block| block.header.timestamp / 3_000);
        Ok(object(|o| {
            o.number("freeNetUsed", free_used(&account, slot))
                .number("freeNetLimit", FREE_BYTES)
                .number("TotalNetLimit", 43_200_000_000)
                .number("TotalNetWeight", 26_000_000_000)
                .number("TotalEnergyLimit", 180_000_000_000)
                .number("TotalEnergyWeight", 19_000_000_000)
        }))
    }

    pub(super) fn chain_parameters(&self) -> String {
        let prices = [
            ("getMaintenanceTimeInterval", 21_600_000),
            ("getTransactionFee", self.rules.bandwidth_price),
            ("getEnergyFee", self.rules.energy_price),
            ("getFreeNetLimit", FREE_BYTES),
            ("getMultiSignFee", 1_000_000),
            ("getTotalEnergyCurrentLimit", 180_000_000_000),
            ("getTotalNetLimit", 43_200_000_000),
            ("getAllowTvmTransferTrc10", 1),
            ("getForbidTransferToContract", 1),
            ("getAllowDynamicEnergy", 0),
        ];
        object(|o| {
            render::list(o.key("chainParameter"), prices.into_iter().chain(FIXED_FEES), |out, (key, value)| {
                let mut parameter = Object::open(out);
                parameter.text("key", key).number("value", value);
                parameter.close();
            });
            o
        })
    }

    /// `since:price`, oldest first.
    pub(super) fn prices_json(&self, price: impl Fn(&Rules) -> i64) -> String {
        let prices: Vec<_> = self.prices.iter().map(|(since, rules)| format!("{since}:{}", price(rules))).collect();
        object(|o| o.text("prices", &prices.join(",")))
    }

    pub(super) fn node_info(&self, call: &Call<'_>) -> String {
        let tip = if call.solid { call.top + self.settings.solid_depth } else { call.top };
        let solid = tip.saturating_sub(self.settings.solid_depth);
        object(|o| {
            o.number("beginSyncNum", i64::try_from(tip).unwrap_or(i64::MAX))
                .text("block", &self.shown_name(call.view, tip))
                .text("solidityBlock", &self.shown_name(call.view, solid))
                .raw("currentConnectCount", "27")
                .raw("activeConnectCount", "27")
                .raw("passiveConnectCount", "0")
                .raw("totalFlow", "0")
                .raw("peerList", "[]")
                .raw("configNodeInfo", "{\"codeVersion\":\"4.8.0\",\"p2pVersion\":\"11111\",\"supportConstant\":true}")
        })
    }

    /// Makes the other chain that an endpoint shows from some height on, as far as it is missing. All of it fits:
    /// parents, ids and signatures.
    pub(super) fn extend_contradiction(&mut self, view: &View) {
        let Some(from) = view.contradict else { return };
        let mut others = self.contradictions.remove(&from).unwrap_or_default();
        let first = usize::try_from(from).unwrap_or(usize::MAX);
        for block in self.blocks.iter().skip(first.saturating_add(others.len())) {
            let parent = others.last().map(|(id, ..)| *id);
            others.push(block.elsewhere(parent, block.height() + self.branch + 13));
        }
        self.contradictions.insert(from, others);
    }

    pub(super) fn contradiction(&self, view: &View, height: u64) -> Option<&(Id, Header, [u8; 65])> {
        let from = view.contradict?;
        let place = usize::try_from(height.checked_sub(from)?).ok()?;
        self.contradictions.get(&from)?.get(place)
    }
}

fn permission(mut object: Object<'_>, owner: &Owner, name: &str, visible: bool) {
    object.text("permission_name", name).number("threshold", 1);
    render::list(object.key("keys"), [owner], |out, owner| {
        let mut key = Object::open(out);
        key.address("address", &prefixed(owner), visible).number("weight", 1);
        key.close();
    });
    object.close();
}
