//! The recordings inside the project: they are what they should be, and every check on them holds.

mod support;

use std::fs;

use gradwire::codec::Split;
use gradwire::kernels::Kernel;
use gradwire::rules::{Framing, Rule};
use gradwire_testbench::check::Shares;
use gradwire_testbench::cmd::args::codec::Codec;
use gradwire_testbench::cmd::check::{DEFAULT_BOUNDS, Scale, measure_all};
use gradwire_testbench::input::recordings::{CAPTURES, GRADIENTS, builtin};
use support::{capture, check_streams, files, published, recordings, replayed, replayed_with, sha256};

#[test]
fn every_file_is_the_one_that_the_readme_names() {
    let readme = fs::read_to_string(recordings().join("README.md")).unwrap();
    let mut named = 0;
    for line in readme.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, file, hash, ..] = cells[..]
            && hash.len() == 66
        {
            let bytes = fs::read(recordings().join(file.trim_matches('`'))).unwrap();
            assert_eq!(sha256(&bytes), hash.trim_matches('`'), "{file}");
            named += 1;
        }
    }
    assert_eq!(named, fs::read_dir(recordings()).unwrap().count() - 1, "all files but the README");
}

#[test]
fn every_recording_is_built_in() {
    let names = |extension| {
        let name = |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        files(&recordings(), extension).iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("npy"), GRADIENTS.iter().map(|file| file.name).collect::<Vec<_>>());
    assert_eq!(names("pcap"), CAPTURES.iter().map(|file| file.name).collect::<Vec<_>>());
}

/// Codec 2, and codec 1 with both splits.
const CODECS: [Codec; 3] = [Codec::BitPlane, Codec::Classes(Split::Dense), Codec::Classes(Split::Paper)];

#[test]
fn ratios_are_the_published_ones() {
    let published = published();
    let report = measure_all(
        &builtin().unwrap(),
        &DEFAULT_BOUNDS,
        Codec::Classes(Split::Dense),
        Scale::Fixed(0),
        Kernel::detect(),
    )
    .unwrap();
    assert_eq!(report.recordings.len(), 12);
    for row in report.recordings {
        let at = DEFAULT_BOUNDS.iter().position(|bound| *bound == row.bound).unwrap();
        let expected = published[&row.name][at];
        assert!((row.ratio - expected).abs() <= 0.01, "{} {}: {} {expected}", row.name, row.bound, row.ratio);
    }
}

#[test]
fn no_bound_is_violated_by_any_codec_at_any_scale() {
    for codec in CODECS {
        for scale in [Scale::Fixed(0), Scale::Auto] {
            let report =
                measure_all(&builtin().unwrap(), &DEFAULT_BOUNDS, codec, scale, Kernel::detect()).unwrap();
            for row in &report.recordings {
                assert_eq!(row.violations, 0, "{} {:?}", row.name, row.profile);
                let bound = f64::from(i16::from(row.scale.unwrap_or(0)) - row.bound).exp2();
                assert!(row.max_error > 0.0 && row.max_error <= bound, "{} {:?}", row.name, row.profile);
                let (sum, raw) = match row.classes {
                    Shares::Classes { zero, byte, half, raw } => (zero + byte + half + raw, raw),
                    Shares::BitPlane { zero, coded, raw } => (zero + coded + raw, raw),
                };
                assert!((sum - 1.0).abs() < 1e-9);
                if scale == Scale::Auto {
                    assert_eq!(raw, 0.0, "the peak is below 1");
                }
            }
            assert!(report.ok);
        }
    }
}

#[test]
fn reassembly_gives_the_streams_that_the_workers_sent() {
    for path in files(&recordings(), "pcap") {
        assert_eq!(check_streams(&path), 8, "four workers, two policies");
    }
}

/// Routed framing asks nothing of the listener's type of service: every connection of the captures
/// agrees.
#[test]
fn a_handshake_loses_no_frame_of_the_captures() {
    for path in files(&recordings(), "pcap") {
        let capture = capture(&path);
        let [agreed, configured] = [Rule::DEFAULT, Rule::STATIC].map(|rule| replayed_with(&capture, rule));
        assert!(agreed.ok && agreed.warnings.is_empty(), "{:?} {:?}", agreed.failures, agreed.warnings);
        assert_eq!(
            (agreed.compressed, agreed.wire_bytes_out),
            (configured.compressed, configured.wire_bytes_out)
        );
    }
}

#[test]
fn captures_replay_in_both_framings() {
    for path in files(&recordings(), "pcap") {
        let capture = capture(&path);
        for framing in [Framing::InPlace, Framing::Routed] {
            for bound in DEFAULT_BOUNDS {
                for codec in CODECS {
                    let profile = codec.profile(bound, 0).unwrap();
                    let report = replayed_with(&capture, Rule { framing, profile, ..Rule::STATIC });
                    assert!(report.ok, "{} {framing:?}: {:?}", path.display(), report.failures);
                }
            }
            let report = replayed(&capture, framing);
            let outcomes = report.compressed + report.untouched.values().sum::<u64>();
            assert_eq!((outcomes, report.altered_untagged), (report.frames, 0));
            assert!(report.dropped.is_empty() && report.warnings.is_empty());
            assert!(!report.untouched.contains_key("bypassed"), "ordinary loss is not a peer that fails");
            assert!(report.compressed > 0 && report.values > 0 && report.streams == 4);
            assert!(report.wire_bytes_out < report.wire_bytes_in);
            let misaligned = report.untouched.get("misaligned").copied().unwrap_or(0);
            assert_eq!(
                misaligned > 0,
                framing == Framing::InPlace,
                "only in-place framing passes misaligned segments"
            );
        }
    }
}
