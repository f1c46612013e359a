//! The path of a frame: in, verdict, out. Start reading here.
//!
//! ```text
//! egress   host -> IP header -> rule by ToS -> packet whole and right? -> flow: grid, resend, trust
//!               -> groups -> headers -> wire
//! ingress  wire -> IP header -> marked, or shorter than it says? -> checksums, segment header
//!               -> values -> headers -> host
//! ```
//!
//! Whatever is in doubt leaves egress untouched. Ingress drops what says that it is compressed and is not
//! right: TCP sends it again, and egress does not compress what is sent again.

use core::cmp::Ordering;

use crate::codec::{Params, VALUE_LEN};
use crate::flow::{FlowTable, Syn};
use crate::kernels::Kernel;
use crate::rules::{ECN, Framing, Grid, MAX_RULES, Rule, Rules};
use crate::verdict::{Change, Counters, DropReason, PassReason, Traffic, Verdict};
use crate::wire::checksum::Sum;
use crate::wire::frame::{EXCLUDED_FLAGS, MIN_FRAME_LEN, Network, Packet, Transport, tcp_flags};
use crate::wire::rewrite::{Headers, L4Checksum, write_at, write_headers, write_remarked};
use crate::wire::segment::{CHECKSUM_CONSTANT, HEADER_LEN, Segment};

pub use crate::flow::Millis;

/// The sending direction: host to wire. At most `SETS * 8` TCP flows; `SETS` is a power of two.
#[derive(Debug)]
pub struct Egress<const SETS: usize> {
    rules: Rules,
    kernel: Kernel,
    flows: FlowTable<SETS>,
    counters: Counters,
    /// By the rules' places.
    traffic: [Traffic; MAX_RULES],
}

impl<const SETS: usize> Egress<SETS> {
    /// An engine with an empty flow table; `seed` keys its hash and should be random.
    #[must_use]
    pub const fn new(rules: Rules, kernel: Kernel, seed: u64) -> Self {
        let (flows, counters) = (FlowTable::new(seed), Counters::new());
        Self { rules, kernel, flows, counters, traffic: [Traffic::NONE; MAX_RULES] }
    }

    /// One frame from the host: Ethernet II, without FCS. Its replacement, where there is one, is written
    /// to `out`, which must be as long as `frame`; no frame gets longer.
    pub fn process(&mut self, frame: &[u8], out: &mut [u8], now: Millis) -> Verdict {
        let verdict = self.decide(frame, out, now).unwrap_or_else(Verdict::Untouched);
        self.counters.count(verdict, frame.len());
        verdict
    }

    fn decide(&mut self, frame: &[u8], out: &mut [u8], now: Millis) -> Result<Verdict, PassReason> {
        let network = Network::parse(frame)?;
        if self.rules.is_mark(network.tos()) {
            return remark(&network, out);
        }
        let rule = self.rules.find_indexed(network.tos()).map(|(index, rule)| (index, *rule));
        if network.may_be_syn() {
            self.learn(&network, rule.is_some(), now);
        }
        let (index, rule) = rule.ok_or(PassReason::NoRule)?;
        if let Some(traffic) = self.traffic.get_mut(index) {
            traffic.count(frame.len());
        }
        let packet = network.packet()?;
        if rule.framing == Framing::InPlace && packet.extent() == Ordering::Less {
            return remark(&network, out);
        }
        let result = self.send(&packet, &rule, out, now);
        if let Transport::Tcp { seq, flags } = packet.transport()
            && flags & (tcp_flags::FIN | tcp_flags::RST) != 0
            && check_sums(&packet, self.kernel).is_ok()
            && let Some(flow) = self.flows.find(&packet.flow_key())
        {
            // What a RST carries is no part of the stream; an IP length field bounds what a FIN carries.
            let len = if flags & tcp_flags::RST != 0 { 0 } else { packet.payload_len() as u32 };
            flow.end(seq.wrapping_add(len));
        }
        let len = result?;
        if let Some(traffic) = self.traffic.get_mut(index) {
            traffic.count_compressed(frame.len() - len);
        }
        Ok(Verdict::Changed { change: Change::Compressed, len })
    }

