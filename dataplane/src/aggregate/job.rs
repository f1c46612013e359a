//! A job at its aggregator: who takes part, on what they agreed, and the slots of its chunks.

use super::slot::{Phase, Slot};
use crate::engine::Millis;
use crate::wire::chunk::{Cookie, Limits, MAX_CHILDREN, NO_COOKIE, Refusal};

/// A job that was silent for so long may lose its place to another. Trainers pause for evaluations
/// and checkpoints; who loses its place is refused, and says hello again.
pub const IDLE_MS: u64 = 60_000;

/// The terms of a job, as a hello has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) epoch: u32,
    pub(super) children: u8,
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
    addresses: [Option<A>; MAX_CHILDREN],
    /// A bit for each child that is an aggregator too.
    aggregators: u64,
    /// The number of workers each child's contributions are of; 0 before its first one.
    workers_of: [u8; MAX_CHILDREN],
    /// The number of children that have contributed, and of how many workers.
    contributing: u8,
    pub(super) workers: u8,
    pub(super) last_seen: Millis,
    /// The cookie of the parent that our hello repeats.
    pub(super) cookie: Cookie,
    /// The limits of the parent's welcome.
    pub(super) parent: Option<Limits>,
    /// The parent has refused: so does this one, until another epoch.
    pub(super) is_refused_by_parent: bool,
    /// Since when the parent has not answered.
    pub(super) asked_parent: Option<Millis>,
    pub(super) slots: [Slot<BLOCKS>; SLOTS],
}

/// The relation of a chunk to the slot of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The slot's occupant.
    Occupant,
    /// The slot's next occupant: every child has the result of this one.
    Next,
    /// An earlier occupant.
    Old,
    /// No child that has not lost the job's state can send it.
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
            agreed: Agreement { epoch: 0, children: 0, total: 0, limits: Limits::MOST, key: 0 },
            addresses: [const { None }; MAX_CHILDREN],
            aggregators: 0,
            workers_of: [0; MAX_CHILDREN],
            contributing: 0,
            workers: 0,
            last_seen: Millis(0),
            cookie: NO_COOKIE,
            parent: None,
            is_refused_by_parent: false,
            asked_parent: None,
            slots: [const { Slot::new() }; SLOTS],
        }
    }

    /// Starts an epoch: nobody has joined it, and no slot has an occupant of it.
    pub(super) fn restart(&mut self, id: u16, agreed: Agreement) {
        (self.is_open, self.id, self.agreed) = (true, id, agreed);
        (self.addresses, self.aggregators) = ([const { None }; MAX_CHILDREN], 0);
        (self.workers_of, self.contributing, self.workers) = ([0; MAX_CHILDREN], 0, 0);
        (self.cookie, self.parent) = (NO_COOKIE, None);
        (self.is_refused_by_parent, self.asked_parent) = (false, None);
        self.vacate();
    }

    /// The parent's limits hold from now on. No child has had a welcome, so no chunk has come.
    pub(super) fn adopt_parent_limits(&mut self, limits: Limits) {
        self.parent = Some(limits);
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

    /// A bit for each child.
    pub(super) const fn everybody(&self) -> u64 {
        match self.agreed.children {
            children @ 0..64 => (1 << children) - 1,
            _ => u64::MAX,
        }
    }

    /// Records a child's address, and what it is.
    pub(super) fn join(&mut self, child: u8, from: A, is_aggregator: bool) -> Result<(), Refusal> {
        let was_aggregator = self.is_aggregator(child);
        match self.addresses.get_mut(usize::from(child)) {
            Some(Some(address)) if *address != from => Err(Refusal::Taken),
            Some(Some(_)) if was_aggregator != is_aggregator => Err(Refusal::Differs),
            Some(address) => {
                *address = Some(from);
                self.aggregators |= u64::from(is_aggregator) << (child & 63);
                Ok(())
            }
            None => Err(Refusal::Workers),
        }
    }

    /// A child's address, if it has joined.
    pub(super) fn address(&self, child: u8) -> Option<A> {
        *self.addresses.get(usize::from(child))?
    }

    /// Whether a child has joined as an aggregator.
    pub(super) const fn is_aggregator(&self, child: u8) -> bool {
        self.aggregators >> (child & 63) & 1 != 0
    }

    /// Whether a child's contribution may be of so many workers: of as many as its others, since
    /// each may add as much as the limit of one; and of all children together no more than the job
    /// has. Without a parent, they are all that it has.
    pub(super) fn may_be_of(&self, child: u8, workers: u8, is_top: bool) -> bool {
        let Some(before) = self.workers_of.get(usize::from(child)) else { return false };
        if *before != 0 {
            return *before == workers;
        }
        let all = u16::from(self.workers) + u16::from(workers);
        let total = self.agreed.total.into();
        let is_last = self.contributing.saturating_add(1) >= self.agreed.children;
        all == total || (all < total && !(is_last && is_top))
    }

    /// Records of how many workers a child's contributions are.
    pub(super) fn is_of(&mut self, child: u8, workers: u8) {
        if let Some(known @ 0) = self.workers_of.get_mut(usize::from(child)) {
            *known = workers;
            self.contributing = self.contributing.saturating_add(1);
            self.workers = self.workers.saturating_add(workers);
        }
    }

    /// The addresses of all that have joined.
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

    /// The relation of a chunk to the slot of its place.
    pub(super) fn standing(&self, seq: u32) -> Option<Standing> {
        let window = u32::from(self.agreed.limits.window);
        let occupant = self.slots.get(self.place(seq))?;
        let ahead = seq.wrapping_sub(occupant.seq);
        Some(if ahead == 0 {
            Standing::Occupant
        } else if !is_later(seq, occupant.seq) {
            Standing::Old
        } else {
            // Who sends a chunk has the result of the one a window before. So all have contributed
            // to that one, and have the result of the occupant.
            let before = seq.wrapping_sub(window);
            let slot = self.slots.get(self.place(before))?;
            let may_follow = ahead == 2 * window && slot.seq == before && slot.phase == Phase::Done;
            if may_follow { Standing::Next } else { Standing::Ahead }
        })
    }
}
