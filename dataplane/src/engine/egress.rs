//! Host to wire: rule, flow, groups, headers.

use super::compress::{Checked, EncodedAhead, Places, compress, looks_like_f32};
use crate::codec::VALUE_LEN;
use crate::flow::capabilities::{Advertisement, CapabilityTable};
use crate::flow::{FlowTable, Millis, Syn};
use crate::kernels::Kernel;
use crate::profile::Profile;
use crate::rules::{Alignment, ECN, Framing, Handshake, Heuristic, MAX_RULES, Rule, Rules};
use crate::verdict::{Change, Counters, PassReason, TaggedTraffic, Verdict};
use crate::wire::capability::{CAPABILITY_LEN, Capability};
use crate::wire::frame::{Extent, IpFrame, MIN_FRAME_LEN, Packet, Transport, tcp_flags};
use crate::wire::rewrite::{write_options, write_remarked};

/// The sending direction: host to wire. At most `SETS * 8` TCP flows; `SETS` is a power of two.
#[derive(Debug)]
pub struct Egress<const SETS: usize> {
    rules: Rules,
    kernel: Kernel,
    mtu: u16,
    /// Whether no SYN advertises in-place framing.
    quiet_in_place: bool,
    flows: FlowTable<SETS>,
    counters: Counters,
    /// By the rules' places.
    traffic: [TaggedTraffic; MAX_RULES],
    /// The place of the rule that compressed last, and where; no values if none did.
    // All zeros, as the rest of a new engine: firmware has it built in place, and not on its stack.
    last: (usize, Places),
}

/// The values of a compressed frame, and what they became.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coded<'a> {
    /// The place of the rule.
    pub rule: usize,
    /// Its profile.
    pub profile: Profile,
    /// Little-endian `f32`s, at any alignment.
    pub values: &'a [u8],
    /// Their groups or sections, as [`Kernel::encode`] writes them.
    pub groups: &'a [u8],
}

impl<const SETS: usize> Egress<SETS> {
    /// An engine with an empty flow table, on a link whose IP packets have at most `mtu` bytes.
    /// `seed` keys the table's hash: if it is random, nobody can choose addresses that crowd into
    /// one set. The same seed, frames and times give the same verdicts.
    #[must_use]
    pub const fn new(rules: Rules, kernel: Kernel, mtu: u16, seed: u64) -> Self {
        Self {
            rules,
            kernel,
            mtu,
            quiet_in_place: false,
            flows: FlowTable::new(seed),
            counters: Counters::new(),
            traffic: [TaggedTraffic::NONE; MAX_RULES],
            last: NOTHING,
        }
    }

    /// One frame from the host: Ethernet II, without FCS. Its replacement, if there is one, is
    /// written to `out`, which must be as long as `frame`, or [`CAPABILITY_LEN`] longer if it
    /// carries a TCP SYN: only SYNs may grow. One that finds no room to grow leaves as it is, and
    /// its connection is not compressed. Also for a frame that stays untouched, `out` may be
    /// overwritten.
    ///
    /// Give it every frame that the host sends, **a connection's SYN first**, also of connections
    /// that no rule matches yet: only the SYN shows where a stream's values begin, and a stream
    /// that was not seen from there leaves untouched (FORMAT.md §5).
    ///
    /// `now` may come from any clock that does not step back; idle connections give way to new ones
    /// by it. `capabilities` is the table that the host's [`super::Ingress`] fills, in whatever
    /// thread it runs. A replacement may be shorter than Ethernet's minimum of 60 bytes: the MAC
    /// pads it, as it pads others.
    pub fn process(
        &mut self,
        frame: &[u8],
        out: &mut [u8],
        now: Millis,
        capabilities: &CapabilityTable,
    ) -> Verdict {
        let verdict = self.decide(frame, out, now, capabilities).unwrap_or_else(Verdict::Untouched);
        self.counters.count(verdict, frame.len());
        verdict
    }

    fn decide(
        &mut self,
        frame: &[u8],
        out: &mut [u8],
        now: Millis,
        capabilities: &CapabilityTable,
    ) -> Result<Verdict, PassReason> {
        let ip_frame = IpFrame::parse(frame)?;
        if self.rules.is_mark(ip_frame.tos()) {
            return self.unmark(ip_frame, out, now, capabilities);
        }
        let index = self.rules.find_indexed(ip_frame.tos()).map(|(index, _)| index);
        if ip_frame.may_be_syn()
            && let Some(len) = self.start(ip_frame, index, out, now, capabilities)?
        {
            return Ok(Verdict::Changed { change: Change::OptionAdded, len });
        }
        self.tagged(ip_frame, index.ok_or(PassReason::NoRule)?, out, now, capabilities)
    }