    /// Remembers where a TCP stream starts, tagged or not: applications tag sockets late.
    fn learn(&mut self, network: &Network<'_>, tagged: bool, now: Millis) {
        let Ok(packet) = network.packet() else { return };
        let Transport::Tcp { seq, flags } = packet.transport() else { return };
        if flags & tcp_flags::SYN != 0 {
            // A SYN may be short enough to be padded.
            let whole = packet.extent() != Ordering::Less && check_sums(&packet, self.kernel).is_ok();
            let syn = Syn { isn: seq, tagged, doubtful: !whole || packet.has_binding_option() };
            // A full table shows when the connection's payload comes.
            let _ = self.flows.syn(&packet.flow_key(), syn, now);
        }
    }

    /// Compresses a tagged packet to `out`; the new frame's length.
    fn send(
        &mut self,
        packet: &Packet<'_>,
        rule: &Rule,
        out: &mut [u8],
        now: Millis,
    ) -> Result<usize, PassReason> {
        let mark = self.rules.mark();
        let (seq, flags) = match packet.transport() {
            Transport::Tcp { seq, flags } => (seq, flags),
            Transport::Udp { .. } => {
                if !rule.udp {
                    return Err(PassReason::UdpOff);
                }
                if packet.is_tunnel() {
                    return Err(PassReason::Tunnel);
                }
                check_whole(packet, self.kernel)?;
                return compress(self.kernel, packet, rule, mark, usize::from(rule.udp_offset), out);
            }
        };
        if flags & (tcp_flags::SYN | tcp_flags::RST) != 0 {
            return Err(PassReason::TcpFlags);
        }
        if packet.payload_len() == 0 {
            return Err(PassReason::NoPayload);
        }
        check_whole(packet, self.kernel)?;
        let key = packet.flow_key();
        let flow = match rule.grid {
            Grid::Connection => self.flows.find(&key).ok_or(PassReason::GridUnknown)?,
            Grid::Payload => self.flows.find_or_open(&key, now)?,
        };
        // An IP length field bounds it.
        let len = packet.payload_len() as u32;
        flow.send(seq, len, now)?;
        if flags & EXCLUDED_FLAGS != 0 {
            return Err(PassReason::TcpFlags);
        }
        if packet.has_binding_option() {
            return Err(PassReason::TcpOption);
        }
        let head_len = flow.head_len(seq, rule.grid)?;
        if rule.framing == Framing::InPlace && head_len != 0 {
            return Err(PassReason::OffGrid);
        }
        let new_len = compress(self.kernel, packet, rule, mark, head_len, out)?;
        flow.compressed(seq, packet.frame().len() - new_len);
        Ok(new_len)
    }

    /// What was done so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The flows known.
    #[must_use]
    pub const fn flows(&self) -> &FlowTable<SETS> {
        &self.flows
    }

    /// The rules in force.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Frames that matched the rule at this place of the list.
    #[must_use]
    pub fn traffic(&self, rule: usize) -> Traffic {
        self.traffic.get(rule).copied().unwrap_or(Traffic::NONE)
    }

    /// Forgets flows and counts; rules stay. `seed` keys the flow table's hash from now on.
    pub fn reset(&mut self, seed: u64) {
        self.flows.clear(seed);
        self.counters = Counters::new();
        self.traffic = [Traffic::NONE; MAX_RULES];
    }

    /// Puts other rules in force; flows and counters stay, but for the traffic of rules that changed.
    pub fn set_rules(&mut self, rules: Rules) {
        for (place, traffic) in self.traffic.iter_mut().enumerate() {
            if rules.as_slice().get(place) != self.rules.as_slice().get(place) {
                *traffic = Traffic::NONE;
            }
        }
        self.rules = rules;
    }
}

/// The far end would take this frame of the host's own for a compressed one: it loses its type of service.
fn remark(network: &Network<'_>, out: &mut [u8]) -> Result<Verdict, PassReason> {
    let len = write_remarked(network, network.tos() & ECN, out).ok_or(PassReason::NoRoom)?;
    Ok(Verdict::Changed { change: Change::Remarked, len })
}

/// Whether a packet of the host is all in its frame, and its checksums hold.
fn check_whole(packet: &Packet<'_>, kernel: Kernel) -> Result<(), PassReason> {
    match packet.extent() {
        Ordering::Less => Err(PassReason::Malformed),
        Ordering::Equal | Ordering::Greater => check_sums(packet, kernel),
    }
}

