//! Compression and headers: what a message of values costs on the wire and in its hosts.

use std::str::FromStr;

use crate::error::SimError;
use crate::time::{Picos, picos};
use crate::workload::VALUE_BITS;

/// The content of a message; each compresses differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// One worker's gradient.
    Gradient,
    /// A sum over several workers, up to all of them.
    PartialSum,
    /// A sum of this many workers, as an aggregator in the network encodes it.
    Sum(u32),
    /// Parameters, as a server distributes them.
    Parameters,
}

/// Compression ratios: raw bytes over compressed bytes, without headers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// Of [`Content::Gradient`].
    pub gradient: f64,
    /// Of [`Content::PartialSum`], and of [`Content::Sum`] where `bound` does not say more.
    pub partial_sum: f64,
    /// Of [`Content::Parameters`]; 1.0 for a codec made for gradients.
    pub parameters: f64,
    /// The exponent of the recorded bound, if the ratios are recorded ones: then sums of many
    /// workers compress less.
    pub bound: Option<u8>,
}

/// Workers in the sums of [`SUM_RATIOS`].
const SUMMED: [u32; 4] = [1, 4, 16, 64];

/// Ratios of exact sums of 1, 4, 16 and 64 workers by bound exponent, coded anew at the same bound.
/// The gradients of four workers were recorded (run hdc256); those of 16 and 64 are drawn from them
/// with replacement.
pub const SUM_RATIOS: [(u8, [f64; 4]); 3] =
    [(10, [6.49, 5.57, 5.1, 4.0]), (8, [9.71, 7.66, 7.2, 6.6]), (6, [15.0, 13.8, 13.2, 12.6])];

impl Ratios {
    /// The ratio of what a message holds.
    ///
    /// Of a recorded bound, a sum's ratio falls with the logarithm of its workers, in proportion to
    /// the gradient's.
    #[must_use]
    pub fn of(&self, content: Content) -> f64 {
        let recorded = self.bound.and_then(|bound| SUM_RATIOS.iter().find(|known| known.0 == bound));
        match (content, recorded) {
            (Content::Gradient, _) => self.gradient,
            (Content::Parameters, _) => self.parameters,
            (Content::Sum(workers), Some((_, sums))) => {
                let place = f64::from(workers.max(1)).log2() / 2.0;
                let at = (place as usize).min(SUMMED.len() - 2);
                let part = (place - at as f64).min(1.0);
                self.gradient * (sums[at] + part * (sums[at + 1] - sums[at])) / sums[0]
            }
            (Content::PartialSum | Content::Sum(_), _) => self.partial_sum,
        }
    }
}

/// Values of a chunk, the unit that aggregators in the network sum.
pub const CHUNK_VALUES: u64 = 2048;

/// Ratios recorded on a 4-worker ring training an MLP (run hdc256, iteration 40): bound exponent,
/// ratio of one worker's gradient, ratio of everything the ring sent, which is partial sums for the
/// most part.
pub const RECORDED_RATIOS: [(u8, f64, f64); 3] = [(10, 6.19, 5.69), (8, 8.71, 7.30), (6, 14.23, 11.35)];

/// The place where values are encoded and decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CodecPlace {
    /// In the NIC, at the rate of the link and packet by packet: no host time, as many packets as
    /// before.
    Nic,
    /// On the host, in bytes of raw values a second, one message at a time, before it is cut into
    /// packets. It is a processor of its own: compute does not slow down.
    Host {
        /// Encoder's rate; infinite for a codec that is free.
        encode: f64,
        /// Decoder's rate.
        decode: f64,
    },
}

/// A codec, where it runs, and what it achieves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    /// The place where it runs.
    pub place: CodecPlace,
    /// The ratios that it achieves.
    pub ratios: Ratios,
}

impl Compression {
    /// Truncation of every value to 16 bits, parameters too, at no cost: the baseline.
    pub const TRUNCATION_16: Self = Self {
        place: CodecPlace::Host { encode: f64::INFINITY, decode: f64::INFINITY },
        ratios: Ratios { gradient: 2.0, partial_sum: 2.0, parameters: 2.0, bound: None },
    };
}

impl FromStr for Compression {
    type Err = SimError;

