//! Wire to host: checksums, segment header, values, headers.

use crate::checksum::Sum;
use crate::codec::VALUE_LEN;
use crate::flow::capabilities::{Advertisement, CapabilityTable, Start};
use crate::kernels::Kernel;
use crate::profile::Profile;
use crate::rules::{ECN, Framing, Handshake, Rule, Rules};
use crate::verdict::{Change, Counters, DropReason, PassReason, Verdict};
use crate::wire::capability::Capability;
use crate::wire::frame::{EXCLUDED_FLAGS, Extent, IpFrame, MIN_FRAME_LEN, Packet, Transport, tcp_flags};
use crate::wire::rewrite::{Headers, L4Checksum, change_headers, copy_headers, write_at, write_options};
use crate::wire::segment_header::{CHECKSUM_CONSTANT, SegmentHeader};

/// The receiving direction: wire to host. It keeps no state but its counters, and writes to the
/// [`CapabilityTable`] what far ends restore.
#[derive(Debug)]
pub struct Ingress {
    rules: Rules,
    kernel: Kernel,
    mtu: u16,
    counters: Counters,
}

/// The way to restore a compressed packet.
struct Restoration {
    tos: u8,
    head_len: usize,
    raw_len: usize,
    profile: Profile,
    /// None: the datagram that the host sent had none.
    header_sum: Option<Sum>,
    /// Bytes may follow the payload: MACs and switches pad frames to the Ethernet minimum.
    padded: bool,
}

impl Ingress {
    /// An engine that restores IP packets of at most `mtu` bytes.
    #[must_use]
    pub const fn new(rules: Rules, kernel: Kernel, mtu: u16) -> Self {
        Self { rules, kernel, mtu, counters: Counters::new() }
    }

    /// One frame from the wire: Ethernet II, without FCS. Its replacement, if there is one, is
    /// written to `out`, which must have room for the MTU and [`crate::wire::frame::MAX_LINK_LEN`]
    /// bytes.
    ///
    /// Give it every frame from the wire, SYNs among them: what a far end advertises on its SYN is
    /// in `capabilities` before this returns. A frame may be padded to Ethernet's minimum; its
    /// replacement ends where the IP packet ends.
    pub fn process(&mut self, frame: &[u8], out: &mut [u8], capabilities: &CapabilityTable) -> Verdict {
        let verdict = match self.decide(frame, out, capabilities) {
            Ok(len) => Verdict::Changed { change: Change::Restored, len },
            Err(verdict) => verdict,
        };
        self.counters.count(verdict, frame.len());
        verdict
    }

    fn decide(&self, frame: &[u8], out: &mut [u8], capabilities: &CapabilityTable) -> Result<usize, Verdict> {
        let ip_frame = IpFrame::parse(frame)?;
        if self.rules.is_mark(ip_frame.tos()) {
            return self.receive_routed(&ip_frame, out);
        }
        if ip_frame.may_be_syn()
            && let Some(len) = self.strip_option(ip_frame, out, capabilities)
        {
            return Err(Verdict::Changed { change: Change::OptionStripped, len });
        }
        match self.rules.find(ip_frame.tos()) {
            Some(rule) if rule.framing == Framing::InPlace => self.receive_in_place(&ip_frame, rule, out),
            _ => Err(PassReason::NotCompressed.into()),
        }
    }

