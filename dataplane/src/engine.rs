//! The path of a frame: in, verdict, out.

use crate::rules::Rules;
use crate::verdict::{Counters, PassReason, Verdict};

/// A point in time in milliseconds since any fixed start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// The sending direction: host to wire. `SETS * 8` TCP flows at most.
pub struct Egress<const SETS: usize> {
    rules: Rules,
    counters: Counters,
}

impl<const SETS: usize> Egress<SETS> {
    /// An engine with an empty flow table; `seed` keys its hash.
    #[must_use]
    pub fn new(rules: Rules, seed: u64) -> Self {
        let _ = seed;
        Self { rules, counters: Counters::new() }
    }

    /// One frame from the host (Ethernet II, without FCS). `out` should be as long as the frame.
    pub fn process(&mut self, frame: &[u8], out: &mut [u8], now: Millis) -> Verdict {
        let _ = (out, now, &self.rules);
        let verdict = Verdict::Untouched(PassReason::NoRule);
        self.counters.count(verdict, frame.len());
        verdict
    }

    /// What was done so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// The receiving direction: wire to host. Keeps no state but its counters.
pub struct Ingress {
    rules: Rules,
    mtu: u16,
    counters: Counters,
}

impl Ingress {
    /// An engine that restores IP packets of at most `mtu` bytes.
    #[must_use]
    pub fn new(rules: Rules, mtu: u16) -> Self {
        Self { rules, mtu, counters: Counters::new() }
    }

    /// One frame from the wire (Ethernet II, without FCS). `out` should have room for the MTU and 22 bytes.
    pub fn process(&mut self, frame: &[u8], out: &mut [u8]) -> Verdict {
        let _ = (out, &self.rules, self.mtu);
        let verdict = Verdict::Untouched(PassReason::NotCompressed);
        self.counters.count(verdict, frame.len());
        verdict
    }

    /// What was done so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}
