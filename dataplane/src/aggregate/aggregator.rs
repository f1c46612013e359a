//! The aggregator: takes datagrams, adds what they contribute, and answers.

use core::hash::{Hash, Hasher};

use heapless::Deque;

use super::job::{Agreement, IDLE_MS, Job, Standing, is_later};
use super::pace::SILENT_MS;
use super::slot::{Phase, Scratch};
use crate::engine::Millis;
use crate::kernels::Kernel;
use crate::sums::limit;
use crate::verdict::outcomes;
use crate::wire::chunk::{
    BLOCK_VALUES, Body, Cookie, HEADER_LEN, Head, Limits, NO_COOKIE, Packet, Part, Refusal,
};

/// A cookie is good for so long at least, and twice that at most.
const COOKIE_MS: u64 = 60_000;
/// Bytes of a refusal.
const REFUSAL_LEN: usize = HEADER_LEN + 8;

outcomes! {
    /// The effect of a datagram on an aggregator.
    Outcome {
        /// A contribution was added.
        Added = "added",
        /// A contribution was added and was the last one of its chunk.
        Completed = "completed",
        /// A child joined, or said hello again.
        Joined = "joined",
        /// A child's hello started a job, or an epoch of it.
        Started = "started",
        /// A hello from an address that has not shown that it gets what is sent there: it was sent
        /// a cookie.
        Challenged = "challenged",
        /// A child's hello waits until the parent knows the job.
        AskedParent = "asked-parent",
        /// A child asked, and learned which others its chunk waits for.
        Waiting = "waiting",
        /// A child asked, and learned which of its blocks are missing.
        Missing = "missing",
        /// A child asked, and was sent the result.
        Repeated = "repeated",
        /// A child asked for what has just been sent to all, or to it.
        Held = "held",
        /// The parent answered.
        FromParent = "from-parent",
        /// Refused: there is no such job.
        UnknownJob = "unknown-job",
        /// Refused: the hello's key is not the job's.
        Key = "key",
        /// Refused: the job's epoch is later.
        OldEpoch = "old-epoch",
        /// Refused: the hello disagrees with the job's.
        Differs = "differs",
        /// Refused: another address has this child's number.
        Taken = "taken",
        /// Refused: all places of jobs are taken.
        Full = "full",
        /// Refused: a number of workers that is not served.
        Workers = "workers",
        /// Refused: a child asks for what the aggregator cannot know.
        OutOfStep = "out-of-step",
        /// Refused: the parent refuses.
        RefusedByParent = "refused-by-parent",
        /// Dropped: no packet of this protocol.
        Malformed = "malformed",
        /// Dropped: a packet that only children get, from elsewhere than the parent.
        Misplaced = "misplaced",
        /// Dropped: a contribution to another epoch.
        OtherEpoch = "other-epoch",
        /// Dropped: a contribution from an address that has not joined as this child.
        Stranger = "stranger",
        /// Dropped: values of a child that is an aggregator, or a partial sum of one that is a
        /// worker.
        OtherKind = "other-kind",
        /// Dropped: it was added before.
        Duplicate = "duplicate",
        /// Dropped: a chunk that everybody has the result of.
        Old = "old",
        /// Dropped: a chunk that no child can have come to.
        Ahead = "ahead",
        /// Refused: another number of values, or another profile, than the rest of the chunk; or
        /// another number of workers than the child's other contributions, or than the job has. Of
        /// a result from the parent: dropped.
        OtherChunk = "other-chunk",
        /// Dropped: the sections are none, or hold what no sum can be.
        Sections = "sections",
    }
}

/// The parent of an aggregator: one of racks, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent<A> {
    /// Its address.
    pub address: A,
    /// Our number among its children.
    pub child: u8,
    /// The number of children it has.
    pub children: u8,
}

/// Settings of an aggregator.
#[derive(Clone, Copy, Debug)]
pub struct Settings<A> {
    /// The kernel that adds and encodes.
    pub kernel: Kernel,
    /// The longest packets, the largest window and chunks; no more than there is room for.
    pub limits: Limits,
    /// The IPv4 group of the first place of jobs; the others have the ones that follow. Without,
    /// each child gets a copy.
    pub group: Option<[u8; 4]>,
    /// The aggregator that has the sum of all, if this one has only a part.
    pub parent: Option<Parent<A>>,
    /// Drawn by chance at the start. Who guesses it can join from addresses that are not its own.
    pub secret: [u64; 2],
}

