//! What the nodes of a chain allow, by what each of them says. Pure: it takes what was heard and gives sentences.

use crate::chains::ProofBy;

/// What one node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    /// `None`: it serves the chain's network. Else what it serves.
    pub other_network: Option<String>,
    /// Why it did not answer.
    pub failure: Option<String>,
    pub head: Option<u64>,
    /// How far it is behind the highest of those that answered.
    pub lag: Option<u64>,
    /// Whether it has the block that a quorum has, at a height that all of them have reached. `None`: there is no quorum.
    pub agrees: Option<bool>,
    /// What it can do that not every node can; `None`: it could not be found out.
    pub features: Vec<(String, Option<bool>)>,
    pub latency_ms: Option<u64>,
}

impl NodeView {
    fn feature(&self, name: &str) -> Option<bool> {
        self.features.iter().find(|(known, _)| known == name).and_then(|(_, there)| *there)
    }

    fn is_good(&self) -> bool {
        self.failure.is_none() && self.other_network.is_none() && self.agrees == Some(true)
    }

    /// The same in a word.
    pub fn state(&self, lag_blocks: u64) -> &'static str {
        if self.failure.is_some() {
            "no answer"
        } else if self.other_network.is_some() {
            "wrong network"
        } else if self.agrees == Some(false) {
            "disagrees"
        } else if self.lag.is_some_and(|lag| lag > lag_blocks) {
            "lags"
        } else if self.agrees.is_none() {
            "unsure"
        } else {
            "good"
        }
    }
}

/// What the chain is made for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub quorum: usize,
    pub proof: ProofBy,
    pub lag_blocks: u64,
    /// Coin that contracts move is looked for.
    pub traces: bool,
    /// A token is listed there: nobody is credited with one before the address was looked at.
    pub tokens: bool,
}

/// The names of features that judgement asks for.
pub const RECEIPTS: &str = "receipts by block";
pub const TRACES: &str = "traces";
pub const INTERNAL: &str = "internal transactions";
pub const BALANCES: &str = "balances by block hash";
pub const SOLIDIFIED: &str = "solidified state";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether anything can be credited.
    pub credits: bool,
    /// The code of what keeps it from that.
    pub code: Option<&'static str>,
    /// What a person should know, the most important first.
    pub words: Vec<String>,
}

/// What these nodes allow.
pub fn judge(wanted: Wanted, nodes: &[NodeView]) -> Verdict {
    let all = nodes.len();
    let good: Vec<&NodeView> = nodes.iter().filter(|node| node.is_good()).collect();
    let mut words = Vec::new();
    let strangers = nodes.iter().filter(|node| node.other_network.is_some()).count();
    let code = if strangers > 0 {
        words.push(format!("{strangers} of {all} serve another network: nothing is credited until they are taken out"));
        Some("CHAIN_WRONG_NETWORK")
    } else if good.len() < wanted.quorum {
        words.push(format!(
            "no quorum: {} of {all} agree, {} are needed: nothing is credited",
            good.len(),
            wanted.quorum
        ));
        Some(if nodes.iter().all(|node| node.failure.is_some()) { "CHAIN_UNREACHABLE" } else { "CHAIN_NO_QUORUM" })
    } else if let Some(problem) = no_proof(wanted, &good) {
        words.push(problem);
        Some("CHAIN_NO_PROOF")
    } else {
        words.push(format!("{} of {all} agree: deposits are credited", good.len()));
        None
    };
    if all == 1 {
        words.push("one node alone: whatever it says is believed".to_owned());
    } else if code.is_none() && good.len() == wanted.quorum {
        words.push("all that agree are needed: one more that fails stops the crediting".to_owned());
    }
    let without = |feature: &str| -> Vec<&str> {
        good.iter().filter(|node| node.feature(feature) == Some(false)).map(|node| node.name.as_str()).collect()
    };
    let slow = without(RECEIPTS);
    if code.is_none() && wanted.proof == ProofBy::Roots && !slow.is_empty() {
        words.push(format!(
            "no receipts by block: {}: proof by roots asks for each receipt there, which is slow",
            slow.join(", ")
        ));
    }
    let blind = [without(TRACES), without(INTERNAL)].concat();
    if wanted.traces && !blind.is_empty() {
        words.push(format!("no traces: {}: coin that contracts move is not found there", blind.join(", ")));
    }
    let blind = [without(BALANCES), without(SOLIDIFIED)].concat();
    if wanted.tokens && !blind.is_empty() {
        let too_few = good.len() - blind.len() < wanted.quorum;
        let what =
            if too_few { "no payment of a token is credited" } else { "payments of tokens depend on the others" };
        words.push(format!("no balances at a block: {}: {what}", blind.join(", ")));
    }
    let late: Vec<&str> =
        nodes.iter().filter(|node| node.state(wanted.lag_blocks) == "lags").map(|node| node.name.as_str()).collect();
    if !late.is_empty() {
        words.push(format!("behind the others: {}", late.join(", ")));
    }
    Verdict { credits: code.is_none(), code, words }
}

