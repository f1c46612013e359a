//! The flow table: where the values of a TCP stream start, what it sent before, and whether its
//! peer restores what it is sent.
//!
//! Only the sending direction is looked at: the peer's ACKs need not carry the tag, so they may
//! never come by. What the peer advertised on its SYN is in [`capabilities`]. Time is an argument;
//! it may stand still or jump.

use crate::rules::{Alignment, Rule, Rules};
use crate::verdict::{PassReason, TaggedTraffic};
use crate::wire::flow_key::FlowKey;

pub mod capabilities;
mod handshake;
pub mod trust;

use capabilities::{Advertisement, CapabilityTable};
use handshake::HandshakeState;
pub use handshake::{MAX_ADVERTISEMENTS, Negotiation};
use trust::{Trust, TrustState};

/// A point in time, in milliseconds since any fixed start, by a clock that goes on while the
/// machine runs: a monotonic one, or a counter. A clock that steps back only lets idle connections
/// stay longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Millis(pub u64);

impl Millis {
    /// Milliseconds since `earlier`; 0 if the clock went back.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Flows that share a hash: a look-up compares this many keys, at most.
pub const WAYS: usize = 8;
/// A tagged connection that has sent no payload for this long may lose its place to another.
pub const OPENING_MS: u64 = 10_000;
/// A connection that has sent nothing for this long may lose its place to another. Trainers pause
/// for evaluations and checkpoints; who loses its place is not compressed any more.
pub const IDLE_MS: u64 = 3_600_000;
/// A connection on which nothing but its SYN has left for so long is not compressed in place any
/// more: [`IDLE_MS`], if it has sent payload. The far end, which has to restore by the parameters
/// that it advertised, waits twice as long until it takes such a connection for ended (FORMAT.md
/// §5.5). Without a limit, one forged SYN would forbid another rule for ever.
pub const UNUSED_MS: u64 = 120_000;
/// If payload alone opens a flow, one that has ended keeps its place until it has been silent for
/// this long: TCP may still send again what it sent before, and a flow that is not known would
/// begin anew and compress it a second time. Twice the lifetime of a segment (RFC 9293 §3.4.2), and
/// twice as long as TCP waits between two attempts.
pub const CLOSED_MS: u64 = 240_000;
/// Payload of a connection that was tagged from its SYN on starts at most this far behind the SYN
/// when the first of it is seen; what came before it went another way. Farther off, it is more
/// likely that another start was missed.
pub const START_REACH: u32 = 1 << 20;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Phase {
    /// Nothing is known: no connection, or one whose start was not seen.
    Vacant,
    /// The SYN was seen, no tagged payload yet.
    Opening,
    /// Tagged payload was sent.
    Open,
    /// A start was seen, but not for certain the one that the stream's values count from: there
    /// were two different ones, for example.
    Doubtful,
    /// FIN or RST was sent.
    Closed,
}

/// An event in a flow's own frames that may change its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Event {
    /// A SYN with the initial sequence number already known, or the first one.
    Syn,
    /// A SYN with another initial sequence number than the one known.
    OtherSyn,
    /// A SYN that cannot be relied on: its options bind the payload to what the sender sent, its
    /// checksum is wrong, or it may be the old connection's.
    DoubtfulSyn,
    /// A tagged segment with payload.
    Payload,
    /// The first tagged payload, and not where its start says: beyond [`START_REACH`].
    FarPayload,
    /// FIN or RST.
    End,
}