/// Whether the checksums of a packet of the host are right, or left to offload: what was wrong before must
/// not become right.
fn check_sums(packet: &Packet<'_>, kernel: Kernel) -> Result<(), PassReason> {
    if !packet.ip_checksum_holds() {
        return Err(PassReason::IpChecksum);
    }
    let none = matches!(packet.transport(), Transport::Udp { checksum: 0 });
    if none || packet.l4_sum(kernel).is_zero() || packet.l4_checksum_is_offloaded() {
        Ok(())
    } else {
        Err(PassReason::L4Checksum)
    }
}

/// Writes the compressed frame to `out`: headers, in routed framing the segment header, `head_len` raw
/// bytes, the groups, up to 3 raw bytes. The new frame's length.
fn compress(
    kernel: Kernel,
    packet: &Packet<'_>,
    rule: &Rule,
    mark: u8,
    head_len: usize,
    out: &mut [u8],
) -> Result<usize, PassReason> {
    // A padded segment counts as sent like any other; only now is it told apart.
    if packet.extent() == Ordering::Greater {
        return Err(PassReason::Trailer);
    }
    let payload = packet.payload();
    let (head, rest) = payload.split_at_checked(head_len).ok_or(PassReason::NoValue)?;
    let (values, tail) = rest.split_at(rest.len() - rest.len() % VALUE_LEN);
    if values.is_empty() {
        return Err(PassReason::NoValue);
    }
    let frame_len = packet.frame().len();
    if out.len() < frame_len {
        return Err(PassReason::NoRoom);
    }
    let head_at = match rule.framing {
        Framing::InPlace => packet.payload_at(),
        Framing::Routed => packet.payload_at() + HEADER_LEN,
    };
    let groups_at = head_at + head_len;
    // Where the groups do not even fit into the old frame's room, they are not shorter.
    let room = out.get_mut(groups_at..).ok_or(PassReason::NotShorter)?;
    let groups_len = kernel.encode(values, room, rule.params).map_err(|_| PassReason::NotShorter)?;
    let tail_at = groups_at + groups_len;
    let len = tail_at + tail.len();
    // Without VLAN tags: a switch on the way may take them off or put others on, and pads anew. In-place framing tells
    // compressed frames by their length alone.
    let padded_len = |len: usize| len.saturating_sub(packet.tags_len()).max(MIN_FRAME_LEN);
    if padded_len(len) >= padded_len(frame_len) {
        return Err(PassReason::NotShorter);
    }
    write_at(out, head_at, head).ok_or(PassReason::NoRoom)?;
    write_at(out, tail_at, tail).ok_or(PassReason::NoRoom)?;
    match rule.framing {
        Framing::InPlace => write_at(out, 0, packet.headers()),
        Framing::Routed => {
            let segment = Segment {
                tos: packet.tos() & !ECN,
                no_checksum: matches!(packet.transport(), Transport::Udp { checksum: 0 }),
                head_len: head_len as u8,      // at most 255: a rule's u8, or 3
                raw_len: payload.len() as u16, // bounded by an IP length field
                params: rule.params,
            };
            write_at(out, packet.payload_at(), &segment.to_bytes()).ok_or(PassReason::NoRoom)?;
            let headers = Headers {
                tos: mark | (packet.tos() & ECN),
                payload_len: len - packet.payload_at(),
                checksum: L4Checksum::Computed { plus: CHECKSUM_CONSTANT },
            };
            write_headers(packet, headers, kernel, out)
        }
    }
    .ok_or(PassReason::NoRoom)?;
    Ok(len)
}

/// The receiving direction: wire to host. It keeps no state but its counters.
#[derive(Debug)]
pub struct Ingress {
    rules: Rules,
    kernel: Kernel,
    mtu: u16,
    counters: Counters,
}

/// How a compressed packet is restored.
struct Restoration {
    tos: u8,
    head_len: usize,
    raw_len: usize,
    params: Params,
    no_checksum: bool,
    /// Bytes may follow the payload: MACs and switches pad frames to the Ethernet minimum.
    padded: bool,
}

impl Ingress {
    /// An engine that restores IP packets of at most `mtu` bytes.
    #[must_use]
    pub const fn new(rules: Rules, kernel: Kernel, mtu: u16) -> Self {
        Self { rules, kernel, mtu, counters: Counters::new() }
    }

