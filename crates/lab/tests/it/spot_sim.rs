//! The spot engine on a disk that lies, beside the plain model.

use lab::sim::spot::Simulation;

#[test]
fn the_engine_agrees_with_the_model_through_crashes_and_a_lying_disk() {
    let (mut torn, mut kept) = (0, 0);
    for seed in 1..=12 {
        let simulation = Simulation::new(seed).expect("a new log");
        let report = simulation.run(40_000, &mut |_| {}).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(report.recoveries > 10 && report.failed_batches > 5 && report.snapshots > 1, "{report:?}");
        assert!(report.applied > 2_000 && report.refused > 1_000 && report.replays > 500, "{report:?}");
        torn += report.torn_tails;
        kept += report.unacknowledged_kept;
    }
    assert!(torn > 5 && kept > 5, "{torn} torn tails, {kept} unacknowledged batches kept");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || Simulation::new(99).expect("a new log").run(3_000, &mut |_| {}).expect("agrees");
    assert_eq!(run(), run());
}