    /// `16bit`, `in-nic:RATIOS` or `on-host:RATIOS@ENCODE,DECODE`, with rates in GB/s of raw
    /// values. RATIOS is `GRADIENT[/PARTIAL_SUM[/PARAMETERS]]`, or `b10`, `b8`, `b6` for the
    /// recorded ones at that bound.
    fn from_str(text: &str) -> Result<Self, SimError> {
        let bad = || SimError::BadCompression { text: text.to_owned() };
        if text == "16bit" {
            return Ok(Self::TRUNCATION_16);
        }
        let (place, rest) = text.split_once(':').ok_or_else(bad)?;
        match (place, rest.split_once('@')) {
            ("in-nic", None) => Ok(Self { place: CodecPlace::Nic, ratios: ratios(rest).ok_or_else(bad)? }),
            ("on-host", Some((rest, rates))) => {
                let (encode, decode) = rates.split_once(',').ok_or_else(bad)?;
                let rate = |text| positive(text).map(|rate| rate * 1e9).ok_or_else(bad);
                let place = CodecPlace::Host { encode: rate(encode)?, decode: rate(decode)? };
                Ok(Self { place, ratios: ratios(rest).ok_or_else(bad)? })
            }
            _ => Err(bad()),
        }
    }
}

fn positive(text: &str) -> Option<f64> {
    text.parse().ok().filter(|&number: &f64| number.is_finite() && number > 0.0)
}

fn ratios(text: &str) -> Option<Ratios> {
    if let Some(bound) = text.strip_prefix('b') {
        let bound: u8 = bound.parse().ok()?;
        let &(_, gradient, partial_sum) = RECORDED_RATIOS.iter().find(|recorded| recorded.0 == bound)?;
        return Some(Ratios { gradient, partial_sum, parameters: 1.0, bound: Some(bound) });
    }
    let given: Vec<f64> = text.split('/').map(positive).collect::<Option<_>>()?;
    let gradient = *given.first()?;
    let partial_sum = given.get(1).copied().unwrap_or(gradient);
    (given.len() <= 3).then(|| Ratios {
        gradient,
        partial_sum,
        parameters: given.get(2).copied().unwrap_or(1.0),
        bound: None,
    })
}

/// Packets: what a message is cut into, and their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Payload bytes of a full packet.
    pub payload: u64,
    /// Bytes a packet takes beyond its payload.
    pub overhead: u64,
}

impl Packets {
    /// TCP over IPv4 with timestamps (20 + 32 bytes inside the MTU), and on Ethernet a header, FCS,
    /// preamble and gap (14 + 4 + 8 + 12 bytes).
    #[must_use]
    pub fn of_mtu(mtu: u64) -> Self {
        Self { payload: mtu.saturating_sub(52).max(1), overhead: 52 + 38 }
    }

    /// The same wire with chunks in UDP: 20 + 8 + 20 bytes of headers inside the MTU, which are 4
    /// fewer than those of TCP.
    #[must_use]
    fn of_chunks(self) -> Self {
        Self { payload: self.payload + 4, overhead: self.overhead.saturating_sub(4) }
    }
}

/// Time in the host before and after the wire, and the bits on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireCost {
    /// Bits on the wire, headers included.
    pub bits: u64,
    /// Time in the sender's encoder.
    pub encode: Picos,
    /// Time in the receiver's decoder.
    pub decode: Picos,
}

/// From raw values to wire and host time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wire {
    /// `None` sends values as `f32`.
    pub compression: Option<Compression>,
    /// `None` counts values only, as the published simulator does.
    pub packets: Option<Packets>,
}

impl Wire {
    /// The cost of `bits` of raw values.
    #[must_use]
    pub fn cost(&self, bits: u64, content: Content) -> WireCost {
        let Some(Compression { place, ratios }) = self.compression else { return self.plain_cost(bits) };
        let ratio = ratios.of(content);
        let compressed = (bits as f64 / ratio).ceil() as u64;
        match place {
            CodecPlace::Nic => {
                WireCost { bits: compressed.saturating_add(self.header_bits(bits)), encode: 0, decode: 0 }
            }
            // Nothing to gain is sent as it is.
            CodecPlace::Host { .. } if ratio == 1.0 => self.plain_cost(bits),
            CodecPlace::Host { .. } => self.coded_cost(bits, compressed),
        }
    }

