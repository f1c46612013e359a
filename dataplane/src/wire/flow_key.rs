//! The key of a flow: addresses, ports and VLANs in five words, and how logs and consoles print it.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;

/// Which flow a packet belongs to: addresses, ports, VLANs, version of IP. One direction of a
/// connection.
#[derive(Clone, Copy, Debug, Default, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct FlowKey(pub [u64; 5]);

impl PartialEq for FlowKey {
    /// Without a branch a word, and without a call: a look-up compares several keys.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

impl FlowKey {
    /// Source and destination: address and port.
    #[must_use]
    pub fn ends(&self) -> [SocketAddr; 2] {
        let Self([a, b, c, d, rest]) = *self;
        let addresses = if rest & 1 == 0 {
            [(a >> 32) as u32, a as u32].map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))
        } else {
            [(a, b), (c, d)]
                .map(|(high, low)| IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))))
        };
        let [source, destination] = addresses;
        [SocketAddr::new(source, (rest >> 48) as u16), SocketAddr::new(destination, (rest >> 32) as u16)]
    }

    /// The key of the connection's other direction.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        let Self([a, b, c, d, rest]) = *self;
        let ports = ((rest >> 32) as u32).rotate_left(16);
        let rest = (ports as u64) << 32 | rest & 0xffff_ffff;
        Self(if rest & 1 == 0 { [a.rotate_left(32), b, c, d, rest] } else { [c, d, a, b, rest] })
    }

    /// A hash that `seed` keys.
    #[must_use]
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        let Self([a, .., rest]) = *self;
        // IPv4 has no other words.
        if rest & 1 == 0 { mix(mix(seed, a), rest) } else { self.0.into_iter().fold(seed, mix) }
    }

    /// VLAN identifiers, outer first; 0 if there is no tag.
    #[must_use]
    pub const fn vlans(&self) -> [u16; 2] {
        let vlans = self.0[4] >> 8;
        [(vlans >> 12) as u16 & 0x0fff, vlans as u16 & 0x0fff]
    }
}

/// The next step of a hash. Of the outcome's halves, the lower one knows of all that came before.
pub(crate) const fn mix(hash: u64, word: u64) -> u64 {
    /// 2^64 / golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (hash ^ word).wrapping_mul(MULTIPLIER);
    mixed ^ (mixed >> 32)
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [source, destination] = self.ends();
        write_end(f, source)?;
        f.write_str(" > ")?;
        write_end(f, destination)?;
        for vlan in self.vlans() {
            if vlan != 0 {
                write!(f, " vlan {vlan}")?;
            }
        }
        Ok(())
    }
}

/// As core's own `Display`, which has paths to panics (it pads).
fn write_end(f: &mut fmt::Formatter<'_>, end: SocketAddr) -> fmt::Result {
    match end.ip() {
        IpAddr::V4(ip) => write_ipv4(f, ip)?,
        IpAddr::V6(ip) => {
            f.write_str("[")?;
            write_ipv6(f, ip)?;
            f.write_str("]")?;
        }
    }
    write!(f, ":{}", end.port())
}

fn write_ipv4(f: &mut fmt::Formatter<'_>, ip: Ipv4Addr) -> fmt::Result {
    let [a, b, c, d] = ip.octets();
    write!(f, "{a}.{b}.{c}.{d}")
}

/// RFC 5952, with section 5 for IPv4-mapped addresses.
fn write_ipv6(f: &mut fmt::Formatter<'_>, ip: Ipv6Addr) -> fmt::Result {
    if let Some(ip) = ip.to_ipv4_mapped() {
        f.write_str("::ffff:")?;
        return write_ipv4(f, ip);
    }
    let words = ip.segments();
    let zeros = longest_zeros(words);
    for (place, word) in words.into_iter().enumerate() {
        if place == zeros.start && !zeros.is_empty() {
            f.write_str("::")?;
        }
        if !zeros.contains(&place) {
            let separator = if place == 0 || place == zeros.end { "" } else { ":" };
            write!(f, "{separator}{word:x}")?;
        }
    }
    Ok(())
}

/// The zeros that RFC 5952 section 4.2 writes as `::`: the first of the longest runs of zeros, if
/// it is longer than one.
fn longest_zeros(words: [u16; 8]) -> Range<usize> {
    let (mut longest, mut run) = (0..0, 0..0);
    for (place, word) in words.into_iter().enumerate() {
        if word != 0 {
            run.start = place + 1;
        } else {
            run.end = place + 1;
            if run.len() > longest.len().max(1) {
                longest = run.clone();
            }
        }
    }
    longest
}
