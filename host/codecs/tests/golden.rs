//! Messages that a second implementation wrote (golden/make_v1.py), from docs/host-format.md alone.

use std::collections::BTreeSet;

use gradwire_codecs::{Codec, Registry};

fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.trim_start_matches('-').as_bytes();
    hex.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn messages_are_those_of_the_second_implementation() {
    let (mut gradient, mut acc, mut state) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    let mut tensor = "";
    let files = [
        include_str!("golden/v1.txt"),
        include_str!("golden/v1-q4.txt"),
        include_str!("golden/v1-largest.txt"),
        include_str!("golden/v1-ternary.txt"),
    ];
    for line in files.into_iter().flat_map(str::lines) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["tensor", name, values] => {
                tensor = name;
                gradient =
                    bytes(values).as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            }
            ["message", name, seed, message] => {
                let codec = Registry::BUILT_IN.codec(name).unwrap();
                seen.insert(codec.name());
                if seed == "1" {
                    acc = vec![0.0; gradient.len()];
                    state = vec![0.0; codec.state_len(gradient.len())];
                }
                codec.give(&gradient, &mut acc, &mut state);
                let mut out = vec![0; codec.bound(gradient.len())];
                let len = codec.encode(&mut acc, &mut state, seed.parse().unwrap(), &mut out);
                let expected = bytes(message);
                let differs = out[..len].iter().zip(&expected).position(|(a, b)| a != b);
                assert!(
                    out[..len] == expected,
                    "{name}, tensor {tensor}, seed {seed}: {len} bytes for {}, byte {differs:?}",
                    expected.len()
                );
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!(
        seen,
        Registry::BUILT_IN.entries().map(|entry| entry.name).collect(),
        "each codec has golden messages"
    );
}
