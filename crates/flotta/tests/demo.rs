//! The demo, whole and fast: the first thing that anybody tries has to work.

use std::process::Command;

#[test]
fn the_demo_upgrades_the_whole_fleet_and_lets_the_one_failure_pass() {
    let folder = tempfile::tempdir().expect("folder");
    let demo = |number: u32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flotta"));
        command.args(["demo", "--speed", "3000", "--data"]).arg(folder.path());
        let output = command.env("FLOTTA_SERVER", "http://nobody.invalid").output().expect("run");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "run {number}:\n{out}\n{err}");
        out.into_owned()
    };
    let first = demo(1);
    for part in ["26 clusters in 3 regions", "run to-1-33-3 Completed", "18/18    1 failed", "(PodDrainFailure)"] {
        assert!(first.contains(part), "{part} in\n{first}");
    }
    let again = demo(2);
    let summary = again.split("run to-1-33-3-2 Completed").nth(1).expect("a second run, of what is left");
    assert!(summary.contains("25 skipped") || summary.contains("skipped (25)"), "{summary}");
}
