//! Verifies what host codecs make of bytes from the network: a message is refused whole, or adds
//! what docs/host-format.md says.

use gradwire_codecs::{Codec, Registry};

/// The codecs, as the first byte of an input names them.
const NAMES: [&str; 26] = [
    "f32",
    "f16",
    "trunc:16",
    "trunc:22",
    "trunc:24",
    "q8",
    "q8:256",
    "3lc:1",
    "3lc:1.75:100",
    "onebit",
    "onebit:100",
    "tbq:0.25",
    "terngrad",
    "terngrad:4",
    "terngrad:8",
    "dgc:5",
    "graddrop:99",
    "low-rank:2",
    "low-rank:4:50",
    "bounded:6",
    "q4",
    "q4:1",
    "q4:7",
    "q4:256",
    "ternary",
    "ternary:100",
];
/// The most values that an input asks for.
const MOST: usize = 2000;

/// A codec, a number of values (two bytes), and a message.
///
/// # Panics
/// A message that is refused changes the sum, one that is taken adds something else than it says,
/// or bytes behind it matter.
pub(crate) fn verify(data: &[u8]) {
    let Some(([name, n @ ..], message)) = data.split_first_chunk::<3>() else { return };
    let name = NAMES[usize::from(*name) % NAMES.len()];
    let n = usize::from(u16::from_le_bytes(*n)) % (MOST + 1);
    let codec = Registry::BUILT_IN.codec(name).expect("a codec of this crate");
    let before: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let mut after = before.clone();
    let result = codec.merge(message, &mut after);
    let Ok(len) = result else {
        assert!(bits(&before) == bits(&after), "{name}: refused, but the sum changed");
        assert!(!result.unwrap_err().to_string().is_empty());
        return;
    };
    assert!(len <= message.len() && len <= codec.bound(n), "{name}: {len} bytes");
    // What is behind a message, and what was in the sum, does not matter.
    let (mut alone, mut sum) = (vec![0.0; n], before.clone());
    assert_eq!(codec.merge(&message[..len], &mut alone), Ok(len), "{name}: without what follows");
    for (sum, value) in sum.iter_mut().zip(&alone) {
        *sum += value;
    }
    assert!(same(&sum, &after), "{name}: what was in the sum matters");
    if len > 0 {
        let mut cut = before.clone();
        assert!(codec.merge(&message[..len - 1], &mut cut).is_err(), "{name}: without its last byte");
        assert!(bits(&before) == bits(&cut), "{name}: refused, but the sum changed");
    }
    if let Some(values) = plain(name, n, &message[..len]) {
        assert!(same(&values, &alone), "{name}: other values than the document says");
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Equal as numbers, or both NaN.
fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_bits(number(bytes))
}

/// Number `index` of `width` bits, bit by bit.
fn packed(bytes: &[u8], width: usize, index: usize) -> usize {
    (0..width)
        .map(|bit| (index * width + bit, bit))
        .map(|(at, bit)| usize::from(bytes[at / 8] >> (at % 8) & 1) << bit)
        .sum()
}

/// A message's values, one by one, for the codecs that are easily told.
fn plain(name: &str, n: usize, message: &[u8]) -> Option<Vec<f32>> {
    let mut values = vec![0.0; n];
    match name {
        "q8:256" => {
            for (i, value) in values.iter_mut().enumerate() {
                let block = &message[i / 256 * 260..];
                *value = f32::from(block[4 + i % 256] as i8) * float(block);
            }
        }
        "q4" | "q4:1" | "q4:7" | "q4:256" => {
            let block = name.strip_prefix("q4:").map_or(n.max(1), |block| block.parse().expect("a length"));
            for (i, value) in values.iter_mut().enumerate() {
                let len = block.min(n - i / block * block);
                let message = &message[i / block * (4 + block.div_ceil(2))..];
                let (byte, upper) = (i % block % len.div_ceil(2), i % block / len.div_ceil(2));
                let code = packed(&message[4..], 4, 2 * byte + upper) as f32;
                *value = (if code < 8.0 { code } else { code - 16.0 }) * float(message);
            }
        }
        "onebit:100" => {
            for (i, value) in values.iter_mut().enumerate() {
                let block = &message[i / 100 * 21..];
                *value = float(&block[4 * packed(&block[8..], 1, i % 100)..]);
            }
        }
        "tbq:0.25" => {
            for (i, value) in values.iter_mut().enumerate() {
                *value = [0.0, 0.25, -0.25, f32::NAN][packed(message, 2, i)];
            }
        }
        "terngrad:4" => {
            for (i, value) in values.iter_mut().enumerate() {
                *value = float(message) + packed(&message[8..], 4, i) as f32 * float(&message[4..]);
            }
        }
        "dgc:5" | "graddrop:99" => {
            let count = number(message) as usize;
            let width = (0..).find(|width| 1usize << width >= n).expect("a width");
            let behind = &message[4 + (count * width).div_ceil(8)..];
            for place in 0..count {
                values[packed(&message[4..], width, place)] = float(&behind[4 * place..]);
            }
        }
        "3lc:1.75:100" => {
            let (scales, rest) = message.split_at(4 * n.div_ceil(100));
            let mut bytes = Vec::new();
            for code in &rest[4..4 + number(rest) as usize] {
                let zeros = usize::from(code.saturating_sub(241));
                bytes.extend(if zeros > 1 { vec![121; zeros] } else { vec![*code] });
            }
            by_fives(&mut values, scales, &bytes);
        }
        "ternary:100" => {
            let (scales, bytes) = message.split_at(4 * n.div_ceil(100));
            by_fives(&mut values, scales, bytes);
        }
        _ => return None,
    }
    Some(values)
}

/// Values of base-3^5 codes, a scale for every hundred.
fn by_fives(values: &mut [f32], scales: &[u8], bytes: &[u8]) {
    let n = values.len();
    for (i, value) in values.iter_mut().enumerate() {
        let group = i / 320;
        let plane = (n - 320 * group).min(320).div_ceil(5);
        let (digit, place) = (i % 320 / plane, i % 320 % plane);
        let power = [81, 27, 9, 3, 1][digit];
        let digit = bytes[64 * group + place] / power % 3;
        *value = (f32::from(digit) - 1.0) * float(&scales[4 * (i / 100)..]);
    }
}