impl Phase {
    /// The whole machine: no other code changes a phase, and no arm is `_`.
    #[must_use]
    pub const fn next(self, event: Event) -> Self {
        use Event::{DoubtfulSyn, End, FarPayload, OtherSyn, Payload, Syn};
        use Phase::{Closed, Doubtful, Open, Opening, Vacant};
        match (self, event) {
            (Vacant, Syn | OtherSyn) | (Closed, OtherSyn) => Opening,
            // A SYN that was sent again, or that the network of the host doubled.
            (Opening, Syn) => Opening,
            (Open, Syn) => Open,
            // Either may be the one that counts: with SYN cookies a listener answers every SYN of a
            // client with another number, and the client may acknowledge any of the answers (RFC
            // 4987 §3.6).
            (Opening | Open, OtherSyn) => Doubtful,
            (Vacant | Opening | Closed | Open | Doubtful, DoubtfulSyn) => Doubtful,
            (Opening, FarPayload) => Doubtful,
            (Doubtful, Syn | OtherSyn | Payload | FarPayload) => Doubtful,
            (Opening | Open, Payload) | (Open, FarPayload) => Open,
            (Vacant, Payload | FarPayload | End) => Vacant,
            // The old connection's SYN, late: a new one has another start (RFC 9293 §3.4.1).
            // Payload is what the old one sends again.
            (Closed, Syn | Payload | FarPayload) => Closed,
            (Opening | Open | Doubtful | Closed, End) => Closed,
        }
    }
}

/// Since when a connection is tagged. Enums, and not flags, keep a flow within 144 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// No rule matched any of its frames.
    Never,
    /// Since its SYN, or there was none.
    Syn,
    /// Since its first payload.
    Late,
}

/// The payload heuristic's finding about a stream so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    Unseen,
    /// Its first word and what followed; all of it looks like values.
    Values,
    /// Something that does not, or its first word was missed.
    Mixed,
}

/// One direction of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    key: FlowKey,
    phase: Phase,
    tag: Tag,
    /// Whether payload would open it anew if it were forgotten: [`Self::keep`].
    reopens: bool,
    /// Whether a SYN gave `origin`, and nothing speaks for another one.
    started: bool,
    /// Sequence number of the first byte of the stream; of the first tagged one if no SYN was seen.
    origin: u32,
    /// The sequence number behind the highest tagged byte sent; in phase `Doubtful` behind the last
    /// one.
    sent: u32,
    seen: Millis,
    /// A tagged segment without payload left, so its host holds the connection. A SYN may be an
    /// answer to a forged one.
    established: bool,
    payload: Payload,
    handshake: HandshakeState,
    trust: Trust,
    traffic: TaggedTraffic,
}

impl Flow {
    const VACANT: Self = Self {
        key: FlowKey([0; 5]),
        phase: Phase::Vacant,
        tag: Tag::Never,
        reopens: false,
        started: false,
        origin: 0,
        sent: 0,
        seen: Millis(0),
        established: false,
        payload: Payload::Unseen,
        handshake: HandshakeState::NEW,
        trust: Trust::NEW,
        traffic: TaggedTraffic::NONE,
    };

    /// Goes on to the next phase. In doubt, no start is known any more, also behind the flow's end.
    fn apply(&mut self, event: Event) {
        self.phase = self.phase.next(event);
        self.started &= self.phase != Phase::Doubtful;
    }

    /// Bytes from sequence number `seq` to the next start of a value: 0 to 3; under
    /// [`Alignment::Payload`] 0.
    ///
    /// # Errors
    /// [`PassReason::AlignmentUnknown`], if `alignment` needs a SYN and none was seen.
    /// [`PassReason::Misaligned`], if `alignment` promises that every payload starts with a value,
    /// and this one does not.
    pub const fn head_len(&self, seq: u32, alignment: Alignment) -> Result<usize, PassReason> {
        match (alignment, (self.origin.wrapping_sub(seq) & 3) as usize) {
            (Alignment::Connection, _) if !self.started => Err(PassReason::AlignmentUnknown),
            (Alignment::Connection, head_len) => Ok(head_len),
            (Alignment::Payload, 0) => Ok(0),
            (Alignment::Payload, _) => Err(PassReason::Misaligned),
        }
    }

