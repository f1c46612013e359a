//! Capture files of every kind, whole and damaged.

use std::time::Duration;

use gradwire_testbench::input::{Capture, Writer};

const SECOND: Duration = Duration::from_secs(1_700_000_000);

/// A file in one of the byte orders.
struct Bytes {
    big_endian: bool,
    bytes: Vec<u8>,
}

impl Bytes {
    fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes.extend(if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
        self
    }

    fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes.extend(if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
        self
    }

    /// A pcapng block around `body`.
    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Self)) -> &mut Self {
        self.u32(kind).u32(0);
        let start = self.bytes.len();
        body(self);
        self.bytes.resize(start + (self.bytes.len() - start).next_multiple_of(4), 0);
        let len = (self.bytes.len() - start + 12) as u32;
        let len_bytes = if self.big_endian { len.to_be_bytes() } else { len.to_le_bytes() };
        self.bytes[start - 4..start].copy_from_slice(&len_bytes);
        self.u32(len)
    }
}

fn pcap(big_endian: bool, magic: u32, link: u32, frames: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
    let mut file = Bytes { big_endian, bytes: Vec::new() };
    file.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(96).u32(link);
    for (seconds, fraction, bytes, frame_len) in frames {
        file.u32(*seconds).u32(*fraction).u32(bytes.len() as u32).u32(*frame_len);
        file.bytes.extend(*bytes);
    }
    file.bytes
}

fn section(file: &mut Bytes) {
    file.block(0x0a0d_0d0a, |body| {
        body.u32(0x1a2b_3c4d).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX);
    });
}

fn interface(file: &mut Bytes, link: u16, snap_len: u32, tsresol: Option<u8>) {
    file.block(1, |body| {
        body.u16(link).u16(0).u32(snap_len);
        if let Some(resolution) = tsresol {
            body.u16(9).u16(1);
            body.bytes.extend([resolution, 0, 0, 0]);
            body.u16(0).u16(0);
        }
    });
}

fn enhanced(file: &mut Bytes, id: u32, ticks: u64, bytes: &[u8], frame_len: u32) {
    file.block(6, |body| {
        body.u32(id).u32((ticks >> 32) as u32).u32(ticks as u32).u32(bytes.len() as u32).u32(frame_len);
        body.bytes.extend(bytes);
    });
}

fn message(bytes: &[u8]) -> String {
    Capture::parse("x.pcap", bytes).unwrap_err().to_string()
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for big_endian in [false, true] {
        for (magic, fraction) in [(0xa1b2_c3d4, 250_000), (0xa1b2_3c4d, 250_000_000)] {
            let file = pcap(big_endian, magic, 1, &[(1_700_000_000, fraction, b"frame", 5)]);
            let capture = Capture::parse("x", &file).unwrap();
            assert_eq!(capture.frames.len(), 1);
            assert_eq!(capture.frames[0].bytes, b"frame");
            assert_eq!(capture.frames[0].time, SECOND + Duration::from_millis(250));
        }
    }
}

#[test]
fn pcap_with_an_fcs_loses_it() {
    // f = 1, FCS length in 16-bit words = 2.
    let link = 1 | 0x2400_0000;
    let file = pcap(false, 0xa1b2_c3d4, link, &[(1, 0, b"frameFCS!", 9)]);
    assert_eq!(Capture::parse("x", &file).unwrap().frames[0].bytes, b"frame");
}

#[test]
fn pcapng_in_both_byte_orders_with_interfaces_of_their_own_resolution() {
    for big_endian in [false, true] {
        let mut file = Bytes { big_endian, bytes: Vec::new() };
        section(&mut file);
        interface(&mut file, 1, 0, None);
        interface(&mut file, 1, 0, Some(9));
        interface(&mut file, 1, 0, Some(0x80 | 10));
        file.block(5, |body| {
            body.u32(0);
        });
        enhanced(&mut file, 0, 1_700_000_000_000_000, b"first", 5);
        enhanced(&mut file, 1, 1_700_000_000_000_000_001, b"second", 6);
        enhanced(&mut file, 2, 1_700_000_000 << 10 | 512, b"third", 5);
        file.block(3, |body| {
            body.u32(6);
            body.bytes.extend(b"fourth");
        });
        let capture = Capture::parse("x", &file.bytes).unwrap();
        let times: Vec<Duration> = capture.frames.iter().map(|frame| frame.time).collect();
        let half = SECOND + Duration::from_millis(500);
        assert_eq!(times, [SECOND, SECOND + Duration::from_nanos(1), half, half]);
        let bytes: Vec<&[u8]> = capture.frames.iter().map(|frame| &frame.bytes[..]).collect();
        assert_eq!(bytes, [&b"first"[..], b"second", b"third", b"fourth"]);
    }
}

