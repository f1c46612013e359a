//! `gradwire check` and the files it reads.

use super::*;

#[test]
fn check_prints_the_json_of_its_help() {
    let path = recordings().join("cnn_i0300_w0.npy");
    let args =
        ["check", path.to_str().unwrap(), "--bounds", "8,6", "--split", "paper", "--scale", "-2", "--json"];
    let output = gradwire(&args);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let report = json(&output);
    assert_eq!(keys(&report), ["ok", "recordings", "useful"]);
    assert_eq!((&report["ok"], &report["useful"]), (&Value::from(true), &Value::from(true)));
    let rows = report["recordings"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let wanted = [
        "bound",
        "classes",
        "codec",
        "max_error",
        "name",
        "non_finite",
        "norm_lost",
        "ratio",
        "rms_error",
        "values",
        "violations",
    ];
    assert_eq!(keys(&rows[0]), wanted);
    assert_eq!(keys(&rows[0]["classes"]), ["byte", "half", "raw", "zero"]);
    assert_eq!(rows[0]["codec"], 1, "a split is codec 1's");
    assert_eq!((&rows[0]["bound"], &rows[1]["bound"]), (&Value::from(8), &Value::from(6)));
    assert_eq!(rows[0]["name"], "cnn_i0300_w0");
    assert_eq!((&rows[0]["values"], &rows[0]["violations"]), (&Value::from(49672), &Value::from(0)));
}

#[test]
fn check_reads_files_folders_and_standard_input_alike() {
    let file = recordings().join("cnn_i0300_w0.npy");
    let of_file = gradwire(&["check", file.to_str().unwrap(), "--json"]);
    let of_stdin = gradwire_with(&["check", "-", "--json"], &fs::read(&file).unwrap());
    assert_eq!(json(&of_file)["recordings"][0]["ratio"], json(&of_stdin)["recordings"][0]["ratio"]);
    let of_folder = json(&gradwire(&["check", recordings().to_str().unwrap(), "--json"]));
    assert_eq!(of_folder, json(&gradwire(&["check", "--json"])), "the folder is the built-in set");
    let auto = json(&gradwire(&["check", file.to_str().unwrap(), "--scale", "auto", "--json"]));
    assert_eq!(auto["recordings"][0]["scale"], -2, "its peak is 0.232");
}

#[test]
fn bad_gradients_are_refused_with_file_offset_and_what_would_be_right() {
    let good = fs::read(recordings().join("cnn_i0300_w0.npy")).unwrap();
    let with_dtype = |dtype: &str| {
        let at = good.windows(3).position(|bytes| bytes == b"<f4").unwrap();
        let mut bytes = good.clone();
        bytes[at..at + 3].copy_from_slice(dtype.as_bytes());
        bytes
    };
    assert!(refusal("check", "magic.npy", b"GIF89a").starts_with("byte 0: "));
    assert!(
        refusal("check", "big.npy", &with_dtype(">f4")).contains("big-endian dtype '>f4', expected '<f4'")
    );
    assert!(refusal("check", "double.npy", &with_dtype("<f8")).contains("dtype '<f8', expected '<f4'"));
    let cut = refusal("check", "cut.npy", &good[..good.len() - 2]);
    assert!(cut.starts_with(&format!("byte {}: the end of the file", good.len() - 2)), "{cut}");
    assert!(cut.contains("expected 198688 bytes (49672 values)"), "{cut}");
    let mut long = good.clone();
    long.push(0);
    assert!(refusal("check", "long.npy", &long).contains("1 bytes after the last value"));
    assert!(refusal("check", "empty.npy", b"").starts_with("byte 0: "));
}

/// A bound can hold where nothing is left of the values.
#[test]
fn values_that_are_lost_are_not_held() {
    // As of a normal distribution of 1e-5, by its quantiles.
    let small: Vec<f32> = (1..1000).map(|i| 1e-5 * ((i as f32 - 500.0) / 250.0)).collect();
    let path = scratch("small.npy", &npy(&small));
    let path = path.to_str().unwrap();
    let lost = gradwire(&["check", path, "--bounds", "10"]);
    let text = String::from_utf8(lost.stdout.clone()).unwrap();
    assert_eq!(code(&lost), 1, "{text}");
    assert!(text.contains("100.0% of the norm is lost") && text.contains("--scale auto"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("NOT useful"), "{text}");
    let report = json(&gradwire(&["check", path, "--bounds", "10", "--json"]));
    assert_eq!((&report["ok"], &report["useful"]), (&Value::from(true), &Value::from(false)));
    // The remedy is one.
    let scaled = gradwire(&["check", path, "--bounds", "10", "--scale", "auto"]);
    assert_eq!(code(&scaled), 0, "{}", String::from_utf8_lossy(&scaled.stdout));

    let path = scratch("nan.npy", &npy(&[1.0, f32::NAN, f32::INFINITY, 0.5]));
    let output = gradwire(&["check", path.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    assert!(String::from_utf8(output.stdout).unwrap().contains("2 values are NaN or infinite"));

    let ring = recordings().join("ring4_loss.pcap");
    let wide = gradwire(&["replay", ring.to_str().unwrap(), "--bound", "-2"]);
    assert_eq!(code(&wide), 1);
    assert!(stderr(&wide).contains("of the norm is lost"), "{}", stderr(&wide));
    assert!(String::from_utf8(wide.stdout).unwrap().lines().last().unwrap().starts_with("NOT useful"));
}

/// Files that people have at hand and the tool does not read are named, with a remedy.
#[test]
fn files_of_other_formats_are_named() {
    let npy = npy(&[1.0; 8]);
    let pcap = fs::read(recordings().join("ring4_loss.pcap")).unwrap();
    for (bytes, name) in [
        (&b"PK\x03\x04\x14\0\0\0"[..], "zip archive"),
        (b"\x1f\x8b\x08\0", "gunzip"),
        (b"\x80\x02}q\0.", "a pickle"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x40\0\0\0\0\0\0\0{\"w\":{}}", "safetensors"),
        (&pcap, "`gradwire replay` reads it"),
    ] {
        let text = refusal("check", "other.bin", bytes);
        assert!(text.starts_with("byte 0: ") && text.contains(name), "{text}");
    }
    assert!(refusal("replay", "other.bin", &npy).contains("`gradwire check` reads it"));
    let encoded = gradwire_with(&["encode"], &npy);
    assert_eq!((code(&encoded), encoded.stdout.len()), (2, 0));
    assert!(stderr(&encoded).contains("an .npy file"), "{}", stderr(&encoded));
}

#[test]
fn a_folder_goes_on_past_a_bad_file() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("some-bad");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.npy"), b"GIF89a").unwrap();
    fs::write(folder.join("b.npy"), npy(&[0.5; 8])).unwrap();
    let output = gradwire(&["check", folder.to_str().unwrap(), "--json"]);
    assert_eq!(code(&output), 2);
    assert_eq!(json(&output)["recordings"][0]["name"], "b");
    assert!(stderr(&output).contains("a.npy: byte 0") && stderr(&output).contains("1 of 2 files"));
}