/// Why no block can be proven, although enough nodes agree on the headers.
fn no_proof(wanted: Wanted, good: &[&NodeView]) -> Option<String> {
    if wanted.proof == ProofBy::SecondNode && good.len() < 2 {
        return Some(
            "no second node: a block is proven when two have the same, and one agrees: nothing is credited".to_owned(),
        );
    }
    let blind = |node: &NodeView| [TRACES, INTERNAL].iter().any(|feature| node.feature(feature) == Some(false));
    let tracers = good.iter().filter(|node| !blind(node)).count();
    if wanted.traces && tracers < wanted.quorum {
        let message = format!(
            "{tracers} can trace, {} are needed for coin that contracts move: nothing is credited",
            wanted.quorum
        );
        return Some(message);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeView {
        NodeView {
            name: name.to_owned(),
            other_network: None,
            failure: None,
            head: Some(100),
            lag: Some(0),
            agrees: Some(true),
            features: vec![(RECEIPTS.to_owned(), Some(true)), (TRACES.to_owned(), Some(true))],
            latency_ms: Some(3),
        }
    }

    const ROOTS: Wanted = Wanted { quorum: 2, proof: ProofBy::Roots, lag_blocks: 10, traces: false, tokens: true };

    fn silent(name: &str) -> NodeView {
        NodeView { failure: Some("it did not answer in time".to_owned()), agrees: None, head: None, ..node(name) }
    }

    #[track_caller]
    fn check(wanted: Wanted, nodes: &[NodeView], code: Option<&str>, first: &str) {
        let verdict = judge(wanted, nodes);
        assert_eq!((verdict.code, verdict.words[0].as_str()), (code, first), "{verdict:?}");
        assert_eq!(verdict.credits, code.is_none());
    }

    #[test]
    fn what_can_be_credited_depends_on_who_agrees() {
        let three = [node("a"), node("b"), node("c")];
        check(ROOTS, &three, None, "3 of 3 agree: deposits are credited");
        check(ROOTS, &[node("a"), node("b"), silent("c")], None, "2 of 3 agree: deposits are credited");
        let words = judge(ROOTS, &[node("a"), node("b"), silent("c")]).words;
        assert!(words[1].contains("one more that fails stops"), "{words:?}");
        let liar = NodeView { agrees: Some(false), ..node("c") };
        check(
            ROOTS,
            &[node("a"), silent("b"), liar],
            Some("CHAIN_NO_QUORUM"),
            "no quorum: 1 of 3 agree, 2 are needed: nothing is credited",
        );
        check(
            ROOTS,
            &[silent("a"), silent("b")],
            Some("CHAIN_UNREACHABLE"),
            "no quorum: 0 of 2 agree, 2 are needed: nothing is credited",
        );
        let stranger = NodeView { other_network: Some("chain 97".to_owned()), ..node("c") };
        check(
            ROOTS,
            &[node("a"), node("b"), stranger],
            Some("CHAIN_WRONG_NETWORK"),
            "1 of 3 serve another network: nothing is credited until they are taken out",
        );
    }

    #[test]
    fn what_proves_a_block_must_be_there() {
        let second = Wanted { quorum: 1, proof: ProofBy::SecondNode, ..ROOTS };
        check(
            second,
            &[node("a")],
            Some("CHAIN_NO_PROOF"),
            "no second node: a block is proven when two have the same, and one agrees: nothing is credited",
        );
        let plain = |name: &str| NodeView {
            features: vec![(RECEIPTS.to_owned(), Some(false)), (TRACES.to_owned(), Some(false))],
            ..node(name)
        };
        let words = judge(ROOTS, &[plain("a"), node("b"), node("c")]).words;
        assert_eq!(words[1], "no receipts by block: a: proof by roots asks for each receipt there, which is slow");
        let traced = Wanted { traces: true, ..ROOTS };
        check(
            traced,
            &[plain("a"), plain("b"), node("c")],
            Some("CHAIN_NO_PROOF"),
            "1 can trace, 2 are needed for coin that contracts move: nothing is credited",
        );
        let forgetful = |name: &str| NodeView { features: vec![(BALANCES.to_owned(), Some(false))], ..node(name) };
        let words = judge(ROOTS, &[forgetful("a"), node("b"), node("c")]).words;
        assert_eq!(words[1], "no balances at a block: a: payments of tokens depend on the others");
        let words = judge(ROOTS, &[forgetful("a"), forgetful("b"), node("c")]).words;
        assert_eq!(words[1], "no balances at a block: a, b: no payment of a token is credited");
        let coins = Wanted { tokens: false, ..ROOTS };
        assert_eq!(judge(coins, &[forgetful("a"), node("b"), node("c")]).words.len(), 1);
        let late = NodeView { lag: Some(11), ..node("c") };
        let words = judge(ROOTS, &[node("a"), node("b"), late.clone()]).words;
        assert_eq!((words.last().map(String::as_str), late.state(10)), (Some("behind the others: c"), "lags"));
    }
}