    /// Records the capability of a SYN, and writes the SYN to `out` as the far host sent it; its
    /// length. None if it has no capability option that can be relied on: it then stays as it is,
    /// since hosts ignore the option.
    #[cold] // and by value: what is known of other frames then stays in registers
    fn strip_option(
        &self,
        ip_frame: IpFrame<'_>,
        out: &mut [u8],
        capabilities: &CapabilityTable,
    ) -> Option<usize> {
        let packet = ip_frame.packet().ok()?;
        let start = match packet.transport() {
            Transport::Tcp { flags, .. } if flags & (tcp_flags::FIN | tcp_flags::RST) != 0 => return None,
            Transport::Tcp { seq, flags } if flags & tcp_flags::SYN != 0 => match flags & tcp_flags::ACK {
                // An IP length field bounds the data.
                0 => Start::Syn { number: seq, len: packet.payload_len() as u16 },
                _ => Start::Answer { acknowledges: packet.ack() },
            },
            _ => return None,
        };
        // Both ends are configured: nothing is asked, and nothing answered.
        if self.rules.find(packet.tos()).is_some_and(|rule| rule.handshake == Handshake::Off) {
            return None;
        }
        let (capability, place) = Capability::find(packet.tcp_options())?;
        packet.verify(self.kernel).ok()?;
        let len = write_options(&packet, place.removal(), self.kernel, out)?;
        let advertised = Advertisement { capability, tos: packet.tos() & !ECN };
        capabilities.learn(&packet.flow_key().reversed(), start, advertised);
        Some(len)
    }

    /// A frame that carries the mark. If it may be a foreign frame, it goes untouched: a host
    /// refuses a compressed segment by its checksum.
    // Always: else what is known of the frame is put in memory for it, also for frames without the
    // mark.
    #[inline(always)]
    fn receive_routed(&self, ip_frame: &IpFrame<'_>, out: &mut [u8]) -> Result<usize, Verdict> {
        let packet = match ip_frame.packet() {
            Err(PassReason::Malformed) => return Err(DropReason::Malformed.into()),
            // No engine sends UDP options, but a changed length field may look like them.
            Err(PassReason::UdpOptions)
                if ip_frame.packet_by_ip_len().is_ok_and(|packet| self.is_ours(&packet)) =>
            {
                return Err(DropReason::Malformed.into());
            }
            result => result?,
        };
        if packet.extent() == Extent::Short {
            return Err(DropReason::Malformed.into());
        }
        if !packet.ip_checksum_holds() {
            return Err(DropReason::IpChecksum.into());
        }
        let unchecked = matches!(packet.transport(), Transport::Udp { checksum: 0 });
        let header_sum = packet.header_sum();
        let sum = packet.l4_sum(header_sum, |payload| self.kernel.sum(payload));
        if unchecked || sum.is_zero() {
            // A host takes it for what it is, or for data.
            return Err(match (self.is_ours(&packet), unchecked) {
                (false, _) => PassReason::ForeignMark.into(),
                (true, true) => DropReason::NoChecksum.into(),
                (true, false) => DropReason::Recomputed.into(),
            });
        }
        if !sum.equals(Sum::word(CHECKSUM_CONSTANT)) {
            return Err(DropReason::L4Checksum.into());
        }
        let (segment, body) =
            SegmentHeader::parse(packet.payload()).map_err(|_| DropReason::SegmentHeader)?;
        let tcp = match packet.transport() {
            Transport::Tcp { flags, .. } if flags & EXCLUDED_FLAGS != 0 => {
                return Err(DropReason::Malformed.into());
            }
            Transport::Tcp { .. } => true,
            Transport::Udp { .. } => false,
        };
        if self.rules.is_mark(segment.tos) || (tcp && segment.no_checksum) {
            return Err(DropReason::SegmentHeader.into());
        }
        let restoration = Restoration {
            tos: segment.tos | (packet.tos() & ECN),
            head_len: usize::from(segment.head_len),
            raw_len: usize::from(segment.raw_len),
            profile: segment.profile,
            header_sum: (!segment.no_checksum).then_some(header_sum),
            padded: false,
        };
        self.restore(&packet, body, &restoration, out).map_err(Into::into)
    }

    /// Whether an engine made this marked packet, whatever has become of its checksum.
    fn is_ours(&self, packet: &Packet<'_>) -> bool {
        SegmentHeader::recognise(packet).is_some_and(|segment| !self.rules.is_mark(segment.tos))
    }

