//! A worker: contributes the chunks of its operations, and collects the results.

use super::pace::{Pace, SILENT_MS};
use super::slot::{SECTION_ROOM, read_all};
use crate::codec::VALUE_LEN;
use crate::engine::Millis;
use crate::kernels::Kernel;
use crate::sums::{Summable, value_of};
use crate::verdict::outcomes;
use crate::wire::chunk::{
    BLOCK_LEN, BLOCK_VALUES, Blocks, Body, Cookie, HEADER_LEN, Head, Limits, MAX_BLOCKS, NO_COOKIE, Packet,
    Part, Refusal, all_blocks_mask, values_of_block,
};

/// Hellos are sent again after so long.
const HELLO_MS: u64 = 20;
/// A result so many chunks ahead says that a packet of the chunk was lost: all workers had
/// contributed to it before. One alone may have been overtaken on the way.
const AHEAD: u32 = 2;
/// So often a worker sends the same blocks again. An aggregator that lacks them still will not take
/// them; that the network loses one packet so often is as unlikely.
const MOST_REPEATS: u8 = 5;

/// Which job a worker belongs to, and as whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The job.
    pub job: u16,
    /// Its epoch, which all workers have agreed on. A job that starts over does so in a later one;
    /// the first one is best drawn by chance, so that nobody guesses it.
    pub epoch: u32,
    /// Our number among the aggregator's children.
    pub child: u8,
    /// The number of children the aggregator has.
    pub children: u8,
    /// The number of workers the whole job has.
    pub total: u8,
    /// The most that the worker can have. The aggregator may ask for less.
    pub limits: Limits,
    /// A secret of the job.
    pub key: u64,
}

/// The next action of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Send the first bytes of the output to the aggregator, and poll again.
    Send(usize),
    /// There is nothing to send until a datagram comes, or this time does.
    Wait(Millis),
    /// The operation is done; without one, the worker has joined.
    Done,
    /// The aggregator cannot be relied on; this is final. All workers have to agree on what each
    /// holds, sum the rest in another way, and start a later epoch.
    Failed(Failure),
}

/// Why a worker has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Failure {
    /// No answer for [`SILENT_MS`].
    Silent,
    /// The aggregator lacks the same blocks however often they are sent: it drops them.
    Dropped,
    /// The aggregator refuses.
    Refused {
        /// Why.
        reason: Refusal,
        /// The job's epoch, as the aggregator knows it.
        epoch: u32,
    },
}

/// The effect of a datagram. Chunks are counted from the operation's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing.
    Ignored(Ignored),
    /// The aggregator wants to see that we get what it sends: the next hello says so.
    Challenged,
    /// The aggregator takes us; results go to this group, or to our address.
    Joined {
        /// The IPv4 group of results.
        group: Option<[u8; 4]>,
    },
    /// Some blocks of a chunk are there.
    Progress,
    /// A chunk is whole, and in the output.
    Chunk {
        /// Which.
        chunk: usize,
        /// The largest biased exponent of all workers' finite values.
        peak: u8,
    },
    /// A chunk has a value that is too large for its unit, on some worker: the output has no
    /// result. Every worker learns it. All sum the chunk again with a larger unit, as an operation
    /// of its own.
    Rescale {
        /// Which.
        chunk: usize,
        /// The largest biased exponent of all workers' finite values.
        peak: u8,
    },
    /// The aggregator waits for others.
    Waiting {
        /// A bit for each of those.
        children: u64,
    },
    /// The aggregator lacks blocks of ours, which will be sent again.
    Missing,
    /// The aggregator refuses: the worker has failed.
    Refused,
}

outcomes! {
    /// Why a datagram was ignored.
    Ignored {
        /// No packet of this protocol.
        Malformed = "malformed",
        /// A packet that only aggregators get.
        Misplaced = "misplaced",
        /// Another job.
        OtherJob = "other-job",
        /// Another epoch.
        OtherEpoch = "other-epoch",
        /// A welcome with another key, or one that asks for more than we can have.
        Welcome = "welcome",
        /// A chunk that is not under way; its result is there, or not expected yet.
        NotUnderWay = "not-under-way",
        /// Another number of values or of workers, or another profile, than the chunk has.
        OtherChunk = "other-chunk",
        /// Blocks that are there.
        Duplicate = "duplicate",
        /// The sections are none.
        Sections = "sections",
    }
}

