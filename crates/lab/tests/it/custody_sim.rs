//! The simulator of payments that leave, in short; `bursar sim custody` runs it at length.

use lab::sim::custody::{Report, SimError, run};

fn simulate(seed: u64, jobs: u64) -> Result<Report, SimError> {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(run(seed, jobs, folder.path(), &mut |_| {}))
}

#[test]
fn no_job_is_paid_twice_and_none_is_stranded() {
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let runs: Vec<_> = (1..=4).map(|seed| scope.spawn(move || (seed, simulate(seed, 5_000)))).collect();
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
fn a_run_of_payments_replays_exactly() {
    let first = simulate(77, 150).unwrap();
    assert_eq!(first, simulate(77, 150).unwrap());
    assert_ne!(first.hash, simulate(78, 150).unwrap().hash);
}