/// To whom a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To<A> {
    /// One address.
    One(A),
    /// An IPv4 group.
    Group([u8; 4]),
    /// A copy to each child of a job, [`Aggregator::children`].
    Each {
        /// The job.
        job: u16,
    },
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted<A> {
    /// To whom.
    pub to: To<A>,
    /// Its length in the output.
    pub len: usize,
}

/// Blocks of a slot that are yet to be sent.
#[derive(Clone, Copy)]
struct Stream<A> {
    to: To<A>,
    job: u16,
    seq: u32,
    next: usize,
}

/// An aggregator for `JOBS` jobs. Each has room for `SLOTS` chunks, twice the largest window, of
/// `BLOCKS` blocks. `A` is what an address is to the caller.
///
/// All it needs is within; it is large, and best made in place.
pub struct Aggregator<A, const JOBS: usize, const SLOTS: usize, const BLOCKS: usize> {
    settings: Settings<A>,
    jobs: [Job<A, SLOTS, BLOCKS>; JOBS],
    answers: Deque<(A, Packet<'static>), 2>,
    stream: Option<Stream<A>>,
    /// Bytes of the datagram that is answered.
    received: usize,
    scratch: Scratch<BLOCKS>,
    counts: [u64; Outcome::ALL.len()],
}

impl<A: Copy + PartialEq + Hash, const JOBS: usize, const SLOTS: usize, const BLOCKS: usize>
    Aggregator<A, JOBS, SLOTS, BLOCKS>
{
    /// An aggregator that knows no job.
    #[must_use]
    pub const fn new(settings: Settings<A>) -> Self {
        const { assert!(SLOTS >= 2 && SLOTS.is_power_of_two() && SLOTS <= 128) }
        const { assert!(JOBS > 0 && BLOCKS > 0 && BLOCKS <= 16) }
        Self {
            settings,
            jobs: [const { Job::new() }; JOBS],
            answers: Deque::new(),
            stream: None,
            received: 0,
            scratch: [[0; BLOCK_VALUES]; BLOCKS],
            counts: [0; Outcome::ALL.len()],
        }
    }

    /// The number of datagrams that had this outcome; it wraps at 2^64.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.counts.get(outcome as usize).copied().unwrap_or(0)
    }

    /// The jobs that have a place, and how many children have joined each.
    pub fn jobs(&self) -> impl Iterator<Item = (u16, usize)> {
        self.jobs.iter().filter(|job| job.is_open).map(|job| (job.id, job.joined().count()))
    }

    /// The addresses of a job's children that have joined it.
    pub fn children(&self, job: u16) -> impl Iterator<Item = A> {
        self.jobs.iter().filter(move |open| open.is_open && open.id == job).flat_map(Job::joined)
    }

    /// Takes the payload of a datagram. Afterwards, [`Self::emit`] has what is to be sent; what a
    /// caller leaves there is lost with the next datagram, as packets are.
    pub fn process(&mut self, datagram: &[u8], from: A, now: Millis) -> Outcome {
        self.answers.clear();
        self.stream = None;
        self.received = datagram.len();
        let outcome = self.outcome(datagram, from, now);
        if let Some(count) = self.counts.get_mut(outcome as usize) {
            *count = count.wrapping_add(1);
        }
        outcome
    }

    fn outcome(&mut self, datagram: &[u8], from: A, now: Millis) -> Outcome {
        let Ok(Packet { head, body }) = Packet::parse(datagram) else { return Outcome::Malformed };
        match body {
            Body::Hello { cookie, limits, key, .. } if !self.is_proven(from, cookie, now) => {
                // As long as the hello, and nothing is kept: what may come of it goes to an address
                // that somebody else may have written.
                let cookie = self.cookie(from, now.0 / COOKIE_MS);
                self.answer(from, head, Body::Welcome { limits, group: [0; 4], key, cookie });
                Outcome::Challenged
            }
            Body::Hello { child, children, total, is_aggregator, limits, key, .. } => {
                let hello = Agreement { epoch: head.epoch, children, total, limits, key };
                self.hello(from, head.job, child, is_aggregator, hello, now)
            }
            Body::Contribute { child, part } => self.contribute(from, head, child, None, &part, now),
            Body::Partial { child, workers, part } => {
                self.contribute(from, head, child, Some(workers), &part, now)
            }
            Body::Query { child, is_overtaken } => self.query(from, head, child, is_overtaken, now),
            Body::Result { .. }
            | Body::Rescale { .. }
            | Body::Welcome { .. }
            | Body::Refuse { .. }
            | Body::Waiting { .. }
            | Body::Missing { .. } => match self.settings.parent {
                Some(parent) if parent.address == from => self.receive_from_parent(parent, head, body, now),
                _ => Outcome::Misplaced,
            },
        }
    }

