//! Reads `.npy` files of little-endian `f32`.
//!
//! A reader of its own, since its errors have to say which file, which byte, and what would be
//! right. Format: NumPy Enhancement Proposal 1, versions 1 to 3. An array of any shape and order is
//! taken as the flat vector that stands in the file.

use super::known;
use crate::error::Error;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
const WANTED: &str = "'<f4' (little-endian float32; in NumPy: a.astype('<f4'))";

/// The values in `bytes`, the content of `file`: little-endian `f32`s, four bytes each.
///
/// # Errors
/// Not an `.npy` file, another dtype or byte order, a header that cannot be read, no values at all,
/// fewer bytes than the shape asks for, or more.
pub fn parse<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a [u8], Error> {
    let refuse =
        |offset: usize, found: String, expected: &str| Err(Error::input(file, offset, found, expected));

    if !bytes.starts_with(MAGIC) {
        return refuse(0, known::found(bytes), "an .npy file, which starts with 93 4e 55 4d 50 59");
    }
    let (prefix_len, header_len) = match (bytes.get(6), bytes.get(8..12)) {
        (Some(1), Some(&[a, b, _, _])) => (10, u16::from_le_bytes([a, b]).into()),
        (Some(2 | 3), Some(&[a, b, c, d])) => (12, u32::from_le_bytes([a, b, c, d])),
        (Some(&version), Some(_)) => return refuse(6, format!("version {version}"), "version 1, 2 or 3"),
        _ => return refuse(bytes.len(), "the end of the file".into(), "the length of the header"),
    };
    let ends_at = end_of_header(prefix_len, header_len);
    // No slice is as long as the address space.
    let data_at = usize::try_from(ends_at).unwrap_or(usize::MAX);
    let prefix_len = prefix_len as usize;
    let Some(header) = bytes.get(prefix_len..data_at) else {
        let found = format!("the end of the file after {} bytes", bytes.len());
        return refuse(bytes.len(), found, &format!("a header that ends at byte {ends_at}"));
    };
    let header = String::from_utf8_lossy(header);

    let Some((at, descr)) = field(&header, "descr") else {
        return refuse(prefix_len, "a header without 'descr'".into(), WANTED);
    };
    // A structured dtype is a list, not a string: it has no closing quote of the same kind at its
    // start.
    let dtype = match descr.chars().next() {
        Some(quote @ ('\'' | '"')) => descr[1..].split(quote).next().unwrap_or(""),
        _ => descr.split(['}', '\n']).next().unwrap_or(""),
    };
    if dtype != "<f4" {
        let found = if dtype == ">f4" { "big-endian dtype '>f4'".into() } else { format!("dtype '{dtype}'") };
        return refuse(prefix_len + at, found, WANTED);
    }

    let shape = field(&header, "shape")
        .and_then(|(at, rest)| Some((at, rest.strip_prefix('(')?.split_once(')')?.0)))
        .and_then(|(at, dims)| Some((at, count(dims)?)));
    let Some((shape_at, values)) = shape else {
        return refuse(prefix_len, "a header without a 'shape' that fits the address space".into(), "(n,)");
    };
    if values == 0 {
        return refuse(prefix_len + shape_at, "a shape of no values".into(), "at least one value");
    }
    let data = bytes.get(data_at..).unwrap_or(&[]);
    // `count` has checked that the product fits.
    let want = 4 * values;
    if data.len() < want {
        let found = format!("the end of the file, {} bytes of data", data.len());
        return refuse(bytes.len(), found, &format!("{want} bytes ({values} values)"));
    }
    if data.len() > want {
        let found = format!("{} bytes after the last value", data.len() - want);
        return refuse(data_at + want, found, &format!("the end of the file ({values} values)"));
    }
    Ok(data)
}

/// The start of the data. Not a `usize`: a header of 4 GB ends beyond the address space of 32 bits.
fn end_of_header(prefix_len: u32, header_len: u32) -> u64 {
    u64::from(prefix_len) + u64::from(header_len)
}