    /// A frame whose rule asks for in-place framing: compressed if it is shorter than its IP header
    /// says.
    fn receive_in_place(
        &self,
        ip_frame: &IpFrame<'_>,
        rule: &Rule,
        out: &mut [u8],
    ) -> Result<usize, Verdict> {
        let packet = ip_frame.packet()?;
        if packet.extent() != Extent::Short {
            return Err(PassReason::NotCompressed.into());
        }
        let (head_len, no_checksum) = match packet.transport() {
            // No engine compressed these; the host drops what is cut short.
            Transport::Tcp { flags, .. } if flags & EXCLUDED_FLAGS != 0 => {
                return Err(PassReason::TcpFlags.into());
            }
            Transport::Tcp { .. } => (0, false),
            Transport::Udp { checksum } => (usize::from(rule.udp_offset), checksum == 0),
        };
        if !packet.ip_checksum_holds() {
            return Err(DropReason::IpChecksum.into());
        }
        let raw_len = packet.payload_len();
        if raw_len < head_len + VALUE_LEN {
            return Err(DropReason::Malformed.into());
        }
        let restoration = Restoration {
            tos: packet.tos(),
            head_len,
            raw_len,
            profile: rule.profile,
            header_sum: (!no_checksum).then(|| packet.header_sum()),
            // Tags may have been put on after the padding.
            padded: (MIN_FRAME_LEN..=MIN_FRAME_LEN + packet.tags_len()).contains(&packet.frame().len()),
        };
        self.restore(&packet, packet.payload(), &restoration, out).map_err(Into::into)
    }

    /// Writes the frame that the host sent to `out`; its length. `body` is head, groups and tail.
    fn restore(
        &self,
        packet: &Packet<'_>,
        body: &[u8],
        restoration: &Restoration,
        out: &mut [u8],
    ) -> Result<usize, DropReason> {
        let &Restoration { tos, head_len, raw_len, profile, header_sum, padded } = restoration;
        let payload_at = packet.payload_at();
        let len = payload_at + raw_len;
        if len - packet.ip_at() > usize::from(self.mtu) {
            return Err(DropReason::TooLong);
        }
        copy_headers(packet, out).ok_or(DropReason::NoRoom)?;
        let payload = out.get_mut(payload_at..len).ok_or(DropReason::NoRoom)?;
        let (head_in, body) = body.split_at_checked(head_len).ok_or(DropReason::Groups)?;
        let (head, rest) = payload.split_at_mut_checked(head_len).ok_or(DropReason::Malformed)?;
        write_at(head, 0, head_in).ok_or(DropReason::Malformed)?;
        let (values, tail) = rest.split_at_mut(rest.len() - rest.len() % VALUE_LEN);
        let (groups_len, values_sum) =
            self.kernel.decode_and_sum(body, values, profile).map_err(|_| DropReason::Groups)?;
        let after = body.get(groups_len..).unwrap_or(&[]);
        let (tail_in, excess) = after.split_at_checked(tail.len()).ok_or(DropReason::Groups)?;
        if !excess.is_empty() && !padded {
            return Err(DropReason::Excess);
        }
        write_at(tail, 0, tail_in).ok_or(DropReason::Groups)?;
        let checksum = match header_sum {
            None => L4Checksum::None,
            Some(header_sum) => {
                let payload_sum = values_sum.between(head_in, tail_in);
                L4Checksum::Computed { header_sum, payload_sum, plus: 0 }
            }
        };
        change_headers(packet, Headers { tos, payload_len: raw_len, checksum }, out)
            .ok_or(DropReason::TooLong)?;
        Ok(len)
    }

    /// Counts of all outcomes so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The rules in force.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Forgets counts; rules stay.
    pub const fn reset(&mut self) {
        self.counters = Counters::new();
    }

    /// Puts other rules in force; counters stay.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }
}