    /// The bytes that an address has to repeat in this minute: it depends on nothing that a job
    /// keeps, so that strangers take no room.
    fn cookie(&self, of: A, minute: u64) -> Cookie {
        let [first, second] = self.settings.secret;
        #[expect(deprecated, reason = "core has no other keyed hash")]
        let mut hasher = core::hash::SipHasher::new_with_keys(first, second);
        (of, minute).hash(&mut hasher);
        let [_, _, a, b, c, d, e, f] = hasher.finish().to_be_bytes();
        // Zeros would be none.
        [a | 1, b, c, d, e, f]
    }

    /// Whether a hello's cookie is what was sent to its address, this minute or in the one before.
    fn is_proven(&self, from: A, cookie: Cookie, now: Millis) -> bool {
        let minute = now.0 / COOKIE_MS;
        let was_sent = |minute| cookie == self.cookie(from, minute);
        cookie != NO_COOKIE && (was_sent(minute) || was_sent(minute.wrapping_sub(1)))
    }

    /// The number of a job's place.
    fn find(&self, job: u16) -> Option<usize> {
        self.jobs.iter().position(|open| open.is_open && open.id == job)
    }

    fn answer(&mut self, to: A, head: Head, body: Body<'static>) {
        // Two places, and no datagram has more than two answers.
        let _ = self.answers.push_back((to, Packet { head, body }));
    }

    /// Says no to `from`; `epoch` is the job's. Strangers get no more bytes than they sent: a query
    /// of theirs stays without an answer, for which their silence stands.
    fn refuse(&mut self, from: A, head: Head, reason: Refusal, epoch: u32) -> Outcome {
        let may_be_strange = matches!(reason, Refusal::UnknownJob | Refusal::OldEpoch | Refusal::Taken);
        if self.received >= REFUSAL_LEN || !may_be_strange {
            self.answer(from, head, Body::Refuse { reason, epoch });
        }
        match reason {
            Refusal::UnknownJob => Outcome::UnknownJob,
            Refusal::Key => Outcome::Key,
            Refusal::OldEpoch => Outcome::OldEpoch,
            Refusal::Differs => Outcome::Differs,
            Refusal::Taken => Outcome::Taken,
            Refusal::Full => Outcome::Full,
            Refusal::Workers => Outcome::Workers,
            Refusal::OutOfStep => Outcome::OutOfStep,
            Refusal::Parent => Outcome::RefusedByParent,
        }
    }

    /// Says no to a child whose contribution cannot be of the chunk, or of the job, that the others
    /// contribute to.
    fn disagrees(&mut self, from: A, head: Head) -> Outcome {
        let _ = self.refuse(from, head, Refusal::Differs, head.epoch);
        Outcome::OtherChunk
    }