    /// Sends a frame that a rule matches; `index` is the rule's place.
    #[inline(never)] // the registers that it needs would be saved for every frame
    fn tagged(
        &mut self,
        ip_frame: IpFrame<'_>,
        index: usize,
        out: &mut [u8],
        now: Millis,
        capabilities: &CapabilityTable,
    ) -> Result<Verdict, PassReason> {
        let rule = *self.rules.as_slice().get(index).ok_or(PassReason::NoRule)?;
        self.count(index, &ip_frame);
        let packet = ip_frame.packet()?;
        if rule.framing == Framing::InPlace && packet.extent() == Extent::Short {
            return remark(&ip_frame, out);
        }
        let result = match packet.transport() {
            Transport::Tcp { seq, flags } => {
                let result = self.send_segment(&packet, seq, flags, &rule, out, now, capabilities);
                if flags & (tcp_flags::FIN | tcp_flags::RST) != 0 {
                    self.end(&packet, seq, flags);
                }
                result
            }
            Transport::Udp { .. } => self.send_datagram(&packet, &rule, out),
        };
        let len = result?;
        if let Some(traffic) = self.traffic.get_mut(index) {
            traffic.count_compressed(ip_frame.frame().len() - len);
        }
        self.last.0 = index;
        Ok(Verdict::Changed { change: Change::Compressed, len })
    }

    /// The rule at this place matches the frame.
    fn count(&mut self, index: usize, ip_frame: &IpFrame<'_>) {
        if let Some(traffic) = self.traffic.get_mut(index) {
            traffic.count(ip_frame.frame().len());
        }
    }

    /// The host's own frame carries the mark: it goes on without, and its SYN counts like any other
    /// that no rule matches.
    #[cold] // and by value: what is known of other frames then stays in registers
    fn unmark(
        &mut self,
        ip_frame: IpFrame<'_>,
        out: &mut [u8],
        now: Millis,
        capabilities: &CapabilityTable,
    ) -> Result<Verdict, PassReason> {
        if ip_frame.may_be_syn() {
            // Without room, it does not get longer.
            self.start(ip_frame, None, &mut [], now, capabilities)?;
        }
        remark(&ip_frame, out)
    }

    /// Remembers where a TCP stream starts, tagged or not: applications tag sockets late. If this
    /// host is to advertise what it restores, the SYN is written to `out` with the capability
    /// option; the new frame's length.
    ///
    /// # Errors
    /// [`PassReason::TableFull`], if a rule matches it: nothing of its connection is compressed.
    #[cold] // and by value: what is known of other frames then stays in registers
    fn start(
        &mut self,
        ip_frame: IpFrame<'_>,
        index: Option<usize>,
        out: &mut [u8],
        now: Millis,
        capabilities: &CapabilityTable,
    ) -> Result<Option<usize>, PassReason> {
        let Ok(packet) = ip_frame.packet() else { return Ok(None) };
        let Transport::Tcp { seq, flags } = packet.transport() else { return Ok(None) };
        if flags & tcp_flags::SYN == 0 {
            return Ok(None);
        }
        // A SYN may be short enough to be padded.
        let whole = packet.verify(self.kernel).is_ok();
        let doubtful = !whole || packet.has_binding_option();
        let syn = Syn { isn: seq, tagged: index.is_some(), doubtful };
        let flow = match (self.flows.syn(&packet.flow_key(), syn, now), index) {
            (Ok(flow), _) => flow,
            (Err(_), None) => return Ok(None),
            (Err(reason), Some(index)) => {
                self.count(index, &ip_frame);
                return Err(reason);
            }
        };

        // Fast Open (RFC 7413): the stream starts in the SYN, and what follows does not show
        // whether with a length.
        if index.is_some() && packet.payload_len() >= VALUE_LEN {
            flow.check_syn_payload(|| looks_like_f32(packet.payload(), true, None, self.kernel));
        }
        let rule = index.and_then(|index| self.rules.as_slice().get(index));
        let asked = if flags & tcp_flags::ACK != 0 {
            flow.receive_from_syn(capabilities, packet.ack())
        } else {
            rule.is_some()
        };
        if !asked || rule.is_some_and(|rule| rule.handshake == Handshake::Off) || !flow.may_advertise() {
            return Ok(None);
        }
        if self.quiet_in_place && rule.is_some_and(|rule| rule.framing == Framing::InPlace) {
            return Ok(None);
        }
        let advertised = Advertisement {
            capability: Capability::of(rule.and_then(Rule::in_place)),
            tos: packet.tos() & !ECN,
        };
        let Some(len) = write_capability(&packet, advertised.capability, self.mtu, self.kernel, out) else {
            return Ok(None);
        };
        flow.advertise(advertised, packet.payload_len() as u16); // an IP length field bounds it
        if let Some(index) = index {
            self.count(index, &ip_frame);
        }
        Ok(Some(len))
    }

