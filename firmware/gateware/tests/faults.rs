//! Whether the verifier of the engines would notice a fault: each is planted, and has to be found.

mod support;

use support::{Engine, recorded, verify};

/// Each fault by its name in the sources, the engine that it breaks, and what it does.
const FAULTS: [(Engine, &str, &str); 13] = [
    (Engine::Compressor, "fault_credits", "a FIFO overflows"),
    (Engine::Compressor, "fault_class_border", "values just below 2^x count as raw"),
    (Engine::Compressor, "fault_sign", "byte vectors lose their sign"),
    (Engine::Compressor, "fault_pair_shift", "pairs of eight bytes are shifted by none"),
    (Engine::Compressor, "fault_frame_end", "a value of three bytes at a frame's end is coded"),
    (Engine::Compressor, "fault_twice", "a group that completes two beats loses one"),
    (Engine::Compressor, "fault_tags_cut", "tags that two beats share lose a byte"),
    (
        Engine::Compressor,
        "fault_frame_border",
        "a frame of 31 bytes more than whole beats runs into the next",
    ),
    (Engine::Decompressor, "fault_magnitude_zero", "a magnitude of zero is a value"),
    (Engine::Decompressor, "fault_absent_lane", "one tag of an absent lane is not seen"),
    (Engine::Decompressor, "fault_truncated", "a group that lacks one byte is whole"),
    (Engine::Decompressor, "fault_skip", "a group over three cells loses its way"),
    (Engine::Decompressor, "fault_split", "lanes behind a half vector are a byte off"),
];

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn every_planted_fault_is_found() {
    let recorded = recorded();
    let missed: Vec<&str> = FAULTS
        .iter()
        .filter(|(engine, name, what)| {
            let mut simulation = engine.design().plant(name).start().unwrap();
            let found = verify(&mut simulation, *engine, 3, 30_000, &recorded).err();
            println!("{name} ({what}): {}", found.as_deref().unwrap_or("NOT FOUND"));
            found.is_none()
        })
        .map(|(_, name, _)| *name)
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Every fault in the sources has a test that plants it.
#[test]
fn every_fault_in_the_sources_is_planted() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = |name: &str| -> String {
        let files = std::fs::read_dir(folder.join(name)).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap()).collect()
    };
    let (sources, tests) = (texts("rtl"), texts("tests"));
    let faults: Vec<&str> =
        sources.split("$test$plusargs(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(FAULTS.iter().all(|(_, name, _)| faults.contains(name)));
    for fault in faults {
        assert!(tests.contains(&format!("\"{fault}\"")), "no test plants {fault}");
    }
}