    fn hello(
        &mut self,
        from: A,
        id: u16,
        child: u8,
        is_aggregator: bool,
        hello: Agreement,
        now: Millis,
    ) -> Outcome {
        let head = Head { job: id, epoch: hello.epoch, seq: 0 };
        let room = Limits { blocks: BLOCKS as u8, window: (SLOTS / 2) as u8, mtu: u16::MAX };
        let asked = Agreement { limits: hello.limits.min(self.settings.limits).min(room), ..hello };
        if hello.total < hello.children {
            return self.refuse(from, head, Refusal::Workers, hello.epoch);
        }
        if !asked.limits.are_valid() {
            return self.refuse(from, head, Refusal::Differs, hello.epoch);
        }
        let place = self.find(id).or_else(|| {
            let free = self.jobs.iter().position(|job| !job.is_open);
            let idle = || self.jobs.iter().position(|job| now.since(job.last_seen) >= IDLE_MS);
            free.or_else(idle)
        });
        let Some((place, job)) = place.and_then(|place| Some((place, self.jobs.get_mut(place)?))) else {
            return self.refuse(from, head, Refusal::Full, hello.epoch);
        };
        let agreed = job.agreed;
        // Another key may take the number of a job that was silent for so long, too.
        let is_left = agreed.key != asked.key && now.since(job.last_seen) >= IDLE_MS;
        let is_known = job.is_open && job.id == id && !is_left;
        // The parent's limits hold for children that ask for more.
        let limits = job.parent.map_or(asked.limits, |parent| parent.min(asked.limits));
        let same = agreed.children == asked.children
            && agreed.total == asked.total
            && (agreed.limits.blocks, agreed.limits.window) == (limits.blocks, limits.window);
        let mut outcome = Outcome::Joined;
        let refusal = if is_known && agreed.key != asked.key {
            Some(Refusal::Key)
        } else if !is_known || is_later(asked.epoch, agreed.epoch) {
            job.restart(id, asked);
            outcome = Outcome::Started;
            None
        } else if asked.epoch != agreed.epoch {
            Some(Refusal::OldEpoch)
        } else if !same {
            Some(Refusal::Differs)
        } else if job.is_refused_by_parent {
            Some(Refusal::Parent)
        } else {
            None
        };
        let epoch = job.agreed.epoch;
        if let Some(reason) = refusal.or_else(|| job.join(child, from, is_aggregator).err()) {
            return self.refuse(from, head, reason, epoch);
        }
        job.agreed.limits.mtu = job.agreed.limits.mtu.min(asked.limits.mtu);
        job.last_seen = now;
        let (limits, key) = (job.agreed.limits, job.agreed.key);
        if let Some(parent) = self.settings.parent
            && job.parent.is_none()
        {
            let hello = hello_to_parent(parent, job);
            self.answer(parent.address, head, hello);
            return Outcome::AskedParent;
        }
        let group = self.group(place).unwrap_or([0; 4]);
        self.answer(from, head, Body::Welcome { limits, group, key, cookie: NO_COOKIE });
        outcome
    }

    /// The group of a job's place.
    fn group(&self, place: usize) -> Option<[u8; 4]> {
        let first = u32::from_be_bytes(self.settings.group?);
        Some(first.wrapping_add(place as u32).to_be_bytes())
    }

    fn contribute(
        &mut self,
        from: A,
        head: Head,
        child: u8,
        partial: Option<u8>,
        part: &Part<'_>,
        now: Millis,
    ) -> Outcome {
        let kernel = self.settings.kernel;
        let Some(place) = self.find(head.job) else {
            return self.refuse(from, head, Refusal::UnknownJob, head.epoch);
        };
        let Some(job) = self.jobs.get_mut(place) else { return Outcome::UnknownJob };
        if head.epoch != job.agreed.epoch {
            return Outcome::OtherEpoch;
        }
        if job.address(child) != Some(from) {
            return Outcome::Stranger;
        }
        if job.is_aggregator(child) != partial.is_some() {
            return Outcome::OtherKind;
        }
        job.last_seen = now;
        if job.is_refused_by_parent {
            return self.refuse(from, head, Refusal::Parent, head.epoch);
        }
        let (everybody, limit) = (job.everybody(), limit(job.agreed.total));
        let (parent, workers) = (self.settings.parent, partial.unwrap_or(1));
        let may_be = part.blocks.values() <= job.agreed.limits.values()
            && job.may_be_of(child, workers, parent.is_none());
        let standing = job.standing(head.seq);
        let Some(slot) = job.slot(head.seq) else { return Outcome::Ahead };
        let starts = match standing {
            Some(Standing::Occupant) if slot.phase != Phase::Adding => return Outcome::Old,
            Some(Standing::Occupant) => None,
            Some(Standing::Next) => Some(head),
            Some(Standing::Old) => return Outcome::Old,
            Some(Standing::Ahead) | None => return Outcome::Ahead,
        };
        if !may_be || (starts.is_none() && !slot.agrees(part)) {
            return self.disagrees(from, head);
        }
        if starts.is_none() && part.blocks.mask() & slot.missing(child) == 0 {
            return Outcome::Duplicate;
        }
        let scratch = &mut self.scratch;
        let is_added = match partial {
            None => slot.add_values(kernel, child, part, limit, scratch, starts),
            Some(of) => slot.add_sums(kernel, child, part, limit.saturating_mul(of.into()), scratch, starts),
        };
        if !is_added {
            return Outcome::Sections;
        }
        let is_whole = slot.waits_for(everybody) == 0;
        if is_whole {
            slot.phase = if parent.is_some() { Phase::AtParent } else { Phase::Done };
        }
        job.is_of(child, workers);
        match parent {
            _ if !is_whole => return Outcome::Added,
            Some(parent) => self.stream(To::One(parent.address), head, 0),
            None => self.send_to_all(place, head, now),
        }
        Outcome::Completed
    }

