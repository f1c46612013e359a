//! `gradwire encode` and `decode`, in pipes.

use super::*;

#[test]
fn encode_and_decode_undo_each_other_in_pipes() {
    // All classes, special values, and more than one buffer of either command.
    let specials = [0.0, -0.0, 1e-3, 0.3, -0.9, 1.0, -7.5, f32::NAN, f32::INFINITY, 1e-40];
    let values: Vec<f32> = (0..50_003).map(|i| specials[i % 10] * (1.0 + (i % 97) as f32 / 128.0)).collect();
    let sent: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let options = [
        &["--bound", "10"][..],
        &["--bound", "10", "--codec", "1"],
        &["--bound", "6", "--split", "paper", "--scale", "-3"],
        &["--bound", "6", "--scale", "-3"],
    ];
    for params in options {
        let groups = gradwire_with(&[&["encode"], params].concat(), &sent);
        assert_eq!(code(&groups), 0);
        let count = values.len().to_string();
        let restored = gradwire_with(&[&["decode", "--values", &count], params].concat(), &groups.stdout);
        assert_eq!((code(&restored), stderr(&restored)), (0, String::new()));
        let again = gradwire_with(&[&["encode"], params].concat(), &restored.stdout);
        assert_eq!(again.stdout, groups.stdout, "what is decoded encodes to the same bytes");
        let bound = if params[1] == "10" { 2f64.powi(-10) } else { 2f64.powi(-9) };
        assert_eq!(restored.stdout.len(), sent.len());
        for (sent, got) in values.iter().zip(restored.stdout.as_chunks::<4>().0) {
            let got = f32::from_le_bytes(*got);
            let same = sent.to_bits() == got.to_bits();
            assert!(same || (f64::from(*sent) - f64::from(got)).abs() <= bound, "{sent} {got}");
        }
        if !params.contains(&"--codec") && !params.contains(&"--split") {
            let refused = gradwire_with(&[&["decode"], params].concat(), &groups.stdout);
            assert_eq!((code(&refused), refused.stdout.len()), (2, 0));
            assert!(stderr(&refused).contains("give --values N, or --codec 1"), "{}", stderr(&refused));
            continue;
        }
        let all_lanes = gradwire_with(&[&["decode"], params].concat(), &groups.stdout);
        assert_eq!(all_lanes.stdout.len(), sent.len().next_multiple_of(32), "without --values, whole bursts");
        assert_eq!(all_lanes.stdout[..sent.len()], restored.stdout);
    }
}

#[test]
fn encode_and_decode_of_nothing_is_nothing() {
    for args in [&["encode"][..], &["decode", "--codec", "1"], &["decode", "--values", "0"]] {
        let output = gradwire_with(args, &[]);
        assert_eq!((code(&output), output.stdout.len()), (0, 0));
    }
}

#[test]
fn encode_and_decode_refuse_what_is_not_whole() {
    let says = |args: &[&str], input: &[u8], expected: &str| {
        let output = gradwire_with(args, input);
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).starts_with(&format!("gradwire: standard input: {expected}")),
            "{}",
            stderr(&output)
        );
    };
    says(&["encode"], &[0; 7], "byte 7: the end of the input within a value, after 3 of its 4 bytes");
    says(
        &["decode", "--codec", "1"],
        &[0],
        "byte 0: 1 bytes and the end of the input, expected a group of 2 bytes or more",
    );
    says(
        &["decode", "--codec", "1"],
        &[0, 0, 0xff, 0xff, 1],
        "byte 2: 3 bytes and the end of the input, expected a group of 34",
    );
    says(
        &["decode", "--codec", "1", "--values", "8"],
        &[0; 4],
        "byte 2: bytes after the last value, expected the end",
    );
    says(&["decode", "--codec", "1", "--values", "9"], &[0; 2], "byte 2: 0 bytes and the end of the input");
    says(
        &["decode", "--codec", "1", "--values", "1"],
        &[4, 0, 0],
        "byte 0: tag vector 0x0004, expected tag 0 in every lane from 1",
    );
    says(&["decode", "--values", "8"], &[0; 4], "byte 1: bytes after the last value, expected the end");
    // A section of zeros, then a mode that there is not, and a flat map whose groups are missing.
    says(&["decode", "--values", "600"], &[0, 4], "byte 1: a section that is cut short, or none");
    says(&["decode", "--values", "8"], &[2, 0xff], "byte 0: a section that is cut short, or none");
}