    /// Compresses a tagged datagram to `out`; the new frame's length.
    fn send_datagram(
        &mut self,
        packet: &Packet<'_>,
        rule: &Rule,
        out: &mut [u8],
    ) -> Result<usize, PassReason> {
        if rule.handshake == Handshake::Required {
            return Err(PassReason::UdpOff);
        }
        if packet.is_tunnel() {
            return Err(PassReason::Tunnel);
        }
        let checked = Checked::new(packet, rule, self.kernel, None)?;
        let head_len = usize::from(rule.udp_offset);
        if rule.heuristic == Heuristic::On && !checked.looks_like_f32(head_len, false, self.kernel) {
            return Err(PassReason::NotValues);
        }
        compress(self.kernel, &checked, rule, self.rules.mark(), head_len, out, &mut self.last.1)
    }

    /// Compresses a tagged segment to `out`; the new frame's length.
    ///
    /// The order of the checks is part of what the engine promises. A flow has to count every
    /// segment that the peer may take as a part of the stream, and of no other:
    ///
    /// 1. A segment that carries nothing of the stream must not reach the flow: it would count as
    ///    sent, and the bytes themselves, when they come, as resent. A SYN's sequence number is no
    ///    payload byte's, a RST's payload is not the stream's (RFC 9293 §3.5.3), and a receiver
    ///    discards a segment with a wrong checksum.
    /// 2. The flow takes note of what is left, whether it may be compressed or not.
    /// 3. Urgent data and options that bind the payload only forbid to change the segment. Its
    ///    bytes are sent: if they are sent again in an ordinary segment, the flow has to know them.
    ///    The same goes for a far end that did not advertise that it restores them.
    ///
    /// What the flow expects is encoded before the first of them, in the pass that takes the sum
    /// for the checksum. That decides nothing, and changes nothing but `out`.
    // A struct of `out`, `now` and `capabilities`, made in `process`, was tried: an untagged frame
    // then takes 96 instructions, not 91, and no frame takes fewer.
    #[expect(clippy::too_many_arguments, reason = "each is looked up once, and comes in a register")]
    fn send_segment(
        &mut self,
        packet: &Packet<'_>,
        seq: u32,
        flags: u8,
        rule: &Rule,
        out: &mut [u8],
        now: Millis,
        capabilities: &CapabilityTable,
    ) -> Result<usize, PassReason> {
        // 1.
        if flags & (tcp_flags::SYN | tcp_flags::RST) != 0 {
            return Err(PassReason::TcpFlags);
        }
        let len = packet.payload_len() as u32; // an IP length field bounds it
        if len == 0 {
            // A host that only receives shows by nothing else that the connection lives.
            if self.rules.any_in_place()
                && let Some(flow) = self.flows.find(&packet.flow_key())
            {
                flow.acknowledge(now);
            }
            return Err(PassReason::NoPayload);
        }
        let key = packet.flow_key();
        let kernel = self.kernel;
        let flow = self.flows.find(&key);
        let ahead = match flow.as_ref().and_then(|flow| flow.expects(seq, rule.alignment)) {
            Some(head_len) => EncodedAhead::new(kernel, packet, rule, head_len, out),
            None => None,
        };
        let checked = Checked::new(packet, rule, kernel, ahead)?;
        // 2.
        let flow = match rule.alignment {
            Alignment::Connection => flow.ok_or(PassReason::AlignmentUnknown)?,
            Alignment::Payload => self.flows.find_or_open(&key, now)?,
        };
        flow.receive_from_syn_ack(capabilities);
        if rule.framing == Framing::InPlace {
            flow.lapse(now);
        }
        flow.admit(seq, len, now)?;
        // 3.
        flow.negotiated(rule, packet.tos() & !ECN)?;
        if flags & tcp_flags::URG != 0 {
            return Err(PassReason::TcpFlags);
        }
        if packet.has_binding_option() {
            return Err(PassReason::TcpOption);
        }
        // An open flow's start does not change.
        let head_len = match ahead {
            Some(ahead) => ahead.head_len,
            None => flow.head_len(seq, rule.alignment)?,
        };
        if rule.framing == Framing::InPlace && head_len != 0 {
            return Err(PassReason::Misaligned);
        }
        // A piece of a value shows nothing; as the start of a stream it counts as missed.
        if rule.heuristic == Heuristic::On && packet.payload_len() >= head_len + VALUE_LEN {
            flow.check_payload(seq, |starts| checked.looks_like_f32(head_len, starts, kernel))?;
        }
        let len = compress(kernel, &checked, rule, self.rules.mark(), head_len, out, &mut self.last.1)?;
        flow.compressed(seq, packet.frame().len() - len);
        Ok(len)
    }

