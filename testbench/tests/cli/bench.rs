//! `gradwire bench`: what it measures is no matter, that it measures is.

use super::*;

/// The figures of a bench are no matter for a test; that it measured everything is.
fn assert_positive(rows: &Value, columns: &[&str]) {
    for row in rows.as_array().unwrap() {
        for column in columns {
            assert!(row[column].as_f64().unwrap() > 0.0, "{column} of {row}");
        }
    }
}

#[test]
fn bench_prints_the_json_of_its_help() {
    let output = gradwire(&["bench", "--hasty", "--json"]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let report = json(&output);
    assert_eq!(keys(&report), ["frame_path", "kernels", "memcpy_gbps", "peers", "sums"]);
    assert!(report["memcpy_gbps"].as_f64().unwrap() > 0.0);
    assert_eq!(report["peers"], Value::Array(vec![]));

    let rows = report["kernels"].as_array().unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let mut found =
        rows.iter().map(|row| (text(row, "name"), row["codec"].as_u64(), text(row, "distribution")));
    for kernel in Kernel::available() {
        for codec in [1, 2] {
            for distribution in distributions::ALL {
                assert_eq!(found.next(), Some((kernel.name().into(), Some(codec), distribution.name.into())));
            }
        }
    }
    assert_eq!(found.next(), None);
    let speeds = ["decode_gbps", "encode_gbps"];
    assert_eq!(keys(&rows[0]), ["codec", speeds[0], "distribution", speeds[1], "name"]);
    assert_positive(&report["kernels"], &speeds);

    let rows = report["sums"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * Kernel::available().count() * distributions::SUMMED.len());
    let speeds = ["add_gvalues", "decode_gvalues", "encode_gvalues"];
    assert_eq!(
        keys(&rows[0]),
        [speeds[0], "codec", speeds[1], "distribution", speeds[2], "name", "sums_gvalues"]
    );
    assert_positive(&report["sums"], &[&speeds[..], &["sums_gvalues"]].concat());

    let rows = report["frame_path"].as_array().unwrap();
    let mut found = rows.iter().map(|row| (row["codec"].as_u64(), text(row, "direction"), text(row, "kind")));
    for codec in [1, 2] {
        for direction in ["egress", "ingress"] {
            for kind in ["routed", "in-place", "kernel", "untagged"] {
                assert_eq!(found.next(), Some((Some(codec), direction.into(), kind.into())));
            }
        }
    }
    assert_eq!(found.next(), None);
    assert_eq!(keys(&rows[0]), ["codec", "direction", "gbps", "kind", "ns"]);
    assert_positive(&report["frame_path"], &["gbps", "ns"]);
}

#[test]
fn bench_measures_the_kernel_asked_for_and_says_what_is_left_of_the_targets() {
    let output = gradwire(&["bench", "--hasty", "--kernel", "portable", "--json"]);
    let report = json(&output);
    let rows = report["kernels"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * distributions::ALL.len());
    assert!(rows.iter().all(|row| row["name"] == "portable"));
    let output = gradwire(&["bench", "--hasty", "--kernel", "portable"]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["recorded", "kernel portable", "untagged", "portable decode 75/4/20/1, GB/s"] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn bench_measures_the_codec_asked_for() {
    for codec in [1, 2] {
        let output =
            gradwire(&["bench", "--hasty", "--kernel", "portable", "--codec", &codec.to_string(), "--json"]);
        let report = json(&output);
        for (part, rows) in
            [("kernels", distributions::ALL.len()), ("sums", distributions::SUMMED.len()), ("frame_path", 8)]
        {
            let part = report[part].as_array().unwrap();
            assert_eq!(part.len(), rows);
            assert!(part.iter().all(|row| row["codec"] == codec), "{part:?}");
        }
    }
    let output = gradwire(&["bench", "--codec", "3"]);
    assert!(code(&output) == 2 && stderr(&output).contains("3 is not in 1..=2"), "{}", stderr(&output));
}

#[test]
fn bench_measures_peers_where_they_are_built_in() {
    let output = gradwire(&["bench", "--hasty", "--kernel", "portable", "--peers", "--json"]);
    if !cfg!(feature = "peers") {
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("build it with --features peers"), "{}", stderr(&output));
        return;
    }
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let report = json(&output);
    let rows = report["peers"].as_array().unwrap();
    assert_eq!(keys(&rows[0]), ["compress_gbps", "decompress_gbps", "max_error", "name", "ratio"]);
    assert_positive(&report["peers"], &["compress_gbps", "decompress_gbps", "ratio"]);
    let bound = 2f64.powi(-10);
    for recording in ["hdc256_i0040_w0", "lm_i0950_w0", "resnet_i0010_w0"] {
        let row =
            |codec: &str| rows.iter().find(|row| row["name"] == format!("{codec}/{recording}")).unwrap();
        for codec in ["zstd -1", "lz4", "snappy", "pco"] {
            assert_eq!(row(codec)["max_error"], 0.0, "{codec} is lossless");
        }
        for codec in ["gradwire", "quantised pco"] {
            assert!(row(codec)["max_error"].as_f64().unwrap() <= bound, "{codec} keeps the bound");
        }
        for codec in ["f16", "bf16"] {
            assert_eq!(row(codec)["ratio"], 2.0);
        }
    }
}