    fn stream(&mut self, to: To<A>, head: Head, next: usize) {
        self.stream = Some(Stream { to, job: head.job, seq: head.seq, next });
    }

    fn send_to_all(&mut self, place: usize, head: Head, now: Millis) {
        if let Some(slot) = self.jobs.get_mut(place).and_then(|job| job.slot(head.seq)) {
            slot.goes_to_all(now);
        }
        let to = self.group(place).map_or(To::Each { job: head.job }, To::Group);
        self.stream(to, head, 0);
    }

    fn query(&mut self, from: A, head: Head, child: u8, is_overtaken: bool, now: Millis) -> Outcome {
        let Some(job) = self.find(head.job).and_then(|place| self.jobs.get_mut(place)) else {
            return self.refuse(from, head, Refusal::UnknownJob, head.epoch);
        };
        let epoch = job.agreed.epoch;
        if head.epoch != epoch {
            let reason = if is_later(head.epoch, epoch) { Refusal::UnknownJob } else { Refusal::OldEpoch };
            return self.refuse(from, head, reason, epoch);
        }
        if job.address(child) != Some(from) {
            return self.refuse(from, head, Refusal::Taken, epoch);
        }
        job.last_seen = now;
        if job.is_refused_by_parent {
            return self.refuse(from, head, Refusal::Parent, epoch);
        }
        let everybody = job.everybody();
        let standing = job.standing(head.seq);
        let is_parent_silent = job.asked_parent.is_some_and(|asked| now.since(asked) >= SILENT_MS);
        let Some(slot) = job.slot(head.seq) else {
            return self.refuse(from, head, Refusal::OutOfStep, epoch);
        };
        match standing {
            Some(Standing::Next) => {
                self.answer(from, head, Body::Missing { blocks: u16::MAX });
                Outcome::Missing
            }
            Some(Standing::Old | Standing::Ahead) | None => {
                self.refuse(from, head, Refusal::OutOfStep, epoch)
            }
            Some(Standing::Occupant) => match slot.phase {
                // A new epoch's slot: its occupant was never there.
                Phase::Done if slot.values() == 0 => self.refuse(from, head, Refusal::OutOfStep, epoch),
                Phase::Done => {
                    if !slot.repeats(child, is_overtaken, now) {
                        return Outcome::Held;
                    }
                    self.stream(To::One(from), head, 0);
                    Outcome::Repeated
                }
                Phase::Adding if slot.missing(child) != 0 => {
                    let blocks = slot.missing(child);
                    self.answer(from, head, Body::Missing { blocks });
                    Outcome::Missing
                }
                Phase::Adding => {
                    let children = slot.waits_for(everybody);
                    self.answer(from, head, Body::Waiting { children });
                    Outcome::Waiting
                }
                Phase::AtParent if is_parent_silent => self.refuse(from, head, Refusal::Parent, epoch),
                Phase::AtParent => {
                    job.asked_parent.get_or_insert(now);
                    self.answer(from, head, Body::Waiting { children: 0 });
                    if let Some(Parent { address, child, .. }) = self.settings.parent {
                        self.answer(address, head, Body::Query { child, is_overtaken });
                    }
                    Outcome::Waiting
                }
            },
        }
    }