    /// Tells the flow of a tagged FIN or RST that it ended.
    fn end(&mut self, packet: &Packet<'_>, seq: u32, flags: u8) {
        if packet.verify(self.kernel).is_ok()
            && let Some(flow) = self.flows.find(&packet.flow_key())
        {
            // What a RST carries is no part of the stream; an IP length field bounds what a FIN
            // carries.
            let len = if flags & tcp_flags::RST != 0 { 0 } else { packet.payload_len() as u32 };
            // The host may give the socket another type of service behind its FIN, too.
            if self.rules.opens_by_payload() {
                flow.keep();
            }
            flow.end(seq.wrapping_add(len));
        }
    }

    /// Counts of all outcomes so far.
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
    pub fn traffic(&self, rule: usize) -> TaggedTraffic {
        self.traffic.get(rule).copied().unwrap_or(TaggedTraffic::NONE)
    }

    /// The values of `frame`, the last that was compressed, and in `out` what they became: for
    /// whoever compares them.
    #[must_use]
    pub fn coded<'a>(&self, frame: &'a [u8], out: &'a [u8]) -> Option<Coded<'a>> {
        let (rule, places) = self.last;
        if places.values_len == 0 {
            return None;
        }
        let profile = self.rules.as_slice().get(rule)?.profile;
        let values = frame.get(places.values_at..)?.get(..places.values_len)?;
        let groups = out.get(places.groups_at..)?.get(..places.groups_len)?;
        Some(Coded { rule, profile, values, groups })
    }

    /// The number of connections `rules` would break: this end advertised in-place frames that
    /// `rules` restore to other values. Who puts other rules in force asks first, and until then
    /// lets no connection begin that they would break ([`Self::set_quiet_in_place`]).
    #[must_use]
    pub fn would_break(&self, rules: &Rules, now: Millis) -> usize {
        self.flows.iter().filter(|(_, flow)| flow.needs_other_than(rules, now)).count()
    }

    /// Whether SYNs under rules with in-place framing leave as they are from now on. Their
    /// connections are not compressed, so other rules cannot break them.
    pub const fn set_quiet_in_place(&mut self, quiet: bool) {
        self.quiet_in_place = quiet;
    }

    /// Forgets flows and counts; rules stay. `seed` keys the flow table's hash from now on.
    pub fn reset(&mut self, seed: u64) {
        self.flows.clear(seed);
        self.counters = Counters::new();
        self.traffic = [TaggedTraffic::NONE; MAX_RULES];
        self.last = NOTHING;
    }

    /// Puts other rules in force; flows and counters stay, but for the traffic of rules that
    /// changed.
    pub fn set_rules(&mut self, rules: Rules) {
        for (place, traffic) in self.traffic.iter_mut().enumerate() {
            if rules.as_slice().get(place) != self.rules.as_slice().get(place) {
                *traffic = TaggedTraffic::NONE;
            }
        }
        self.rules = rules;
        self.last = NOTHING;
    }
}

const NOTHING: (usize, Places) = (0, Places { values_at: 0, values_len: 0, groups_at: 0, groups_len: 0 });

/// The far end would take this frame of the host's own for a compressed one: it loses its type of
/// service.
fn remark(ip_frame: &IpFrame<'_>, out: &mut [u8]) -> Result<Verdict, PassReason> {
    let len = write_remarked(ip_frame, ip_frame.tos() & ECN, out).ok_or(PassReason::NoRoom)?;
    Ok(Verdict::Changed { change: Change::Remarked, len })
}

/// Writes a SYN to `out` with `capability` before its own options; the new frame's length. None if
/// it has to stay as it is.
fn write_capability(
    packet: &Packet<'_>,
    capability: Capability,
    mtu: u16,
    kernel: Kernel,
    out: &mut [u8],
) -> Option<usize> {
    const OTHER_FLAGS: u8 = tcp_flags::FIN | tcp_flags::RST;
    let Transport::Tcp { flags, .. } = packet.transport() else { return None };
    // Bytes behind the packet stay away: they may only be its padding.
    let padded = packet.frame().len() <= MIN_FRAME_LEN + packet.tags_len();
    let room = packet.ip_len() + CAPABILITY_LEN <= usize::from(mtu);
    if flags & OTHER_FLAGS != 0 || !room || !(padded || packet.extent() == Extent::Exact) {
        return None;
    }
    // Computed anew at the far end, these zeros would come out as the other one.
    if packet.has_negative_zero() || Capability::is_among(packet.tcp_options()) {
        return None;
    }
    write_options(packet, (0, 0, &capability.to_options()), kernel, out)
}