/// The chunks of one place of the window, one after the other.
#[derive(Clone, Copy, Debug)]
struct WindowPlace {
    /// The chunk under way, or else the next one; all before are done.
    seq: u32,
    is_under_way: bool,
    /// Blocks that are to be sent.
    unsent: u16,
    /// Blocks of the result that are there.
    have: u16,
    /// When the contribution's last packet was sent.
    sent: Millis,
    /// When to ask, and how long the worker has waited until then.
    ask: Millis,
    waited: u64,
    /// The worker has asked, or has sent blocks again.
    was_asked: bool,
    /// The last answer was that the aggregator waits for others.
    is_waiting: bool,
    /// Results of later chunks have come.
    is_overtaken: bool,
    /// Blocks that the aggregator lacked last, and how often the same ones.
    lacked: u16,
    repeats: u8,
}

/// Values that are summed.
#[derive(Clone, Copy, Debug)]
struct Operation {
    /// The number of its first chunk.
    first: u32,
    values: usize,
    profile: Summable,
    left: u32,
}

/// A worker of one job in one epoch, with a window of at most `WINDOW` chunks.
#[derive(Clone, Debug)]
pub struct Worker<const WINDOW: usize> {
    settings: WorkerSettings,
    kernel: Kernel,
    /// The limits of the aggregator's welcome.
    joined: Option<Limits>,
    failure: Option<Failure>,
    /// Since when the aggregator has not answered.
    asked: Option<Millis>,
    hello: Option<Millis>,
    /// The cookie that the next hello repeats.
    cookie: Cookie,
    places: [WindowPlace; WINDOW],
    operation: Option<Operation>,
    /// The number of the chunk behind the last operation.
    next: u32,
    pace: Pace,
    ignored: [u64; Ignored::ALL.len()],
}

impl<const WINDOW: usize> Worker<WINDOW> {
    /// A worker that has not said hello yet. The window is no larger than `WINDOW`.
    #[must_use]
    pub fn new(settings: WorkerSettings, kernel: Kernel) -> Self {
        const { assert!(WINDOW >= 1 && WINDOW.is_power_of_two() && WINDOW <= 64) }
        let limits = Limits { window: settings.limits.window.min(WINDOW as u8), ..settings.limits };
        let place = WindowPlace {
            seq: 0,
            is_under_way: false,
            unsent: 0,
            have: 0,
            sent: Millis(0),
            ask: Millis(0),
            waited: 0,
            was_asked: false,
            is_waiting: false,
            is_overtaken: false,
            lacked: 0,
            repeats: 0,
        };
        Self {
            settings: WorkerSettings { limits, ..settings },
            kernel,
            joined: None,
            failure: None,
            asked: None,
            hello: None,
            cookie: NO_COOKIE,
            places: [place; WINDOW],
            operation: None,
            next: 0,
            pace: Pace::new(1),
            ignored: [0; Ignored::ALL.len()],
        }
    }

    /// Which job, and as whom.
    #[must_use]
    pub const fn settings(&self) -> &WorkerSettings {
        &self.settings
    }

    /// The limits that the aggregator agreed to; None before its welcome.
    #[must_use]
    pub const fn limits(&self) -> Option<Limits> {
        self.joined
    }

    /// Datagrams ignored for this reason; it wraps at 2^64.
    #[must_use]
    pub fn ignored(&self, reason: Ignored) -> u64 {
        self.ignored.get(reason as usize).copied().unwrap_or(0)
    }

    /// Starts to sum `values` values. All workers start the same operations in the same order.
    /// Nothing happens, and the answer is `false`, before the aggregator's welcome, while another
    /// operation goes on, and after a failure.
    pub fn start(&mut self, values: usize, profile: impl Into<Summable>) -> bool {
        let Some(limits) = self.joined.filter(|_| self.failure.is_none() && self.is_done()) else {
            return false;
        };
        let Some(left) = i32::try_from(limits.chunks(values)).ok().map(i32::cast_unsigned) else {
            return false;
        };
        let first = self.next;
        self.next = first.wrapping_add(left);
        self.operation = Some(Operation { first, values, profile: profile.into(), left });
        // Whatever was asked before was not about this.
        self.asked = None;
        true
    }