    /// Whether the SYN that was noted last may carry the capability option.
    #[must_use]
    pub(crate) const fn may_advertise(&self) -> bool {
        matches!(self.phase, Phase::Opening) && self.started && self.handshake.may_advertise()
    }

    /// Its SYN leaves with `len` bytes of data, and advertises this.
    pub(crate) fn advertise(&mut self, advertised: Advertisement, len: u16) {
        self.handshake.advertise(advertised, len);
    }

    /// Its SYN-ACK leaves: takes the capability of the SYN that it acknowledges. Whether there is
    /// one.
    ///
    /// What was received before, of a copy of that SYN, holds: the flow's own number says that it
    /// is the same connection.
    pub(crate) fn receive_from_syn(&mut self, capabilities: &CapabilityTable, acknowledges: u32) -> bool {
        if self.phase == Phase::Opening {
            self.handshake.receive_from_syn(capabilities, &self.key, acknowledges);
        }
        self.receive_from_syn_ack(capabilities); // both ends open: the other's answer may have come first
        self.handshake.has_received()
    }

    /// Payload leaves: if it is the first, and the flow's own SYN asked, takes the capability of
    /// the SYN-ACK.
    #[inline]
    pub(crate) fn receive_from_syn_ack(&mut self, capabilities: &CapabilityTable) {
        if self.phase == Phase::Opening {
            self.handshake.receive_from_syn_ack(capabilities, &self.key, self.origin.wrapping_sub(1));
        }
    }

    /// Whether the far end advertised that it restores frames of this rule and this type of
    /// service, without ECN.
    ///
    /// # Errors
    /// [`PassReason::NotNegotiated`], [`PassReason::TaggedLate`], [`PassReason::ParametersDiffer`].
    #[inline]
    pub fn negotiated(&self, rule: &Rule, tos: u8) -> Result<(), PassReason> {
        self.handshake.negotiated(rule, tos, || match self.tag {
            Tag::Late => PassReason::TaggedLate,
            Tag::Never | Tag::Syn => PassReason::NotNegotiated,
        })
    }

    /// [`Self::head_len`] of the segment at `seq`, if that is a new one of a stream that is
    /// compressed: then hardly anything but the segment itself forbids it.
    #[inline]
    pub(crate) fn expects(&self, seq: u32, alignment: Alignment) -> Option<usize> {
        let is_compressed = self.phase == Phase::Open
            && self.traffic.compressed > 0
            && self.payload != Payload::Mixed
            && self.trust.state() == TrustState::Trusted;
        if is_compressed && !is_before(seq, self.sent) { self.head_len(seq, alignment).ok() } else { None }
    }

    /// Whether all that the stream has sent up to the segment at `seq` looks like values.
    /// `looks_like_f32` says it of this segment, and gets whether the segment starts the stream.
    /// Where a header came once, others come.
    ///
    /// A length before each message shows at the stream's start alone. So a stream whose start was
    /// missed, because the bridge or a SYN had it, does not look like values. One that is tagged
    /// late starts at its first tagged segment, unless it advertised something on its SYN.
    ///
    /// # Errors
    /// [`PassReason::NotValues`].
    #[inline(always)]
    pub(crate) fn check_payload(
        &mut self,
        seq: u32,
        looks_like_f32: impl FnOnce(bool) -> bool,
    ) -> Result<(), PassReason> {
        let starts = self.payload == Payload::Unseen;
        let missed = starts
            && self.started
            && seq != self.origin
            && (self.tag != Tag::Late || self.handshake.has_advertised());
        if missed || self.payload == Payload::Mixed || !looks_like_f32(starts) {
            self.payload = Payload::Mixed;
            return Err(PassReason::NotValues);
        }
        self.payload = Payload::Values;
        Ok(())
    }

