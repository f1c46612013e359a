//! The engines' RTL against the clocked model, frame by frame: `gw_compressor` and
//! `gw_decompressor` in Verilator.

mod support;

use gradwire::codec::Params;
use gradwire_gateware::Batch;
use gradwire_gateware_model::Layout;
use support::{Case, Engine, PAUSES, Random, captured, compare, compress, recorded, verify};

/// Random frames, layouts and parameters, hostile groups, pauses at both sides, noise wherever
/// nothing is promised.
fn agrees(engine: Engine) {
    let mut simulation = engine.design().start().unwrap();
    let (frames, refused) = verify(&mut simulation, engine, 1, 300_000, &recorded()).unwrap();
    println!("{engine:?}: {frames} frames, {refused} of them refused by both");
    // Of the frames for the decompressor, many are damaged, and more are whole.
    let expected = if engine == Engine::Compressor { 0..=0 } else { frames / 10..=frames / 2 };
    assert!(expected.contains(&refused), "{refused} of {frames} frames refused");
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn the_compressor_makes_the_models_bytes() {
    agrees(Engine::Compressor);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn the_decompressor_makes_the_models_bytes() {
    agrees(Engine::Decompressor);
}

/// Resets in the middle of frames: what is inside is lost, whatever it was, and what follows is
/// right.
#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn a_reset_in_the_middle_of_a_frame_leaves_nothing_behind() {
    for engine in Engine::BOTH {
        let mut simulation = engine.design().start().unwrap();
        let mut random = Random::new(2);
        for _ in 0..150 {
            let mut cases =
                |count| -> Vec<Case> { (0..count).map(|_| engine.case(&mut random, &[])).collect() };
            let (lost, cases) = (cases(8), cases(4));
            let frames = |cases: &[Case]| cases.iter().map(Case::frame).collect();
            let pauses = PAUSES[random.below(PAUSES.len())];
            let reset_at = Some(1 + random.below(400) as u64);
            let batch = Batch { pauses, reset_at, noise: true, ..Batch::of(frames(&lost)) };
            let before = simulation.run(&batch).unwrap();
            assert_eq!(before.broken, "");
            // What came out before the reset is right.
            compare(engine, &lost[..before.frames.len()], &before).unwrap();
            compare(engine, &cases, &simulation.run(&Batch::of(frames(&cases))).unwrap()).unwrap();
        }
    }
}

/// The frames of both captures in the repository that carry values, both ways: the bytes, and what
/// they cost.
#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn captured_frames_pass_a_beat_a_clock() {
    for engine in Engine::BOTH {
        let mut simulation = engine.design().start().unwrap();
        for capture in ["ring4_loss", "ring4_mtu1450"] {
            let mut cases = captured(capture);
            assert!(cases.len() > 200, "{capture}: {} frames", cases.len());
            let beats: usize = cases.iter().map(|case| case.bytes.len().div_ceil(32)).sum();
            if engine == Engine::Decompressor {
                cases.iter_mut().for_each(|case| case.bytes = compress(case));
            }
            let outcome = simulation.run(&Batch::of(cases.iter().map(Case::frame).collect())).unwrap();
            assert_eq!(compare(engine, &cases, &outcome), Ok(0));
            let clocks = outcome.frames.last().unwrap().last - outcome.sent[0].first;
            // One clock for each beat of the uncompressed frames, and two between frames.
            let frames = cases.len();
            println!("{engine:?}, {capture}: {frames} frames of {beats} beats, {clocks} clocks");
            assert!(clocks as usize <= beats + 2 * frames + 50, "{clocks} clocks for {beats} beats");
        }
    }
}

/// The latency in each module's header is that of a frame through an empty engine.
#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn latency_is_what_the_modules_say() {
    for (engine, clocks) in [(Engine::Compressor, "23"), (Engine::Decompressor, "33")] {
        // Two beats of header: the first is out before values could delay it.
        let bytes = vec![0x28; 1514];
        let layout = Layout { bypass: 0, values: 0 };
        let case = Case { bytes, layout, params: Params::DEFAULT, empty_last: false };
        let outcome = engine.design().start().unwrap().run(&Batch::of(vec![case.frame()])).unwrap();
        let took = outcome.frames[0].first - outcome.sent[0].first;
        let source = match engine {
            Engine::Compressor => include_str!("../rtl/gw_compressor.sv"),
            Engine::Decompressor => include_str!("../rtl/gw_decompressor.sv"),
        };
        assert_eq!(took.to_string(), clocks);
        assert!(source.contains(&format!("// Latency: {clocks} clocks")), "{engine:?}");
    }
    assert!(include_str!("../README.md").contains("to the first beat out | 23 | 33 |"));
}