    /// Takes a packet of the parent.
    fn receive_from_parent(&mut self, parent: Parent<A>, head: Head, body: Body<'_>, now: Millis) -> Outcome {
        let kernel = self.settings.kernel;
        let Some((place, job)) =
            self.find(head.job).and_then(|place| Some((place, self.jobs.get_mut(place)?)))
        else {
            return Outcome::UnknownJob;
        };
        if head.epoch != job.agreed.epoch {
            return Outcome::OtherEpoch;
        }
        job.asked_parent = None;
        let standing = job.standing(head.seq);
        match body {
            Body::Welcome { limits, key, cookie, .. } => {
                let ours = job.agreed.limits;
                if key != job.agreed.key {
                    return Outcome::Key;
                }
                if cookie != NO_COOKIE {
                    // The first one is repeated at once, later ones with the next hello of a child:
                    // that ends.
                    let is_first = job.cookie == NO_COOKIE;
                    job.cookie = cookie;
                    if is_first {
                        let hello = hello_to_parent(parent, job);
                        self.answer(parent.address, head, hello);
                    }
                    return Outcome::FromParent;
                }
                let is_less = limits.blocks <= ours.blocks && limits.window <= ours.window;
                match job.parent {
                    None if is_less => job.adopt_parent_limits(limits),
                    Some(_) if (limits.blocks, limits.window) == (ours.blocks, ours.window) => {
                        job.agreed.limits.mtu = ours.mtu.min(limits.mtu);
                    }
                    _ => return Outcome::Differs,
                }
                Outcome::FromParent
            }
            Body::Refuse { reason, .. } => {
                let waits = job.slot(head.seq).is_some_and(|slot| slot.phase == Phase::AtParent);
                // A late answer to what has been answered since.
                if reason == Refusal::OutOfStep && !(waits && standing == Some(Standing::Occupant)) {
                    return Outcome::Old;
                }
                // Whoever asks next is refused, and all fall back.
                job.is_refused_by_parent = true;
                Outcome::RefusedByParent
            }
            Body::Waiting { .. } => Outcome::FromParent,
            Body::Missing { blocks } => {
                let Some(slot) = job.slot(head.seq) else { return Outcome::Ahead };
                if standing != Some(Standing::Occupant) || slot.phase != Phase::AtParent {
                    return Outcome::Old;
                }
                self.stream(To::One(parent.address), head, blocks.trailing_zeros() as usize);
                Outcome::FromParent
            }
            Body::Result { workers, part } => {
                let total = job.agreed.total;
                let Some(slot) = job.slot(head.seq) else { return Outcome::Ahead };
                if standing != Some(Standing::Occupant) || slot.phase != Phase::AtParent {
                    return Outcome::Old;
                }
                if workers != total || !slot.agrees(&part) {
                    return Outcome::OtherChunk;
                }
                if !slot.take_result(kernel, &part, &mut self.scratch) {
                    return Outcome::Sections;
                }
                if slot.is_from_parent() {
                    slot.phase = Phase::Done;
                    slot.over = false;
                    self.send_to_all(place, head, now);
                }
                Outcome::FromParent
            }
            Body::Rescale { peak } => {
                let Some(slot) = job.slot(head.seq) else { return Outcome::Ahead };
                if standing != Some(Standing::Occupant) || slot.phase != Phase::AtParent {
                    return Outcome::Old;
                }
                slot.phase = Phase::Done;
                slot.over = true;
                slot.peak = peak;
                self.send_to_all(place, head, now);
                Outcome::FromParent
            }
            Body::Hello { .. } | Body::Contribute { .. } | Body::Partial { .. } | Body::Query { .. } => {
                Outcome::Misplaced
            }
        }
    }

    /// Writes the next packet to send to `out`. None if there is no more, or `out` is too short for
    /// it.
    pub fn emit(&mut self, out: &mut [u8]) -> Option<Emitted<A>> {
        if let Some((to, packet)) = self.answers.pop_front() {
            return Some(Emitted { to: To::One(to), len: packet.write(out)? });
        }
        let kernel = self.settings.kernel;
        let stream = self.stream.take()?;
        let place = self.find(stream.job)?;
        let job = self.jobs.get_mut(place)?;
        let Agreement { epoch, limits, total, .. } = job.agreed;
        let workers = job.workers;
        let head = Head { job: stream.job, epoch, seq: stream.seq };
        let slot = job.slot(stream.seq)?;
        if slot.phase == Phase::Done && slot.over {
            let packet = Packet { head, body: Body::Rescale { peak: slot.peak } };
            return Some(Emitted { to: stream.to, len: packet.write(out)? });
        }
        let (blocks, len) = slot.encode(kernel, stream.next, out, limits.packet_len())?;
        let part = Part { blocks, peak: slot.peak, profile: slot.profile, sections: &[] };
        let body = match (slot.phase, self.settings.parent) {
            (Phase::AtParent, Some(parent)) => Body::Partial { child: parent.child, workers, part },
            _ => Body::Result { workers: total, part },
        };
        Packet { head, body }.write_before_sections(out)?;
        let next = blocks.each().last().map_or(usize::MAX, |(block, _)| block + 1);
        self.stream = Some(Stream { next, ..stream });
        Some(Emitted { to: stream.to, len })
    }
}

/// The hello of an aggregator to its parent about a job.
const fn hello_to_parent<A: Copy, const SLOTS: usize, const BLOCKS: usize>(
    parent: Parent<A>,
    job: &Job<A, SLOTS, BLOCKS>,
) -> Body<'static> {
    let Parent { child, children, .. } = parent;
    let Agreement { total, limits, key, .. } = job.agreed;
    Body::Hello { child, children, total, is_aggregator: true, limits, key, cookie: job.cookie }
}
