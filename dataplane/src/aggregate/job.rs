//! A job at its aggregator: who takes part, on what they agreed, and the slots of its chunks.

use super::slot::{Phase, Slot};
use crate::engine::Millis;
use crate::wire::chunk::{Cookie, Limits, MAX_MEMBERS, NO_COOKIE, Refusal};

/// A job that was silent for so long may lose its place to another. Trainers pause for evaluations and checkpoints; who loses
/// its place is refused, and says hello again.
pub const IDLE_MS: u64 = 60_000;

/// What a hello says of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) epoch: u32,
    pub(super) members: u8,
    pub(super) total: u8,
    pub(super) limits: Limits,
    pub(super) key: u64,
}

/// A place for a job.
pub(super) struct Job<A, const SLOTS: usize, const BLOCKS: usize> {
    pub(super) is_open: bool,
    pub(super) id: u16,
    /// As the first hello of the epoch had it; the MTU is the smallest of all.
    pub(super) agreed: Agreement,
    addresses: [Option<A>; MAX_MEMBERS],
    /// A bit for each member that is an aggregator too.
    aggregators: u64,
    /// How many workers each member's contributions are of; 0 before its first one.
    workers_of: [u8; MAX_MEMBERS],
    /// How many members have contributed, and of how many workers.
    contributing: u8,
    pub(super) workers: u8,
    pub(super) heard: Millis,
    /// What the aggregator above has our hello repeat.
    pub(super) cookie: Cookie,
    /// What the aggregator above has agreed to, since its welcome.
    pub(super) above: Option<Limits>,
    /// The aggregator above has refused: so does this one, until another epoch.
    pub(super) is_refused_above: bool,
    /// Since when the aggregator above has not answered.
    pub(super) asked_above: Option<Millis>,
    pub(super) slots: [Slot<BLOCKS>; SLOTS],
}

/// What a chunk is to the slot of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The slot's occupant.
    Occupant,
    /// The slot's next occupant: every member has the result of this one.
    Next,
    /// An earlier occupant.
    Old,
    /// No member that has not lost the job's state can send it.
    Ahead,
}