    /// Whether no operation goes on.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.operation.is_none_or(|operation| operation.left == 0)
    }

    /// Whether the result of a chunk of the last operation is whole, or it is known that there is
    /// none ([`Event::Rescale`]). If a worker holds a chunk, all others hold the one a window
    /// before.
    #[must_use]
    pub fn holds(&self, chunk: usize) -> bool {
        let (Some(Operation { first, values, .. }), Some(limits)) = (self.operation, self.joined) else {
            return false;
        };
        let Ok(number) = u32::try_from(chunk) else { return false };
        let ahead = |place: &WindowPlace| place.seq.wrapping_sub(first);
        chunk < limits.chunks(values)
            && self
                .place(first.wrapping_add(number))
                .is_some_and(|place| ahead(place) > number && ahead(place) < 1 << 31)
    }

    fn window(&self) -> u32 {
        self.joined.map_or(1, |limits| limits.window.into())
    }

    fn place(&self, seq: u32) -> Option<&WindowPlace> {
        self.places.get((seq & (self.window() - 1)) as usize)
    }

    /// The next packet to send, or what else the worker wants. `input` has the values of the
    /// operation, little-endian `f32`s, and must not change until the operation is done; values
    /// that it lacks are zeros, so a worker that only receives gives none. `out` has room for a
    /// packet: [`MAX_PACKET_LEN`](crate::wire::chunk::MAX_PACKET_LEN) bytes are enough.
    pub fn poll(&mut self, input: &[u8], now: Millis, out: &mut [u8]) -> Poll {
        if let Some(failure) = self.failure {
            return Poll::Failed(failure);
        }
        let silent_at = self.asked.map(|asked| Millis(asked.0.saturating_add(SILENT_MS)));
        if silent_at.is_some_and(|at| now >= at) {
            self.failure = Some(Failure::Silent);
            return Poll::Failed(Failure::Silent);
        }
        let earliest = |at: Millis| silent_at.map_or(at, |silent| silent.min(at));
        let Some(limits) = self.joined else {
            let due = self.hello.map_or(now, |at| Millis(at.0.saturating_add(HELLO_MS)));
            if now < due {
                return Poll::Wait(earliest(due));
            }
            self.hello = Some(now);
            let WorkerSettings { child, children, total, limits, key, .. } = self.settings;
            let cookie = self.cookie;
            let hello = Body::Hello { child, children, total, is_aggregator: false, limits, key, cookie };
            return self.send(0, hello, now, out);
        };
        let Some(operation) = self.operation.filter(|operation| operation.left > 0) else {
            return Poll::Done;
        };

        let (mut under_way, mut lowest) = (0, u32::MAX);
        let (mut sending, mut asking, mut starting) = (None, None, None);
        let mut wait = Millis(u64::MAX);
        for (number, place) in self.places.iter().take(usize::from(limits.window)).enumerate() {
            let order = place.seq.wrapping_sub(operation.first);
            let earlier = |other: Option<(u32, usize)>| match other {
                Some(other) if other.0 <= order => Some(other),
                _ => Some((order, number)),
            };
            if !place.is_under_way {
                starting = earlier(starting);
                continue;
            }
            (under_way, lowest) = (under_way + 1, order.min(lowest));
            if place.unsent != 0 {
                sending = earlier(sending);
            } else if now >= place.ask {
                asking = earlier(asking);
            } else {
                wait = wait.min(place.ask);
            }
        }
        // The first chunk that is not done may always start: it may be the one that all others wait
        // for, and whose results would make room. Two workers with small windows could else wait
        // for each other's chunks for ever.
        let may_start = |order: u32| under_way < self.pace.window() || order < lowest;
        let chunks = limits.chunks(operation.values);
        let starting = starting.filter(|(order, _)| (*order as usize) < chunks && may_start(*order));
        if let Some((order, number)) = sending.or(starting) {
            return self.contribute(number, order, operation, limits, input, now, out);
        }
        if let Some((_, number)) = asking
            && let Some(place) = self.places.get_mut(number)
        {
            // A first question that later results called for says nothing of how long a result
            // takes.
            if place.was_asked || !place.is_overtaken {
                place.waited = Pace::backed_off(place.waited);
            }
            place.ask = Millis(now.0.saturating_add(place.waited));
            place.was_asked = true;
            let (seq, child, is_overtaken) = (place.seq, self.settings.child, place.is_overtaken);
            return self.send(seq, Body::Query { child, is_overtaken }, now, out);
        }
        Poll::Wait(earliest(wait))
    }

    fn head(&self, seq: u32) -> Head {
        Head { job: self.settings.job, epoch: self.settings.epoch, seq }
    }

    fn send(&mut self, seq: u32, body: Body<'_>, now: Millis, out: &mut [u8]) -> Poll {
        self.asked.get_or_insert(now);
        let packet = Packet { head: self.head(seq), body };
        // Without room there is silence, sooner or later.
        packet.write(out).map_or(Poll::Wait(Millis(now.0.saturating_add(1))), Poll::Send)
    }

    /// Sends the first blocks of a place's chunk that are to be sent, as many as fit.
    #[expect(clippy::too_many_arguments, reason = "what `poll` has found out")]
    fn contribute(
        &mut self,
        number: usize,
        chunk: u32,
        operation: Operation,
        limits: Limits,
        input: &[u8],
        now: Millis,
        out: &mut [u8],
    ) -> Poll {
        let (kernel, timeout) = (self.kernel, self.pace.timeout());
        let head = self.head(operation.first.wrapping_add(chunk));
        let child = self.settings.child;
        let start = chunk as usize * limits.values();
        let values = (operation.values - start.min(operation.values)).min(limits.values());
        let Some(place) = self.places.get_mut(number) else { return Poll::Done };
        if !place.is_under_way {
            (place.is_under_way, place.unsent, place.have) = (true, all_blocks_mask(values), 0);
            (place.waited, place.was_asked) = (timeout, false);
            (place.is_waiting, place.is_overtaken) = (false, false);
            (place.lacked, place.repeats) = (0, 0);
        }
        let first = place.unsent.trailing_zeros() as usize;
        let most = limits.packet_len().min(out.len());
        let Some(out) = out.get_mut(..most) else { return Poll::Done };
        let (mut at, mut count, mut peak) = (HEADER_LEN, 0, 0);
        for block in first..MAX_BLOCKS {
            if place.unsent >> block & 1 == 0 {
                break;
            }
            let mut copy = [0; BLOCK_LEN];
            let len = VALUE_LEN * values_of_block(values, block);
            let from = (VALUE_LEN * (start + block * BLOCK_VALUES)).min(input.len());
            let given = input.get(from..).map_or(&[][..], |rest| rest.get(..len).unwrap_or(rest));
            for (to, from) in copy.iter_mut().zip(given) {
                *to = *from;
            }
            let Some(block_values) = copy.get(..len) else { break };
            let mut section = [0; SECTION_ROOM];
            let Ok(len) = kernel.encode(block_values, &mut section, operation.profile.profile()) else {
                break;
            };
            let (Some(section), Some(room)) =
                (section.get(..len), out.get_mut(at..).and_then(|out| out.get_mut(..len)))
            else {
                break;
            };
            room.copy_from_slice(section);
            (at, count, peak) = (at + len, count + 1, peak_of(block_values).max(peak));
        }
        let part = Blocks::new(values, first, count).map(|blocks| Part {
            blocks,
            peak,
            profile: operation.profile,
            sections: &[],
        });
        let Some(part) = part else {
            // No room for a packet.
            self.asked.get_or_insert(now);
            return Poll::Wait(Millis(now.0.saturating_add(1)));
        };
        place.unsent &= !part.blocks.mask();
        place.sent = now;
        place.ask = Millis(now.0.saturating_add(place.waited));
        self.asked.get_or_insert(now);
        let packet = Packet { head, body: Body::Contribute { child, part } };
        packet.write_before_sections(out).map_or(Poll::Done, |()| Poll::Send(at))
    }

    /// Takes the payload of a datagram from the aggregator: who calls has to look at where it comes
    /// from. Results go to `output`, which has room for the operation's values and is not the
    /// input.
    pub fn handle(&mut self, datagram: &[u8], output: &mut [u8], now: Millis) -> Event {
        let event = self.event(datagram, output, now);
        // Whatever the aggregator says of this epoch shows that it lives.
        let lives = match event {
            Event::Ignored(reason) => {
                if let Some(count) = self.ignored.get_mut(reason as usize) {
                    *count = count.wrapping_add(1);
                }
                matches!(reason, Ignored::NotUnderWay | Ignored::Duplicate)
            }
            // An aggregator that asks so for ever takes nobody.
            Event::Challenged => false,
            _ => true,
        };
        if lives {
            self.asked = None;
        }
        event
    }

    fn event(&mut self, datagram: &[u8], output: &mut [u8], now: Millis) -> Event {
        let Ok(Packet { head, body }) = Packet::parse(datagram) else {
            return Event::Ignored(Ignored::Malformed);
        };
        if head.job != self.settings.job {
            return Event::Ignored(Ignored::OtherJob);
        }
        if head.epoch != self.settings.epoch {
            return Event::Ignored(Ignored::OtherEpoch);
        }
        match body {
            Body::Welcome { key, cookie, .. } if cookie != NO_COOKIE => self.challenged(key, cookie),
            Body::Welcome { limits, group, key, .. } => self.welcome(limits, group, key),
            Body::Refuse { reason, epoch } => {
                let is_late = reason == Refusal::OutOfStep && self.under_way(head.seq).is_none();
                if is_late {
                    return Event::Ignored(Ignored::NotUnderWay);
                }
                self.failure.get_or_insert(Failure::Refused { reason, epoch });
                Event::Refused
            }
            Body::Result { workers, .. } if workers != self.settings.total => {
                Event::Ignored(Ignored::OtherChunk)
            }
            Body::Result { part, .. } => self.result(head.seq, &part, output, now),
            Body::Rescale { peak } => match self.finish(head.seq, now) {
                Some(chunk) => Event::Rescale { chunk, peak },
                None => Event::Ignored(Ignored::NotUnderWay),
            },
            Body::Waiting { children } => {
                let Some((_, place)) = self.under_way(head.seq) else {
                    return Event::Ignored(Ignored::NotUnderWay);
                };
                place.is_waiting = true;
                Event::Waiting { children }
            }
            Body::Missing { blocks } => {
                let Some((operation, place)) = self.under_way(head.seq) else {
                    return Event::Ignored(Ignored::NotUnderWay);
                };
                let (operation, seq) = (*operation, place.seq);
                let values = self.values_of(operation, seq);
                let Some((_, place)) = self.under_way(head.seq) else {
                    return Event::Ignored(Ignored::NotUnderWay);
                };
                let lacked = blocks & all_blocks_mask(values);
                // Two answers before one is acted on are one.
                if place.unsent & lacked == 0 {
                    place.repeats = if lacked == place.lacked { place.repeats.saturating_add(1) } else { 1 };
                    place.lacked = lacked;
                }
                place.unsent |= lacked;
                (place.was_asked, place.is_waiting) = (true, false);
                if place.repeats > MOST_REPEATS {
                    self.failure.get_or_insert(Failure::Dropped);
                }
                self.pace.lost(now);
                Event::Missing
            }
            Body::Hello { .. } | Body::Contribute { .. } | Body::Partial { .. } | Body::Query { .. } => {
                Event::Ignored(Ignored::Misplaced)
            }
        }
    }

    fn challenged(&mut self, key: u64, cookie: Cookie) -> Event {
        if key != self.settings.key || self.joined.is_some() {
            return Event::Ignored(Ignored::Welcome);
        }
        if self.cookie != cookie {
            // The next hello leaves at once.
            (self.cookie, self.hello) = (cookie, None);
        }
        Event::Challenged
    }

    fn welcome(&mut self, limits: Limits, group: [u8; 4], key: u64) -> Event {
        let asked = self.settings.limits;
        if key != self.settings.key || limits != limits.min(asked) {
            return Event::Ignored(Ignored::Welcome);
        }
        let group = (group != [0; 4]).then_some(group);
        match &mut self.joined {
            // Others that came later may have asked for shorter packets.
            Some(joined) if (joined.blocks, joined.window) == (limits.blocks, limits.window) => {
                joined.mtu = joined.mtu.min(limits.mtu);
            }
            Some(_) => return Event::Ignored(Ignored::Welcome),
            None => {
                self.joined = Some(limits);
                self.pace = Pace::new(limits.window.into());
                for (number, place) in self.places.iter_mut().enumerate() {
                    place.seq = number as u32;
                }
            }
        }
        Event::Joined { group }
    }

    /// The operation, and the place where a chunk is under way.
    fn under_way(&mut self, seq: u32) -> Option<(&Operation, &mut WindowPlace)> {
        let number = (seq & (self.window() - 1)) as usize;
        let place = self.places.get_mut(number)?;
        let operation = self.operation.as_ref()?;
        (place.is_under_way && place.seq == seq).then_some((operation, place))
    }

    /// Values of a chunk.
    fn values_of(&self, operation: Operation, seq: u32) -> usize {
        let most = self.joined.map_or(0, Limits::values);
        let start = seq.wrapping_sub(operation.first) as usize * most;
        operation.values.saturating_sub(start).min(most)
    }

    fn result(&mut self, seq: u32, part: &Part<'_>, output: &mut [u8], now: Millis) -> Event {
        let kernel = self.kernel;
        let Some((operation, place)) = self.under_way(seq) else {
            return Event::Ignored(Ignored::NotUnderWay);
        };
        let (operation, have) = (*operation, place.have);
        let values = self.values_of(operation, seq);
        if part.blocks.values() != values || part.profile != operation.profile {
            return Event::Ignored(Ignored::OtherChunk);
        }
        if part.blocks.mask() & !have == 0 {
            return Event::Ignored(Ignored::Duplicate);
        }
        let mut sums = [[0i32; BLOCK_VALUES]; MAX_BLOCKS];
        let read = |section: &[u8], sums: &mut [i32]| kernel.decode_result(section, sums, operation.profile);
        if !read_all(part, &mut sums, read) {
            return Event::Ignored(Ignored::Sections);
        }
        let start = seq.wrapping_sub(operation.first) as usize * self.joined.map_or(0, Limits::values);
        let unit = operation.profile.unit();
        for (block, count) in part.blocks.each().filter(|(block, _)| have >> block & 1 == 0) {
            let at = VALUE_LEN * (start + block * BLOCK_VALUES);
            let (Some(sums), Some(output)) = (sums.get(block), output.get_mut(at..)) else { continue };
            for (value, sum) in output.as_chunks_mut().0.iter_mut().zip(sums).take(count) {
                *value = value_of(*sum, unit).to_le_bytes();
            }
        }
        let Some((_, place)) = self.under_way(seq) else { return Event::Ignored(Ignored::NotUnderWay) };
        place.have |= part.blocks.mask();
        if place.have != all_blocks_mask(values) {
            return Event::Progress;
        }
        match self.finish(seq, now) {
            Some(chunk) => Event::Chunk { chunk, peak: part.peak },
            None => Event::Ignored(Ignored::NotUnderWay),
        }
    }

    /// Ends a chunk under way; its number in the operation.
    fn finish(&mut self, seq: u32, now: Millis) -> Option<usize> {
        let window = self.window();
        let (operation, place) = self.under_way(seq)?;
        let first = operation.first;
        let WindowPlace { sent, was_asked, is_waiting, .. } = *place;
        place.seq = seq.wrapping_add(window);
        (place.is_under_way, place.unsent) = (false, 0);
        if was_asked && !is_waiting {
            self.pace.lost(now);
        }
        self.pace.result((!was_asked).then_some(now.since(sent)));
        for place in self.places.iter_mut().filter(|place| place.is_under_way && place.unsent == 0) {
            if !place.is_overtaken && (AHEAD..1 << 31).contains(&seq.wrapping_sub(place.seq)) {
                place.is_overtaken = true;
                if !place.was_asked {
                    place.ask = now;
                }
            }
        }
        if let Some(operation) = &mut self.operation {
            operation.left = operation.left.saturating_sub(1);
        }
        Some(seq.wrapping_sub(first) as usize)
    }
}

/// The largest biased exponent of the finite values.
fn peak_of(values: &[u8]) -> u8 {
    const INFINITE: u32 = 0x7f80_0000;
    let finite = |value: &[u8; VALUE_LEN]| {
        let magnitude = u32::from_le_bytes(*value) & i32::MAX as u32;
        if magnitude < INFINITE { magnitude } else { 0 }
    };
    let largest = values.as_chunks().0.iter().fold(0, |all, value| finite(value).max(all));
    (largest >> 23) as u8
}
