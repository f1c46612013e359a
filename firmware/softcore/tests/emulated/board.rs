//! The board outside the crate, `firmware/board`, in QEMU.

use gradwire::forward::Port;
use gradwire::rules::Rule;
use gradwire_testbench::replay::Setup;
use gradwire_testbench::softcore::Pair;
use gradwire_testbench::softcore::machine::{Machine, Options, PATIENCE};

use super::{image, recording};

fn example() -> Options {
    Options::new(image("build", "gradwire-board-example"))
}

#[test]
fn a_board_outside_the_crate_forwards_and_answers() {
    let mut core = Machine::start(&example()).unwrap();
    assert!(core.command("help").unwrap().contains("counters"));
    core.send(Port::Host, &[7; 100]).unwrap();
    assert_eq!(core.receive(Port::Network, PATIENCE).unwrap(), Some(vec![7; 100]));
}

#[test]
fn a_board_outside_the_crate_compresses() {
    let mut pair = Pair::start(&example(), &Rule::DEFAULT).unwrap();
    let (report, _) = pair.replay(&Setup::new(Rule::DEFAULT), &recording("ring4_mtu1450"), || ()).unwrap();
    assert!(report.ok && report.compressed > 100, "{:#?}", report.failures);
}
