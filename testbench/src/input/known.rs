//! Names of formats that the tool does not read, so that messages can say what a file is and not
//! only what it is not.

const PCAP: &str = "a pcap capture: `gradwire replay` reads it";
const PICKLE: &str = "a pickle: save one array with numpy.save(f, a.astype('<f4'))";

/// The starts of formats; what they are, and what makes of them what the tool reads.
const FORMATS: &[(usize, &[u8], &str)] = &[
    (
        0,
        b"\x93NUMPY",
        "an .npy file: `gradwire check` reads it, `encode` its values, numpy.load(f).tofile(g)",
    ),
    (
        0,
        b"PK\x03\x04",
        "a zip archive, as .npz and PyTorch's .pt are: save one array with numpy.save(f, a.astype('<f4'))",
    ),
    (0, b"\x1f\x8b", "gzip: unpack it with gunzip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd: unpack it with unzstd"),
    (0, b"\xfd7zXZ\0", "xz: unpack it with unxz"),
    (0, b"BZh", "bzip2: unpack it with bunzip2"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5: save one array with numpy.save(f, a.astype('<f4'))"),
    (8, b"{\"", "safetensors: save one tensor with numpy.save(f, t.float().numpy())"),
    (0, b"\x80\x02", PICKLE),
    (0, b"\x80\x04", PICKLE),
    (0, &super::coded::MAGIC, "a file of `gradwire encode`: `gradwire decode` reads it"),
    (0, b"\x0a\x0d\x0d\x0a", "a pcapng capture: `gradwire replay` reads it"),
    (0, b"\xd4\xc3\xb2\xa1", PCAP),
    (0, b"\xa1\xb2\xc3\xd4", PCAP),
    (0, b"\x4d\x3c\xb2\xa1", PCAP),
    (0, b"\xa1\xb2\x3c\x4d", PCAP),
];

/// The format of which `bytes` seem to be the start: a known format by its name and with a remedy,
/// else the first bytes.
#[must_use]
pub fn found(bytes: &[u8]) -> String {
    match name(bytes) {
        Some(name) => name.to_owned(),
        None if bytes.is_empty() => "an empty file".into(),
        None => format!("{:02x?}", bytes.get(..6).unwrap_or(bytes)),
    }
}

/// The format that `bytes` start, and what to do with it.
#[must_use]
pub fn name(bytes: &[u8]) -> Option<&'static str> {
    let starts = |at: usize, start: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(start));
    FORMATS.iter().find(|(at, start, _)| starts(*at, start)).map(|(_, _, name)| *name)
}