/// Whether `a` is later than `b` (RFC 1982).
pub(super) const fn is_later(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

impl<A: Copy + PartialEq, const SLOTS: usize, const BLOCKS: usize> Job<A, SLOTS, BLOCKS> {
    pub(super) const fn new() -> Self {
        Self {
            is_open: false,
            id: 0,
            agreed: Agreement { epoch: 0, members: 0, total: 0, limits: Limits::MOST, key: 0 },
            addresses: [const { None }; MAX_MEMBERS],
            aggregators: 0,
            workers_of: [0; MAX_MEMBERS],
            contributing: 0,
            workers: 0,
            heard: Millis(0),
            cookie: NO_COOKIE,
            above: None,
            is_refused_above: false,
            asked_above: None,
            slots: [const { Slot::new() }; SLOTS],
        }
    }

    /// Starts an epoch: nobody has joined it, and no slot has an occupant of it.
    pub(super) fn restart(&mut self, id: u16, agreed: Agreement) {
        (self.is_open, self.id, self.agreed) = (true, id, agreed);
        (self.addresses, self.aggregators) = ([const { None }; MAX_MEMBERS], 0);
        (self.workers_of, self.contributing, self.workers) = ([0; MAX_MEMBERS], 0, 0);
        (self.cookie, self.above) = (NO_COOKIE, None);
        (self.is_refused_above, self.asked_above) = (false, None);
        self.vacate();
    }

    /// The limits of the aggregator above hold from now on. No member has had a welcome, so no chunk has come.
    pub(super) fn known_above(&mut self, limits: Limits) {
        self.above = Some(limits);
        self.agreed.limits = self.agreed.limits.min(limits);
        self.vacate();
    }

    /// No slot has an occupant of this epoch.
    fn vacate(&mut self) {
        let Agreement { epoch, limits, .. } = self.agreed;
        // Sums are cleared when their slot is taken; this also covers an epoch that comes again.
        for (place, slot) in self.slots.iter_mut().enumerate() {
            slot.vacate(epoch, (place as u32).wrapping_sub(2 * u32::from(limits.window)));
        }
    }

    /// A bit for each member.
    pub(super) const fn everybody(&self) -> u64 {
        match self.agreed.members {
            members @ 0..64 => (1 << members) - 1,
            _ => u64::MAX,
        }
    }

    /// Puts down a worker's address, and what it is.
    pub(super) fn join(&mut self, worker: u8, from: A, is_aggregator: bool) -> Result<(), Refusal> {
        let was_aggregator = self.is_aggregator(worker);
        match self.addresses.get_mut(usize::from(worker)) {
            Some(Some(address)) if *address != from => Err(Refusal::Taken),
            Some(Some(_)) if was_aggregator != is_aggregator => Err(Refusal::Differs),
            Some(address) => {
                *address = Some(from);
                self.aggregators |= u64::from(is_aggregator) << (worker & 63);
                Ok(())
            }
            None => Err(Refusal::Workers),
        }
    }

    /// Where a worker is, if it has joined.
    pub(super) fn address(&self, worker: u8) -> Option<A> {
        *self.addresses.get(usize::from(worker))?
    }

    /// Whether a worker has joined as an aggregator.
    pub(super) const fn is_aggregator(&self, worker: u8) -> bool {
        self.aggregators >> (worker & 63) & 1 != 0
    }

    /// Whether a member's contribution may be of so many workers: of as many as its others, since each may add as much as the
    /// limit of one; and of all members together no more than the job has. Without an aggregator above, they are all that it has.
    pub(super) fn may_be_of(&self, worker: u8, workers: u8, is_top: bool) -> bool {
        let Some(before) = self.workers_of.get(usize::from(worker)) else { return false };
        if *before != 0 {
            return *before == workers;
        }
        let all = u16::from(self.workers) + u16::from(workers);
        let total = self.agreed.total.into();
        let is_last = self.contributing.saturating_add(1) >= self.agreed.members;
        all == total || (all < total && !(is_last && is_top))
    }

    /// Puts down of how many workers a member's contributions are.
    pub(super) fn is_of(&mut self, worker: u8, workers: u8) {
        if let Some(known @ 0) = self.workers_of.get_mut(usize::from(worker)) {
            *known = workers;
            self.contributing = self.contributing.saturating_add(1);
            self.workers = self.workers.saturating_add(workers);
        }
    }

    /// Where all that have joined are.
    pub(super) fn joined(&self) -> impl Iterator<Item = A> {
        self.addresses.iter().flatten().copied()
    }

    /// The place of a chunk: two pools of as many slots as a window has chunks.
    pub(super) const fn place(&self, seq: u32) -> usize {
        (seq & (2 * self.agreed.limits.window as u32 - 1)) as usize
    }

    /// The slot of a chunk's place.
    pub(super) fn slot(&mut self, seq: u32) -> Option<&mut Slot<BLOCKS>> {
        let place = self.place(seq);
        self.slots.get_mut(place)
    }

    /// What a chunk is to the slot of its place.
    pub(super) fn standing(&self, seq: u32) -> Option<Standing> {
        let window = u32::from(self.agreed.limits.window);
        let occupant = self.slots.get(self.place(seq))?;
        let ahead = seq.wrapping_sub(occupant.seq);
        Some(if ahead == 0 {
            Standing::Occupant
        } else if !is_later(seq, occupant.seq) {
            Standing::Old
        } else {
            // Who sends a chunk has the result of the one a window before. So all have contributed to that one, and have the
            // result of the occupant.
            let before = seq.wrapping_sub(window);
            let slot = self.slots.get(self.place(before))?;
            let may_follow = ahead == 2 * window && slot.seq == before && slot.phase == Phase::Done;
            if may_follow { Standing::Next } else { Standing::Ahead }
        })
    }
}
