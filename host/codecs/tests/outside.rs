//! A codec that is written outside the crate, and registered in one line.

use gradwire_codecs::ops::{concat, extract, lost, map, peak};
use gradwire_codecs::{Args, Codec, Entry, Malformed, Named, Registry};

static CODECS: Registry = Registry::with(&[Entry::of::<FourBits>()]);

/// Four bits a value: whole numbers from -7 to 7, one scale.
struct FourBits;

impl Codec for FourBits {
    fn bound(&self, n: usize) -> usize {
        4 + n.div_ceil(2)
    }

    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let mut message = concat(out);
        let scale = peak(acc) / 7.0;
        message.f32(scale);
        message.pack::<4>(map(acc, |_, value| {
            let whole = if scale > 0.0 { (*value / scale).round() } else { 0.0 };
            *value = lost(*value, whole * scale);
            (whole as i8 + 8) as u8
        }));
        message.len()
    }

    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let mut src = extract(src);
        src.need(self.bound(sum.len()))?;
        let scale = src.f32();
        src.unpack::<4>(sum, |code, sum| *sum += (f32::from(code) - 8.0) * scale);
        Ok(src.len())
    }
}

impl Named for FourBits {
    const NAME: &str = "four";
    const USAGE: &str = "four";

    fn from_args(args: &Args) -> Option<Self> {
        args.numbers().is_empty().then_some(Self)
    }
}

#[test]
fn it_is_chosen_by_its_name_like_any_other() {
    let codec = CODECS.codec("four").unwrap();
    assert_eq!((codec.to_string(), codec.bound(5), codec.state_len(5)), ("four".into(), 7, 0));
    let mut acc = [7.0, -3.0, 0.4, 0.0, -6.6];
    let mut message = [0; 7];
    assert_eq!(codec.encode(&mut acc, &mut [], 0, &mut message), 7);
    assert_eq!(message[4..], [0x5f, 0x88, 0x01]);
    let mut sum = [1.0; 5];
    assert_eq!(codec.merge(&message, &mut sum), Ok(7));
    assert_eq!(sum, [8.0, -2.0, 1.0, 1.0, -6.0]);
    assert!(CODECS.codec("3lc:1.5:1024").is_ok(), "and the crate's own are still there");
    let names = "codec 'five': no codec has this name; there are four, f32, f16, trunc, q8, q4, 3lc, ternary, onebit, tbq, terngrad, dgc, \
                 graddrop, low-rank, bounded";
    assert_eq!(CODECS.codec("five").unwrap_err().to_string(), names);
}

#[test]
fn names_are_read_whole_and_print_as_they_were() {
    for name in [
        "f32",
        "q8:256",
        "q4",
        "q4:256",
        "3lc:1.5",
        "3lc:1:1024",
        "terngrad:4",
        "dgc:0.1:0.9",
        "low-rank:4:700",
        "bounded:10",
    ] {
        assert_eq!(CODECS.codec(name).unwrap().to_string(), name);
    }
    let bad = [
        "",
        ":",
        "f32:",
        "f32:1",
        "f16:2",
        "trunc",
        "trunc:8",
        "q8:0",
        "q8:-1",
        "q8:1.5",
        "q8:x",
        "q8:4294967296",
        "q8:8:8",
        "q4:0",
        "q4:1.5",
        "q4:8:8",
        "3lc",
        "3lc:2",
        "3lc:0.9",
        "3lc:nan",
        "3lc:1:0",
        "onebit:0",
        "tbq",
        "tbq:0",
        "tbq:-1",
        "tbq:inf",
        "tbq:1e-40",
        "terngrad:3",
        "terngrad:2:2",
        "dgc",
        "dgc:0",
        "dgc:101",
        "dgc:1:1",
        "graddrop:100",
        "graddrop:10",
        "low-rank",
        "low-rank:0",
        "low-rank:33",
        "low-rank:4:0",
        "bounded:0",
        "bounded:14",
        "bounded:1:2:3:4",
        "Q8",
        " q8",
    ];
    for name in bad {
        assert!(CODECS.codec(name).is_err(), "{name}");
    }
    assert_eq!(
        CODECS.codec("3lc:2").unwrap_err().to_string(),
        "codec '3lc:2': expected 3lc:S[:BLOCK], S at least 1 and below 2, BLOCK values share a scale, all without it"
    );
}
