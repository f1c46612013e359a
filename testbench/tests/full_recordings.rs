//! All recordings, most of which are too large for the project. Run as the `ignore` reasons say.

mod support;

use std::fs;
use std::path::PathBuf;

use gradwire::codec::Split;
use gradwire::kernels::Kernel;
use gradwire::rules::{Framing, Rule};
use gradwire_testbench::cmd::args::codec::Codec;
use gradwire_testbench::cmd::check::{DEFAULT_BOUNDS, Scale, measure_all};
use gradwire_testbench::input::recordings::load;
use support::{capture, check_streams, files, full_recordings, published, replayed, replayed_with, sha256};

/// The recordings' folder, and what it says of its files.
fn manifest() -> (PathBuf, serde_json::Value) {
    let folder = full_recordings();
    let manifest = serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    (folder, manifest)
}

#[test]
#[ignore = "needs the full recordings: GRADWIRE_RECORDINGS=<dir> cargo test --release -- --ignored"]
fn files_are_those_of_the_manifest() {
    let (folder, manifest) = manifest();
    for part in ["dumps", "pcaps"] {
        for entry in manifest[part].as_array().unwrap() {
            let file = entry["file"].as_str().unwrap();
            assert_eq!(
                sha256(&fs::read(folder.join(file)).unwrap()),
                entry["sha256"].as_str().unwrap(),
                "{file}"
            );
        }
    }
}

#[test]
#[ignore = "needs the full recordings: GRADWIRE_RECORDINGS=<dir> cargo test --release -- --ignored"]
fn all_ratios_are_the_published_ones() {
    let (recordings, refused) = load(&[full_recordings()]).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let report = measure_all(
        &recordings,
        &DEFAULT_BOUNDS,
        Codec::Classes(Split::Dense),
        Scale::Fixed(0),
        Kernel::detect(),
    )
    .unwrap();
    let published = published();
    let mut compared = 0;
    for row in &report.recordings {
        let Some(expected) = published.get(&row.name) else { continue };
        let at = DEFAULT_BOUNDS.iter().position(|bound| *bound == row.bound).unwrap();
        let expected = expected[at];
        assert!((row.ratio - expected).abs() <= 0.01, "{} {}: {} {expected}", row.name, row.bound, row.ratio);
        compared += 1;
    }
    assert_eq!(compared, 39, "13 recordings, 3 bounds");
}

#[test]
#[ignore = "needs the full recordings: GRADWIRE_RECORDINGS=<dir> cargo test --release -- --ignored"]
fn no_bound_is_violated_by_any_codec_at_any_scale() {
    let (recordings, refused) = load(&[full_recordings()]).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    for codec in [Codec::BitPlane, Codec::Classes(Split::Dense), Codec::Classes(Split::Paper)] {
        for scale in [Scale::Fixed(0), Scale::Auto] {
            let report = measure_all(&recordings, &DEFAULT_BOUNDS, codec, scale, Kernel::detect()).unwrap();
            for row in &report.recordings {
                assert_eq!(row.violations, 0, "{} {:?}", row.name, row.profile);
            }
        }
    }
}

#[test]
#[ignore = "needs the full recordings: GRADWIRE_RECORDINGS=<dir> cargo test --release -- --ignored"]
fn reassembly_gives_the_streams_that_the_workers_sent() {
    let checked: usize = files(&full_recordings(), "pcap").iter().map(|path| check_streams(path)).sum();
    assert_eq!(checked, 8 * 8, "eight captures of values, four workers, two policies");
}

#[test]
#[ignore = "needs the full recordings: GRADWIRE_RECORDINGS=<dir> cargo test --release -- --ignored"]
fn all_captures_replay_in_both_framings() {
    let captures = files(&full_recordings(), "pcap");
    assert_eq!(captures.len(), 9);
    for path in captures {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let capture = capture(&path);
        for framing in [Framing::InPlace, Framing::Routed] {
            let [dense, paper] = [Split::Dense, Split::Paper].map(Codec::Classes);
            for (bound, codec) in
                [(10, dense), (10, paper), (6, dense), (10, Codec::BitPlane), (6, Codec::BitPlane)]
            {
                let profile = codec.profile(bound, 0).unwrap();
                let report = replayed_with(&capture, Rule { framing, profile, ..Rule::STATIC });
                assert!(report.ok, "{name} {framing:?} {profile:?}: {:?}", report.failures);
            }
            let report = replayed(&capture, framing);
            assert!(report.dropped.is_empty(), "{name} {framing:?}");
            assert!(
                !report.untouched.contains_key("bypassed"),
                "{name}: ordinary loss is not a peer that fails"
            );
            // Twelve directions with gloo's headers. Not one of the others' 2.3 million values is
            // taken for a header.
            let mixed = if name.starts_with("gloo") { 12 } else { 0 };
            assert_eq!(report.compressed > 0, mixed == 0, "{name} {framing:?}");
            assert_eq!(report.mixed.len(), mixed, "{name}: {:?}", report.mixed);
            assert_eq!(
                report.untouched.contains_key("not-values"),
                mixed > 0,
                "{name}: {:?}",
                report.untouched
            );
            assert!(report.warnings.is_empty(), "{name}: {:?}", report.warnings);
            let misaligned = report.untouched.get("misaligned").copied().unwrap_or(0);
            let cut_misaligned =
                ["ring4_mtu1450", "ring4_mtu9001", "ring4_oddwrites", "ring4_loss"].contains(&&name[..]);
            // Routed framing compresses misaligned segments; in-place framing passes them
            // untouched.
            assert_eq!(misaligned > 0, cut_misaligned && framing == Framing::InPlace, "{name} {framing:?}");
        }
    }
}

#[test]
#[ignore = "needs the full recordings: GRADWIRE_RECORDINGS=<dir> cargo test --release -- --ignored"]
fn tagged_frames_are_those_of_the_manifest() {
    let (folder, manifest) = manifest();
    for entry in manifest["pcaps"].as_array().unwrap() {
        let report = replayed(&capture(&folder.join(entry["file"].as_str().unwrap())), Framing::Routed);
        assert_eq!(report.frames, entry["packets"].as_u64().unwrap());
        assert_eq!(report.tagged, entry["tagged"].as_u64().unwrap());
    }
}
