//! The golden files, which `tests/golden/make_v1.py` wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Files whose names start with `prefix`, by name.
pub fn golden(prefix: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path));
    let wanted = named.filter(|(name, _)| name.starts_with(prefix));
    wanted.map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

/// Host's, wire's and restored frame, by name. In a file, each stands behind its length in two
/// bytes, big-endian.
pub fn golden_frames() -> BTreeMap<String, [Vec<u8>; 3]> {
    let split = |bytes: Vec<u8>| {
        let mut rest = &bytes[..];
        let frames = [(); 3].map(|()| {
            let (len, after) = rest.split_first_chunk::<2>().unwrap();
            let (frame, after) = after.split_at(u16::from_be_bytes(*len).into());
            rest = after;
            frame.to_vec()
        });
        assert!(rest.is_empty());
        frames
    };
    let frames: BTreeMap<_, _> =
        golden("v1_frame_").into_iter().map(|(name, bytes)| (name, split(bytes))).collect();
    assert_eq!(frames.len(), 8);
    frames
}