    /// Its tagged SYN has a value's length of data, at least: `looks_like_f32` says whether that
    /// looks like the start of a stream of values.
    pub(crate) fn check_syn_payload(&mut self, looks_like_f32: impl FnOnce() -> bool) {
        if self.phase == Phase::Opening {
            self.payload = if looks_like_f32() { Payload::Values } else { Payload::Mixed };
        }
    }

    /// A segment leaves. Behind a long silence, the far end may restore in-place frames by other
    /// rules than it advertised.
    pub(crate) fn lapse(&mut self, now: Millis) {
        let limit = if self.traffic.frames == 0 { UNUSED_MS } else { IDLE_MS };
        self.handshake.lapse(now.since(self.seen) >= limit);
    }

    /// A tagged segment without payload leaves: its host holds the connection, and may receive.
    pub(crate) fn acknowledge(&mut self, now: Millis) {
        self.lapse(now);
        self.established = true;
        self.seen = now;
    }

    /// Whether the far end may send in-place frames that `rules` would restore to other values than
    /// this end advertised.
    pub(crate) fn needs_other_than(&self, rules: &Rules, now: Millis) -> bool {
        !self.yields(now) && self.handshake.differs_from(rules)
    }

    /// The advertisements of the two ends, as far as this direction knows: a flow that has sent no
    /// payload may not have looked for the far end's answer.
    #[must_use]
    pub const fn handshake(&self) -> Negotiation {
        self.handshake.negotiation()
    }

    /// The state of the connection.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the peer seems to restore what it is sent.
    #[must_use]
    pub const fn trust(&self) -> TrustState {
        self.trust.state()
    }

    /// Its tagged segments with payload; bytes are those of the payloads.
    #[must_use]
    pub const fn traffic(&self) -> &TaggedTraffic {
        &self.traffic
    }

    /// Takes note of a tagged segment that starts at `seq` and has `len` payload bytes, and says
    /// whether it may be compressed. The caller says with [`Flow::compressed`] that it was.
    ///
    /// # Errors
    /// Why it must go untouched.
    #[inline(always)]
    pub fn admit(&mut self, seq: u32, len: u32, now: Millis) -> Result<(), PassReason> {
        self.seen = now;
        self.traffic.count(len as usize);
        let end = seq.wrapping_add(len);
        let first = self.phase == Phase::Opening;
        if first && !self.started {
            self.origin = seq;
        }
        // Before the tag, a connection may have sent any number of bytes; not if it advertised on
        // its SYN what it restores.
        let known = self.tag != Tag::Never || self.handshake.has_advertised();
        let far = first && known && seq.wrapping_sub(self.origin) >= START_REACH;
        // An open flow stays open: nearly all payload is such a flow's, and costs no call.
        if self.phase != Phase::Open {
            self.apply(if far { Event::FarPayload } else { Event::Payload });
        }
        if self.tag == Tag::Never {
            self.tag = Tag::Late;
        }
        match self.phase {
            Phase::Open => {}
            Phase::Doubtful => {
                self.sent = end;
                return Err(PassReason::AlignmentDoubtful);
            }
            Phase::Vacant | Phase::Opening | Phase::Closed => return Err(PassReason::AlignmentUnknown),
        }
        if first {
            // Whatever the connection sent before it was tagged does not count as sent.
            self.sent = seq;
        }
        if is_before(seq, self.sent) {
            if is_before(self.sent, end) {
                self.sent = end;
            }
            self.trust.resent(seq, now);
            return Err(PassReason::Resent);
        }
        self.sent = end;
        if self.trust.allows(seq, now) { Ok(()) } else { Err(PassReason::Bypassed) }
    }

    /// The segment at `seq` that [`Flow::admit`] allowed left compressed, `saved` bytes shorter.
    pub const fn compressed(&mut self, seq: u32, saved: usize) {
        self.trust.compressed(seq);
        self.traffic.count_compressed(saved);
    }

