//! Compresses one TCP segment and restores it, and prints what was saved.

use gradwire::{
    Change, DEFAULT_MARK, DEFAULT_TOS, Egress, Ingress, Kernel, Millis, NO_CAPABILITIES, Rule, Rules, Verdict,
};

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Bytes before the payload: Ethernet, IPv4, TCP.
const HEADERS_LEN: usize = 14 + 20 + 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Frames of type of service 0x28; every value stays within 2^-10. Both ends are configured
    // alike: nobody has to agree on anything.
    let rule = Rule::STATIC;
    let rules = Rules::new(&[rule], DEFAULT_MARK)?;
    // Of at most 64 * 8 connections; the seed should be random.
    let mut egress = Egress::<64>::new(rules.clone(), Kernel::detect(), 1500, 0x5eed);
    let mut ingress = Ingress::new(rules, Kernel::detect(), 1500);
    let (mut wire, mut restored) = ([0; 1522], [0; 1522]);

    // The SYN tells egress where in the stream the values start. It leaves as it is.
    let syn = frame(SYN, 999, &[]);
    assert!(matches!(egress.process(&syn, &mut wire, Millis(0), &NO_CAPABILITIES), Verdict::Untouched(_)));

    let values: Vec<f32> = (0..360u16).map(|i| f32::from(i).sin() / 50.0).collect();
    let payload: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let sent = frame(ACK, 1000, &payload);
    let Verdict::Changed { change: Change::Compressed, len } =
        egress.process(&sent, &mut wire, Millis(1), &NO_CAPABILITIES)
    else {
        return Err("egress left the segment as it was".into());
    };
    let wire = &wire[..len];

    let Verdict::Changed { change: Change::Restored, len } =
        ingress.process(wire, &mut restored, &NO_CAPABILITIES)
    else {
        return Err("ingress did not restore the segment".into());
    };
    let restored = &restored[..len];

    let (received, _) = restored[HEADERS_LEN..].as_chunks();
    let errors = values.iter().zip(received).map(|(value, bytes)| (value - f32::from_le_bytes(*bytes)).abs());
    let (worst, bound) = (errors.fold(0.0, f32::max), rule.profile.bound());
    println!("from the host {} bytes, on the wire {}", sent.len(), wire.len());
    println!("the largest error of {} values is {worst}, their bound {bound}", values.len());
    assert!(restored.len() == sent.len() && wire.len() < sent.len() && worst < bound);
    Ok(())
}

/// A TCP segment in IPv4 in Ethernet, as a host hands it to its card.
fn frame(flags: u8, seq: u32, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let ip_len = (20 + 20 + payload.len()) as u16;

    let mut ip = vec![0x45, DEFAULT_TOS];
    ip.extend(ip_len.to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]); // don't fragment, 64 hops, TCP
    ip.extend([source, destination].concat());
    let ip_checksum = !sum(&ip);
    ip[10..12].copy_from_slice(&ip_checksum.to_be_bytes());

    let mut tcp = [40000u16.to_be_bytes(), 5400u16.to_be_bytes()].concat();
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, flags, 0x10, 0, 0, 0, 0, 0]); // 20 bytes long, some window
    tcp.extend(payload);
    // RFC 9293 section 3.1: over addresses, protocol, length and segment.
    let pseudo_header = [&ip[12..20], &[0, 6], &(ip_len - 20).to_be_bytes()].concat();
    let tcp_checksum = !sum(&[&pseudo_header, &tcp[..]].concat());
    tcp[16..18].copy_from_slice(&tcp_checksum.to_be_bytes());

    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00], &ip[..], &tcp].concat()
}

/// The ones' complement sum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    ((folded >> 16) + folded) as u16
}
