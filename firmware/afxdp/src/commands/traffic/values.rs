//! The values that a test sends: values that look like gradients, or those of a file. A stream
//! repeats them over and over.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The most bytes of a file: the receiving end keeps them in memory.
pub(super) const MAX_FILE: u64 = 256 << 20;
/// The number of values that are made up. A prime number: no shift by whole segments or buffers
/// hits the same values again.
const GENERATED: usize = 1_000_003;
/// So many neighbours are of one scale, as those of a tensor are.
const TENSOR: usize = 20_011;

/// Why a file cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct ValuesError {
    /// The file.
    pub file: PathBuf,
    /// The fault, and the right form.
    pub reason: String,
}

/// The values of a stream, as little-endian bytes: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values(Vec<u8>);

impl Values {
    /// The same for a seed on every machine, since only exact operations make them: sums of uniform
    /// numbers, near a normal distribution, times a power of two that is larger the rarer it is. So
    /// most are small and a few are large, as among gradients.
    pub(super) fn generated(seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let mut bytes = Vec::with_capacity(4 * GENERATED);
        let mut tensor = 0;
        for place in 0..GENERATED {
            if place % TENSOR == 0 {
                tensor = random.next() as i32 & 3;
            }
            let bits = random.next();
            let uniform = (0..4).map(|word| (bits >> (16 * word)) as i32 & 0xffff).sum::<i32>();
            let normal = (uniform - 2 * 0xffff) as f32 / 65_536.0;
            let rare = random.next().trailing_zeros().min(7) as i32;
            // 2^-10 is the bound that most rules have: most values are some bounds large, or less.
            bytes.extend((normal * power_of_two(rare - tensor - 8)).to_le_bytes());
        }
        Self(bytes)
    }

    /// The values of a file: raw little-endian f32, or NumPy's `.npy` with them.
    ///
    /// # Errors
    /// The file cannot be read, is too long, or is of other numbers.
    pub(super) fn of_file(file: &Path) -> Result<Self, ValuesError> {
        let error = |reason: String| ValuesError { file: file.to_owned(), reason };
        let read = || -> io::Result<_> {
            let len = fs::metadata(file)?.len();
            Ok(if len <= MAX_FILE { Ok(fs::read(file)?) } else { Err(len) })
        };
        let bytes = read().map_err(|source| error(format!("cannot read: {source}")))?;
        let bytes = bytes.map_err(|len| {
            error(format!(
                "{len} bytes, and at most {MAX_FILE} can be sent: the receiver keeps them in memory"
            ))
        })?;
        let values = if bytes.starts_with(NPY) { npy_data(&bytes).map_err(error)? } else { &bytes };
        Self::of_bytes(values.to_vec()).map_err(error)
    }

    /// Little-endian f32.
    ///
    /// # Errors
    /// It is not a whole number of them, or none.
    pub(super) fn of_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(4) {
            return Err(format!(
                "{} bytes of values: expected little-endian f32, 4 bytes each, and at least one",
                bytes.len()
            ));
        }
        Ok(Self(bytes))
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The start of connection `number` among these bytes: each starts elsewhere, so that they are
    /// not mistaken for one another.
    pub(super) fn start(&self, number: usize) -> usize {
        number * 7_919 % (self.0.len() / 4) * 4
    }
}

const NPY: &[u8] = b"\x93NUMPY";

/// The numbers behind the header of NumPy's format, version 1 to 3 (numpy.lib.format).
fn npy_data(file: &[u8]) -> Result<&[u8], String> {
    let cut = || "a .npy file that ends within its header".to_owned();
    let (at, len) = match file.get(NPY.len()).ok_or_else(cut)? {
        1 => (
            10,
            file.get(8..10).ok_or_else(cut)?.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        ),
        _ => (
            12,
            file.get(8..12).ok_or_else(cut)?.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        ),
    };
    let header = String::from_utf8_lossy(file.get(at..at + len).ok_or_else(cut)?);
    let dtype =
        header.split_once("'descr':").map_or("", |(_, rest)| rest.split(',').next().unwrap_or("").trim());
    if dtype != "'<f4'" {
        return Err(format!("an array of {dtype}, expected '<f4': numpy.save(file, array.astype('<f4'))"));
    }
    Ok(&file[at + len..])
}

/// 2^exponent, for normal numbers.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Steele, Lea and Flood's SplitMix64 (OOPSLA 2014).
struct SplitMix(u64);

impl SplitMix {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn numbers(values: &Values) -> Vec<f64> {
        let (words, _) = values.bytes().as_chunks::<4>();
        words.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect()
    }

    #[test]
    fn generated_values_are_heavy_tailed_around_zero() {
        let values = numbers(&Values::generated(1));
        let mean =
            |power: i32| values.iter().map(|value| value.powi(power)).sum::<f64>() / values.len() as f64;
        let deviation = mean(2).sqrt();
        assert!(mean(1).abs() < 0.01 * deviation, "{}", mean(1));
        // A normal distribution has 3.
        let kurtosis = mean(4) / mean(2).powi(2);
        assert!(kurtosis > 6.0, "{kurtosis}");
        let bound = 2f64.powi(-10);
        assert!((bound..20.0 * bound).contains(&deviation), "{deviation}");
        let below = values.iter().filter(|value| value.abs() < bound).count();
        assert!((values.len() / 4..values.len()).contains(&below), "{below}");
    }

    /// Both ends make them, and may be of different machines and versions.
    #[test]
    fn generated_values_are_the_same_everywhere() {
        // FNV-1a. A Python script, with integers and doubles, came to the same.
        let hash = |seed| {
            let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            Values::generated(seed).bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
        };
        assert_eq!([hash(1), hash(2)], [14_470_165_557_958_855_060, 11_192_494_873_104_309_834]);
    }

    #[test]
    fn files_are_raw_values_or_arrays() {
        let folder = Scratch::new();
        let of = |name: &str, bytes: &[u8]| {
            let file = folder.path().join(name);
            fs::write(&file, bytes).unwrap();
            Values::of_file(&file).map_err(|error| error.to_string())
        };
        let raw = [1.0f32.to_le_bytes(), (-2.5f32).to_le_bytes()].concat();
        assert_eq!(of("raw.f32", &raw).unwrap().bytes(), raw);
        let array = |dtype: &str| {
            let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': (2,), }}\n");
            [NPY, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &raw].concat()
        };
        assert_eq!(of("a.npy", &array("<f4")).unwrap().bytes(), raw);
        for (bytes, expected) in [
            (array("<f8"), "an array of '<f8', expected '<f4'"),
            (array("<f4")[..20].to_vec(), "ends within its header"),
            (vec![0; 7], "7 bytes of values"),
            (vec![], "0 bytes of values"),
        ] {
            let error = of("refused", &bytes).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let missing = Values::of_file(&folder.path().join("missing")).unwrap_err();
        assert!(missing.to_string().contains("cannot read"), "{missing}");
    }
}
