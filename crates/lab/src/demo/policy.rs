//! What the demo's signer allows: so much by itself, and above that what bob and carol have agreed to.

use super::chains::Net;
use super::ground::{group, groups};

/// What leaves without anybody, and up to where one person is enough; in raw units of what customers withdraw. The treasury file's policy for
/// withdrawals says the same in whole coins.
pub const fn limits(net: Net) -> [&'static str; 3] {
    match net {
        Net::Bitcoin => ["10000000", "50000000", "100000000"],
        Net::Bsc => ["500000000000000000000", "1500000000000000000000", "100000000000000000000000"],
        Net::Tron => ["500000000", "1500000000", "100000000000"],
    }
}

/// More than anything here costs or has.
const MUCH: &str = "1000000000000000000000000";

fn chain(net: Net) -> String {
    match net {
        Net::Bitcoin => "{ name = \"bitcoin\", kind = \"bitcoin\", network = \"regtest\" }".to_owned(),
        Net::Bsc => "{ name = \"bsc\", kind = \"evm\", chain_id = 56 }".to_owned(),
        Net::Tron => "{ name = \"tron\", kind = \"tron\" }".to_owned(),
    }
}

fn coins(net: Net, purpose: &str) -> String {
    let paid_in = match net {
        Net::Bitcoin => "native".to_owned(),
        Net::Bsc => devnet::evm::TETHER.to_string(),
        Net::Tron => tx::Address::Tron(devnet::tron::TOKEN).to_string(),
    };
    match purpose {
        "gas" => format!("{{ coin = \"native\", payment = \"{MUCH}\", hour = \"{MUCH}\", day = \"{MUCH}\" }}"),
        "hot" => {
            let [free, one, two] = limits(net);
            let of = "of = [\"bob\", \"carol\"]";
            format!(
                "{{ coin = \"{paid_in}\", payment = \"{free}\", hour = \"{MUCH}\", day = \"{MUCH}\", step = [{{ up_to = \
                 \"{one}\", approvals = 1, {of} }}, {{ up_to = \"{two}\", approvals = 2, {of} }}] }}"
            )
        }
        _ if net == Net::Bitcoin => "{ coin = \"native\" }".to_owned(),
        _ => format!("{{ coin = \"native\" }}, {{ coin = \"{paid_in}\" }}"),
    }
}

/// The same in the treasury file: what may be withdrawn where, and who may agree. In whole coins.
pub fn people(people: &[(&str, &str, String)]) -> String {
    let mut text = String::new();
    for net in Net::ALL {
        let (asset, chain) = (net.paid_in(), net.name());
        let [min, max, fee, auto, two] = match net {
            Net::Bitcoin => ["0.001", "1", "0.0002", "0.1", "0.5"],
            Net::Bsc | Net::Tron => ["10", "100000", "1", "500", "1500"],
        };
        text += &format!(
            "\n[[withdrawals]]\nasset = \"{asset}\"\nchain = \"{chain}\"\nmin = \"{min}\"\nmax = \"{max}\"\nfee = \
             \"{fee}\"\nauto_approve = \"{auto}\"\ntwo_above = \"{two}\"\nmany_above = \"{max}\"\n"
        );
    }
    for (person, key, public) in people {
        text += &format!(
            "\n[[operator]]\nname = \"{person}\"\nrole = \"approver\"\nkeys.{key} = {{ ed25519 = \"{public}\" }}\n"
        );
    }
    text
}

/// The policy's file. `people`: who approves, each with the name and the public half of a key.
pub fn text(administrator: &str, people: &[(&str, &str, String)]) -> String {
    let chains: Vec<String> = Net::ALL.into_iter().map(chain).collect();
    let approver = |(person, key, public): &(&str, &str, String)| {
        format!("{{ key = \"{key}\", person = \"{person}\", ed25519 = \"{public}\" }}")
    };
    let approvers: Vec<String> = people.iter().map(approver).collect();
    let mut text = format!(
        "signer = \"demo\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 100\ntron_margin_minutes = 1\n\
         administrators = {{ needed = 1, keys = {{ ada = \"{administrator}\" }} }}\napprover = [{}]\nchain = [{}]\n",
        approvers.join(", "),
        chains.join(", ")
    );
    for net in Net::ALL {
        for (_, purpose) in groups(net) {
            let highest = if purpose == "deposit" { "" } else { "highest_index = 0\n" };
            text += &format!(
                "\n[[group]]\nid = \"{}\"\nchain = \"{}\"\nrole = \"{purpose}\"\nmost_fee = \"{MUCH}\"\nmost_fee_day = \
                 \"{MUCH}\"\n{highest}coin = [{}]\n",
                group(net, purpose),
                net.name(),
                coins(net, purpose)
            );
        }
    }
    text
}
