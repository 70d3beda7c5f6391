//! Deposits under the simulator: whatever reorganises, lies, dies or comes late, the books equal the chains.

use lab::sim::deposits::{Report, SimError, run};

fn simulate(seed: u64, blocks: u64) -> Result<Report, SimError> {
    // Memory as a disk where there is one: each commit is synced.
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(seed, blocks, folder.path(), &mut |_| {}))
}

#[test]
fn what_is_credited_is_what_the_chains_have() {
    let reports: Vec<Report> = std::thread::scope(|scope| {
        // A block that a quorum no longer has when it is to be proven is rare: with fewer seeds it may not happen.
        let runs: Vec<_> = (1..=8).map(|seed| scope.spawn(move || (seed, simulate(seed, 1_500)))).collect();
        let results = runs.into_iter().map(|run| run.join().unwrap());
        results.map(|(seed, result)| result.unwrap_or_else(|error| panic!("seed {seed}: {error}"))).collect()
    });
    // Each thing that can go wrong has gone wrong, and each end was reached.
    let counters = |report: &Report| [report.happened(), report.faults()].concat();
    for (at, (name, _)) in counters(&reports[0]).into_iter().enumerate() {
        let times: u64 = reports.iter().map(|report| counters(report)[at].1).sum();
        assert!(times > 0, "{name} never happened");
    }
}

#[test]
fn a_seed_replays_exactly() {
    let first = simulate(77, 300).unwrap();
    assert_eq!(first, simulate(77, 300).unwrap());
    assert_ne!(first.hash, simulate(78, 300).unwrap().hash);
}