    /// FIN or RST was sent; `at` is the sequence number behind its payload. It ends the flow if
    /// that is what the host sends next. Elsewhere it says nothing: a host answers a stray ACK with
    /// a RST whose number the stray one chose (RFC 9293 §3.5.2).
    pub fn end(&mut self, at: u32) {
        if at == self.sent {
            self.apply(Event::End);
        }
    }

    /// There is a rule under which payload alone opens a flow, be it another one than serves this
    /// flow now. So it keeps its place for [`CLOSED_MS`] behind its end: forgotten, it would be
    /// opened anew, and bytes compressed a second time.
    pub const fn keep(&mut self) {
        self.reopens = true;
    }

    /// Whether another connection may take its place.
    fn yields(&self, now: Millis) -> bool {
        now.since(self.seen) >= self.keeps()
    }

    /// The number of milliseconds it keeps its place behind its last frame.
    fn keeps(&self) -> u64 {
        let has_sent = self.traffic.frames > 0;
        match self.phase {
            Phase::Vacant => 0,
            Phase::Closed if self.reopens || self.handshake.restores_in_place() => CLOSED_MS,
            Phase::Closed => 0,
            // It may only receive, and has to restore what it advertised: twice as long as the far
            // end starts to.
            Phase::Opening | Phase::Open | Phase::Doubtful if self.handshake.restores_in_place() => {
                2 * if has_sent || self.established { IDLE_MS } else { UNUSED_MS }
            }
            // Most connections are never tagged; they must not crowd out those that are, or that
            // advertised that they restore.
            Phase::Opening | Phase::Open | Phase::Doubtful
                if self.tag == Tag::Never && !self.handshake.has_advertised() =>
            {
                0
            }
            // Nor those that only a flood of SYNs began.
            Phase::Opening => OPENING_MS,
            Phase::Doubtful if !has_sent => OPENING_MS,
            Phase::Open | Phase::Doubtful => IDLE_MS,
        }
    }

    /// Whether nothing that its connection did can matter any more, even if nobody wants its place.
    fn is_over(&self, now: Millis) -> bool {
        now.since(self.seen) >= self.keeps().max(CLOSED_MS)
    }
}

/// Whether sequence number `a` comes before `b` (RFC 9293 §3.4: modulo 2^32).
const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// A SYN as the table sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Syn {
    /// Its sequence number.
    pub isn: u32,
    /// Whether a rule matches it.
    pub tagged: bool,
    /// Whether it cannot be relied on: [`Event::DoubtfulSyn`].
    pub doubtful: bool,
}

/// Flows by key: `SETS` sets of [`WAYS`]; `SETS` is a power of two.
///
/// A look-up or an insertion touches one set, so a flood of new flows costs no more a frame than
/// none. A live flow never loses its place: if a set is full, new flows go untouched.
#[derive(Debug)]
pub struct FlowTable<const SETS: usize> {
    sets: [[Flow; WAYS]; SETS],
    seed: u64,
    /// The place of the flow that was found last: segments come in bursts.
    last: usize,
}

