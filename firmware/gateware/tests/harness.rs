//! The driver itself, on a design that does nothing: what goes in comes out, pauses are made,
//! resets lose frames.

use gradwire_gateware::{Batch, Design, Frame, Pauses};

fn frames(count: usize) -> Vec<Frame> {
    let frame = |n: usize| Frame {
        port: (n % 2) as u8,
        user: n as u64 + 7,
        bytes: (0..n * 5 % 200).map(|at| (n + at) as u8).collect(),
        empty_last: false,
    };
    (0..count).map(frame).collect()
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn frames_go_through_both_streams() {
    let mut simulation = Design::new("pass_through").start().unwrap();
    let pauses = Pauses { source: 60, source_longest: 3, sink: 90, sink_longest: 9 };
    let mut clocks = Vec::new();
    for pauses in [Pauses::NONE, pauses] {
        let batch = Batch { pauses, ..Batch::of(frames(200)) };
        let outcome = simulation.run(&batch).unwrap();
        assert_eq!(outcome.broken, "");
        for port in 0..2 {
            let sent: Vec<_> = batch.frames.iter().filter(|frame| frame.port == port).collect();
            let got: Vec<_> = outcome.frames.iter().filter(|frame| frame.port == port).collect();
            assert_eq!(sent.len(), got.len());
            for (sent, got) in sent.iter().zip(got) {
                assert_eq!((sent.user, &sent.bytes), (got.user, &got.bytes));
            }
        }
        assert!(outcome.sent.iter().all(|times| times.first <= times.last && times.last < outcome.clocks));
        assert_eq!(outcome.waits > 0, pauses != Pauses::NONE);
        clocks.push(outcome.clocks);
    }
    assert!(clocks[1] > clocks[0]);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn a_reset_loses_what_is_under_way() {
    let mut simulation = Design::new("pass_through").start().unwrap();
    let batch = Batch { reset_at: Some(40), ..Batch::of(frames(200)) };
    let outcome = simulation.run(&batch).unwrap();
    assert_eq!(outcome.broken, "");
    assert!(!outcome.frames.is_empty() && outcome.frames.len() < 200);
    let outcome = simulation.run(&Batch::of(frames(3))).unwrap();
    assert_eq!(outcome.frames.len(), 3);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn registers_keep_what_is_written_and_silence_is_an_error() {
    let mut simulation = Design::new("pass_through").start().unwrap();
    simulation.write(4, 0x1234_5678).unwrap();
    simulation.write(8, 1).unwrap();
    assert_eq!(simulation.read(4).unwrap(), 0x1234_5678);
    simulation.reset().unwrap();
    assert_eq!(simulation.read(4).unwrap(), 0);
    let silent = simulation.read(0x100).unwrap_err().to_string();
    assert!(silent.contains("0x0100"), "{silent}");
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn errors_of_verilator_are_reported() {
    let refused = Design::new("no_such_design").start().unwrap_err().to_string();
    assert!(refused.contains("no_such_design"), "{refused}");
}
