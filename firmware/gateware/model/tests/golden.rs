//! The golden files of codec 1's groups, which a second implementation wrote
//! (`dataplane/tests/golden/make_v1.py`).

use std::fs;
use std::path::Path;

use gradwire::codec::{Params, max_encoded_len};
use gradwire_gateware_model::{decode_payload, encode_payload};

#[test]
fn the_model_makes_the_golden_bursts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../dataplane/tests/golden");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let bursts = paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("v1_burst_"));
    let mut seen = 0;
    for path in bursts {
        println!("{}", path.display());
        let bytes = fs::read(path).unwrap();
        let [b, k, x, _, count @ ..] = *bytes.first_chunk::<8>().unwrap();
        let params = Params::from_exponents(b, k, x as i8).unwrap();
        let values_len = 4 * u32::from_le_bytes(count) as usize;
        let (values, rest) = bytes[8..].split_at(values_len);
        let (groups, decoded) = rest.split_at(rest.len() - values_len);

        let mut out = vec![0xaa; max_encoded_len(values.len())];
        let run = encode_payload(values, &mut out, params).unwrap();
        assert_eq!(&out[..run.len], groups);
        let mut out = vec![0x55; values.len()];
        assert_eq!(decode_payload(groups, &mut out, params).unwrap().len, groups.len());
        assert_eq!(out, decoded);
        seen += 1;
    }
    assert_eq!(seen, 7);
}