    /// One frame from the wire: Ethernet II, without FCS. Its replacement, where there is one, is written
    /// to `out`, which must have room for the MTU and [`crate::wire::frame::MAX_LINK_LEN`] bytes.
    pub fn process(&mut self, frame: &[u8], out: &mut [u8]) -> Verdict {
        let verdict = match self.decide(frame, out) {
            Ok(len) => Verdict::Changed { change: Change::Restored, len },
            Err(verdict) => verdict,
        };
        self.counters.count(verdict, frame.len());
        verdict
    }

    fn decide(&self, frame: &[u8], out: &mut [u8]) -> Result<usize, Verdict> {
        let network = Network::parse(frame)?;
        if self.rules.is_mark(network.tos()) {
            return self.receive_routed(&network, out);
        }
        match self.rules.find(network.tos()) {
            Some(rule) if rule.framing == Framing::InPlace => self.receive_in_place(&network, rule, out),
            _ => Err(PassReason::NotCompressed.into()),
        }
    }

    /// A frame that carries the mark. What can not be told from a foreign frame goes untouched: a host
    /// refuses a compressed segment by its checksum.
    fn receive_routed(&self, network: &Network<'_>, out: &mut [u8]) -> Result<usize, Verdict> {
        let packet = match network.packet() {
            Err(PassReason::Malformed) => return Err(DropReason::Malformed.into()),
            // No engine sends UDP options, but a changed length field may look like them.
            Err(PassReason::UdpOptions)
                if network.packet_by_ip_len().is_ok_and(|packet| self.is_ours(&packet)) =>
            {
                return Err(DropReason::Malformed.into());
            }
            result => result?,
        };
        if packet.extent() == Ordering::Less {
            return Err(DropReason::Malformed.into());
        }
        if !packet.ip_checksum_holds() {
            return Err(DropReason::IpChecksum.into());
        }
        let unchecked = matches!(packet.transport(), Transport::Udp { checksum: 0 });
        let sum = packet.l4_sum(self.kernel);
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
        let (segment, body) = Segment::parse(packet.payload()).map_err(|_| DropReason::SegmentHeader)?;
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
            params: segment.params,
            no_checksum: segment.no_checksum,
            padded: false,
        };
        self.restore(&packet, body, &restoration, out).map_err(Into::into)
    }

    /// Whether an engine made this marked packet, whatever has become of its checksum.
    fn is_ours(&self, packet: &Packet<'_>) -> bool {
        Segment::recognise(packet).is_some_and(|segment| !self.rules.is_mark(segment.tos))
    }

    /// A frame whose rule asks for in-place framing: compressed where it is shorter than its IP header says.
    fn receive_in_place(&self, network: &Network<'_>, rule: &Rule, out: &mut [u8]) -> Result<usize, Verdict> {
        let packet = network.packet()?;
        if packet.extent() != Ordering::Less {
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
            params: rule.params,
            no_checksum,
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
        let &Restoration { tos, head_len, raw_len, params, no_checksum, padded } = restoration;
        let payload_at = packet.payload_at();
        let len = payload_at + raw_len;
        if len - packet.ip_at() > usize::from(self.mtu) {
            return Err(DropReason::TooLong);
        }
        let payload = out.get_mut(payload_at..len).ok_or(DropReason::NoRoom)?;
        let (head_in, body) = body.split_at_checked(head_len).ok_or(DropReason::Groups)?;
        let (head, rest) = payload.split_at_mut_checked(head_len).ok_or(DropReason::Malformed)?;
        head.copy_from_slice(head_in);
        let (values, tail) = rest.split_at_mut(rest.len() - rest.len() % VALUE_LEN);
        let groups_len = self.kernel.decode(body, values, params).map_err(|_| DropReason::Groups)?;
        let after = body.get(groups_len..).unwrap_or(&[]);
        let (tail_in, excess) = after.split_at_checked(tail.len()).ok_or(DropReason::Groups)?;
        if !excess.is_empty() && !padded {
            return Err(DropReason::Excess);
        }
        tail.copy_from_slice(tail_in);
        let checksum = if no_checksum { L4Checksum::None } else { L4Checksum::Computed { plus: 0 } };
        write_headers(packet, Headers { tos, payload_len: raw_len, checksum }, self.kernel, out)
            .ok_or(DropReason::TooLong)?;
        Ok(len)
    }

    /// What was done so far.
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