/// Offset of the value of `key` in the header's dictionary, and the text from there on.
fn field<'h>(header: &'h str, key: &str) -> Option<(usize, &'h str)> {
    for quote in ['\'', '"'] {
        let quoted = format!("{quote}{key}{quote}");
        if let Some(at) = header.find(&quoted) {
            let rest = header[at + quoted.len()..].trim_start().strip_prefix(':')?.trim_start();
            return Some((header.len() - rest.len(), rest));
        }
    }
    None
}

/// The product of the dimensions, if four times as many bytes are countable.
fn count(dims: &str) -> Option<usize> {
    let mut values = 1usize;
    for dim in dims.split(',').map(str::trim).filter(|dim| !dim.is_empty()) {
        values = values.checked_mul(dim.parse().ok()?)?;
    }
    values.checked_mul(4).map(|_| values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(dict: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((dict.len() as u16).to_le_bytes());
        bytes.extend(dict.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn message(bytes: &[u8]) -> String {
        parse("x.npy", bytes).unwrap_err().to_string()
    }

    const GOOD: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";

    #[test]
    fn reads_any_shape_as_a_flat_vector() {
        let data = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(parse("x", &npy(GOOD, &data)).unwrap(), data);
        let matrix = "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }";
        assert_eq!(parse("x", &npy(matrix, &data)).unwrap(), data);
        let scalar = r#"{"shape": (), "descr": "<f4"}"#;
        assert_eq!(parse("x", &npy(scalar, &data[..4])).unwrap(), &data[..4]);
    }

    #[test]
    fn reads_version_2() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([2, 0]);
        bytes.extend((GOOD.len() as u32).to_le_bytes());
        bytes.extend(GOOD.as_bytes());
        bytes.extend([0; 8]);
        assert_eq!(parse("x", &bytes).unwrap().len(), 8);
    }

    #[test]
    fn a_header_may_claim_to_end_beyond_32_bits() {
        assert_eq!(end_of_header(12, u32::MAX - 3), 0x1_0000_0008);
        let mut bytes = MAGIC.to_vec();
        bytes.extend([2, 0]);
        bytes.extend((u32::MAX - 3).to_le_bytes());
        bytes.extend(GOOD.as_bytes());
        assert!(message(&bytes).ends_with("expected a header that ends at byte 4294967304"));
    }

    #[test]
    fn refusals_name_file_offset_and_what_would_be_right() {
        assert_eq!(
            message(b"PK\x03\x04zip"),
            "x.npy: byte 0: a zip archive, as .npz and PyTorch's .pt are: save one array with numpy.save(f, a.astype('<f4')), \
             expected an .npy file, which starts with 93 4e 55 4d 50 59"
        );
        assert!(message(b"").contains("byte 0: an empty file"));
        assert!(message(b"GIF89a").contains("byte 0: [47, 49, 46, 38, 39, 61]"));
        let big = GOOD.replace("<f4", ">f4");
        assert!(
            message(&npy(&big, &[0; 8]))
                .starts_with("x.npy: byte 20: big-endian dtype '>f4', expected '<f4'")
        );
        let double = GOOD.replace("<f4", "<f8");
        assert!(message(&npy(&double, &[0; 16])).contains("byte 20: dtype '<f8', expected '<f4'"));
        let structured = "{'descr': [('a', '<f4')], 'shape': (2,)}";
        assert!(message(&npy(structured, &[0; 8])).contains("dtype '[('a', '<f4')]"));
        let end = 10 + GOOD.len();
        assert!(
            message(&npy(GOOD, &[0; 7])).contains(&format!("byte {}: the end of the file, 7 bytes", end + 7))
        );
        assert!(message(&npy(GOOD, &[0; 9])).contains(&format!("byte {}: 1 bytes after", end + 8)));
        assert!(message(&npy(&GOOD.replace("(2,)", "(0,)"), &[])).contains("no values"));
        let huge = GOOD.replace("(2,)", "(99999999999, 99999999999)");
        assert!(message(&npy(&huge, &[])).contains("'shape'"));
    }

    #[test]
    fn every_prefix_is_refused() {
        let whole = npy(GOOD, &[0; 8]);
        for len in 0..whole.len() {
            assert!(parse("x", &whole[..len]).is_err(), "{len}");
        }
    }
}