#[test]
fn a_second_section_may_have_the_other_byte_order() {
    let mut file = Bytes { big_endian: false, bytes: Vec::new() };
    for big_endian in [false, true, true, false] {
        file.big_endian = big_endian;
        section(&mut file);
        interface(&mut file, 1, 0, None);
        enhanced(&mut file, 0, 7, b"frame", 5);
    }
    assert_eq!(Capture::parse("x", &file.bytes).unwrap().frames.len(), 4);
}

#[test]
fn frames_cut_by_a_snap_length_are_counted_and_left_out() {
    let frames: [(u32, u32, &[u8], u32); 3] =
        [(1, 0, b"whole", 5), (2, 0, b"cut", 1500), (3, 0, b"whole", 5)];
    let capture = Capture::parse("x", &pcap(false, 0xa1b2_c3d4, 1, &frames)).unwrap();
    assert_eq!((capture.frames.len(), capture.cut), (2, 1));
    assert_eq!(capture.frames[1].number, 3, "numbers are those of the file");

    let mut file = Bytes { big_endian: false, bytes: Vec::new() };
    section(&mut file);
    interface(&mut file, 1, 3, None);
    enhanced(&mut file, 0, 7, b"cut", 1500);
    file.block(3, |body| {
        body.u32(1500);
        body.bytes.extend(b"cut");
    });
    let capture = Capture::parse("x", &file.bytes).unwrap();
    assert_eq!((capture.frames.len(), capture.cut), (0, 2));
}

#[test]
fn refusals_name_file_offset_and_what_would_be_right() {
    assert_eq!(
        message(b"GIF89a"),
        "x.pcap: byte 0: [47, 49, 46, 38, 39, 61], expected a capture: pcap (a1b2c3d4 or a1b23c4d in either byte order) \
         or pcapng (0a0d0d0a)"
    );
    assert!(message(b"").starts_with("x.pcap: byte 0: the end of the file, expected the magic number"));
    let cooked = pcap(false, 0xa1b2_c3d4, 113, &[]);
    assert!(message(&cooked).starts_with("x.pcap: byte 20: link type 113, expected 1 (Ethernet)"));
    let whole = pcap(false, 0xa1b2_c3d4, 1, &[(1, 0, b"frame", 5)]);
    let cut = &whole[..whole.len() - 1];
    assert_eq!(message(cut), "x.pcap: byte 44: the end of the file, expected a frame that reaches byte 45");
    let two = pcap(false, 0xa1b2_c3d4, 1, &[(1, 0, b"frame", 5), (2, 0, b"again", 5)]);
    let torn = Capture::parse("x.pcap", &two[..two.len() - 1]).unwrap();
    assert_eq!((torn.frames.len(), torn.torn), (1, Some(two.len() as u64 - 1)));
    assert_eq!(Capture::parse("x.pcap", &two).unwrap().torn, None);
    let mut endless = pcap(false, 0xa1b2_c3d4, 1, &[]);
    endless.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert!(message(&endless).contains("byte 32: a frame of 4294967295 bytes, expected at most"));

    let mut file = Bytes { big_endian: false, bytes: Vec::new() };
    section(&mut file);
    interface(&mut file, 113, 0, None);
    enhanced(&mut file, 0, 7, b"frame", 5);
    assert!(message(&file.bytes).starts_with("x.pcap: byte 36: link type 113, expected 1 (Ethernet)"));
    let mut file = Bytes { big_endian: false, bytes: Vec::new() };
    section(&mut file);
    enhanced(&mut file, 3, 7, b"frame", 5);
    assert!(
        message(&file.bytes).starts_with("x.pcap: byte 36: interface 3, expected one of the section's 0")
    );
}

#[test]
fn no_damage_panics() {
    let mut file = Bytes { big_endian: true, bytes: Vec::new() };
    section(&mut file);
    interface(&mut file, 1, 0, Some(6));
    enhanced(&mut file, 0, 7, b"frame", 5);
    file.block(3, |body| {
        body.u32(5);
        body.bytes.extend(b"frame");
    });
    let classic = pcap(false, 0xa1b2_c3d4, 1, &[(1, 0, b"frame", 5), (2, 0, b"again", 5)]);
    for whole in [file.bytes, classic] {
        for len in 0..whole.len() {
            // A file that ends between two records is a whole file.
            drop(Capture::parse("x", &whole[..len]));
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 3, 0x7f, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                drop(Capture::parse("x", &damaged));
            }
        }
    }
}

#[test]
fn written_captures_read_back() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    writer.frame(SECOND + Duration::from_nanos(17), b"one").unwrap();
    writer.frame(SECOND, b"").unwrap();
    writer.finish().unwrap();
    let capture = Capture::parse("x", &bytes).unwrap();
    let frames: Vec<(Duration, &[u8])> =
        capture.frames.iter().map(|frame| (frame.time, &frame.bytes[..])).collect();
    assert_eq!(frames, [(SECOND + Duration::from_nanos(17), &b"one"[..]), (SECOND, b"")]);
}