    /// The cost of `bits` of raw values as they are.
    #[must_use]
    pub fn plain_cost(&self, bits: u64) -> WireCost {
        WireCost { bits: bits.saturating_add(self.header_bits(bits)), encode: 0, decode: 0 }
    }

    /// The cost of `bits` of raw values of which a codec on the host makes `coded`. Its rates are
    /// those of [`compression`](Self::compression) on the host; without, it takes no time.
    #[must_use]
    pub fn coded_cost(&self, bits: u64, coded: u64) -> WireCost {
        let bytes = bits as f64 / 8.0;
        let (encode, decode) = match self.compression {
            Some(Compression { place: CodecPlace::Host { encode, decode }, .. }) => (encode, decode),
            _ => (f64::INFINITY, f64::INFINITY),
        };
        WireCost {
            bits: coded.saturating_add(self.header_bits(coded)),
            encode: picos(bytes / encode),
            decode: picos(bytes / decode),
        }
    }

    /// The cost of `bits` of raw values as chunks of [`CHUNK_VALUES`], each in packets of its own.
    /// Hosts make the packets, so a codec in the NIC saves packets like one on the host.
    #[must_use]
    pub fn chunk_cost(&self, bits: u64, content: Content) -> WireCost {
        let ratio = self.compression.map_or(1.0, |codec| codec.ratios.of(content));
        let chunks = bits.div_ceil(CHUNK_VALUES * VALUE_BITS);
        let compressed = (bits as f64 / ratio).ceil() as u64;
        let headers = self.packets.map_or(0, |packets| {
            let Packets { payload, overhead } = packets.of_chunks();
            let bytes = compressed.div_ceil(8).div_ceil(chunks.max(1));
            (chunks * bytes.div_ceil(payload)).saturating_mul(overhead * 8)
        });
        let (encode, decode) = match self.compression {
            Some(Compression { place: CodecPlace::Host { encode, decode }, .. }) if ratio != 1.0 => {
                let bytes = bits as f64 / 8.0;
                (picos(bytes / encode), picos(bytes / decode))
            }
            _ => (0, 0),
        };
        WireCost { bits: compressed.saturating_add(headers), encode, decode }
    }

    fn header_bits(&self, bits: u64) -> u64 {
        self.packets.map_or(0, |Packets { payload, overhead }| {
            bits.div_ceil(8 * payload).saturating_mul(overhead * 8)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recording counted every header of a real ring on the wire: 4.46, 5.33 and 7.06.
    #[test]
    fn headers_bring_the_recorded_ratios_down_to_those_recorded_on_the_wire() {
        let packets = Some(Packets::of_mtu(1500));
        let bits = 1448 * 8 * 1000;
        let raw = Wire { compression: None, packets }.cost(bits, Content::PartialSum).bits as f64;
        for (name, on_wire) in [("b10", 4.46), ("b8", 5.33), ("b6", 7.06)] {
            let compression = Some(format!("in-nic:{name}").parse().unwrap());
            let sent = Wire { compression, packets }.cost(bits, Content::PartialSum).bits as f64;
            assert!((raw / sent - on_wire).abs() < 0.01, "{name}: {} is not {on_wire}", raw / sent);
        }
    }

    #[test]
    fn a_host_codec_sends_fewer_packets_than_a_nic_codec() {
        let packets = Some(Packets::of_mtu(1500));
        let cost = |text: &str| {
            Wire { compression: Some(text.parse().unwrap()), packets }.cost(1448 * 8 * 64, Content::Gradient)
        };
        let (nic, host) = (cost("in-nic:4"), cost("on-host:4@1,2"));
        assert_eq!(nic.bits - host.bits, 48 * 90 * 8);
        assert_eq!((nic.encode, nic.decode), (0, 0));
        assert_eq!((host.encode, host.decode), (1448 * 64 * 1000, 1448 * 64 * 500));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "in-nic", "in-nic:0", "in-nic:x", "in-nic:4@1,1", "on-host:4", "on-host:4@1", "in-nic:b9"]
        {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }
}