impl<const SETS: usize> FlowTable<SETS> {
    /// An empty table; `seed` keys the hash, so that who does not know it cannot fill one set on
    /// purpose.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        const { assert!(SETS.is_power_of_two()) };
        Self { sets: [[Flow::VACANT; WAYS]; SETS], seed, last: 0 }
    }

    /// Forgets all flows; `seed` keys the hash from now on.
    pub fn clear(&mut self, seed: u64) {
        self.sets.as_flattened_mut().fill(Flow::VACANT);
        self.seed = seed;
    }

    /// The flow with this key.
    #[inline(always)]
    pub fn find(&mut self, key: &FlowKey) -> Option<&mut Flow> {
        let has = |flow: &Flow| flow.key == *key && flow.phase != Phase::Vacant;
        if !self.sets.as_flattened().get(self.last).is_some_and(has) {
            let set = self.set(key);
            self.last = WAYS * set + self.sets.get(set)?.iter().position(has)?;
        }
        self.sets.as_flattened_mut().get_mut(self.last)
    }

    /// Takes note of a SYN; its flow.
    ///
    /// # Errors
    /// [`PassReason::TableFull`].
    pub fn syn(&mut self, key: &FlowKey, syn: Syn, now: Millis) -> Result<&mut Flow, PassReason> {
        let origin = syn.isn.wrapping_add(1);
        let flow = self.find_or_insert(key, now)?;
        // A host may send the end of a connection past the engine. Much later, another start of its
        // ports is another connection's.
        if flow.is_over(now) && !(flow.started && flow.origin == origin) {
            *flow = Flow { key: *key, ..Flow::VACANT };
        }
        let event = match flow.phase {
            _ if syn.doubtful => Event::DoubtfulSyn,
            Phase::Vacant => Event::Syn,
            _ if flow.started && flow.origin == origin => Event::Syn,
            // Up to what was sent, it may be a late copy of the SYN that the peer accepted. Beyond
            // it is another connection's (RFC 9293 §3.6.1).
            Phase::Closed if !flow.started && !is_before(flow.sent, origin) => Event::DoubtfulSyn,
            _ => Event::OtherSyn,
        };
        let before = flow.phase;
        flow.apply(event);
        if flow.phase == Phase::Opening && before != Phase::Opening {
            let (phase, sent) = (Phase::Opening, origin);
            *flow = Flow { key: *key, phase, started: true, origin, sent, ..Flow::VACANT };
        }
        if syn.tagged && flow.phase == Phase::Opening {
            flow.tag = Tag::Syn;
        }
        flow.handshake.count_syn();
        flow.seen = now;
        Ok(flow)
    }

    /// The flow with this key; if there is none, a new one whose first payload fixes its alignment.
    /// One that has ended stays so, until a SYN begins another connection.
    ///
    /// # Errors
    /// [`PassReason::TableFull`].
    pub fn find_or_open(&mut self, key: &FlowKey, now: Millis) -> Result<&mut Flow, PassReason> {
        let flow = self.find_or_insert(key, now)?;
        if flow.phase == Phase::Vacant {
            *flow = Flow { key: *key, phase: Phase::Opening, tag: Tag::Syn, ..Flow::VACANT };
        }
        flow.keep();
        Ok(flow)
    }

    /// Every flow that has a place.
    pub fn iter(&self) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        let flows = self.sets.iter().flatten().filter(|flow| flow.phase != Phase::Vacant);
        flows.map(|flow| (&flow.key, flow))
    }

    /// The place of this key: its own, else one that is vacant (`phase` says so), else one that
    /// yields.
    fn find_or_insert(&mut self, key: &FlowKey, now: Millis) -> Result<&mut Flow, PassReason> {
        let set = self.set(key);
        let set = self.sets.get_mut(set).map_or(&mut [][..], |set| set);
        // Own place first, then who was seen longest ago; vacant places were never seen.
        let rank = |flow: &Flow| match flow.phase {
            Phase::Vacant => Some((1, 0)),
            _ if flow.key == *key => Some((0, 0)),
            _ if flow.yields(now) => Some((2, flow.seen.0)),
            _ => None,
        };
        let ranked = set.iter_mut().filter_map(|flow| rank(flow).map(|rank| (rank, flow)));
        let (_, flow) = ranked.min_by_key(|(rank, _)| *rank).ok_or(PassReason::TableFull)?;
        if flow.key != *key {
            *flow = Flow { key: *key, ..Flow::VACANT };
        }
        Ok(flow)
    }

    /// The number of the set that has the key's place.
    fn set(&self, key: &FlowKey) -> usize {
        let hash = key.hash(self.seed);
        // A product's low bits know nothing of the factor's high ones, where ports are; its highest
        // know of all. The remainder is no other number, and the compiler can see it in range.
        (((hash >> 32) * SETS as u64) >> 32) as usize % SETS
    }
}
