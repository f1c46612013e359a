//! Whether a flow's peer restores what it is sent.
//!
//! A peer without a decompressor drops every compressed segment, so all of them are sent again.
//! Loss makes some of them be sent again. A sample distinguishes the two: of the segments that the
//! first [`SAMPLE_LEN`] bytes of an epoch sent compressed, how many had to be sent again?

use super::Millis;

/// Bytes of the stream that an epoch watches.
pub const SAMPLE_LEN: u32 = 64 * UNIT_LEN;
/// A sample is watched in 64 units of so many bytes, a bit each: was a segment that starts in it
/// compressed, and was it sent again? Longer than Ethernet's usual segments, so that nearly every
/// one has a bit.
const UNIT_LEN: u32 = 2_048;
/// Fewer resent units prove nothing: a small message may be lost whole. Below the 10 segments that
/// TCP sends before it gets an answer (RFC 6928).
const MIN_EVIDENCE: u8 = 6;
/// A sample with fewer compressed units is not worth a decision.
const MIN_SAMPLE: u8 = 2 * MIN_EVIDENCE;
/// An epoch lasts at least this long: beyond TCP's first retransmission time-outs.
pub const EPOCH_MS: u64 = 2_000;
/// The first bypass lasts this long, the next one twice as long, and so on.
pub const BYPASS_MS: u64 = 1_000;
/// The longest bypass is `BYPASS_MS << MAX_BACKOFF`: about a minute.
pub const MAX_BACKOFF: u8 = 6;

/// The belief about the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum TrustState {
    /// It restores.
    Trusted,
    /// It does not: nothing is compressed for a while.
    Bypassed,
    /// After a bypass: one sample is compressed, the rest goes untouched until the epoch is over.
    /// TCP then notices a loss by the segments that follow it, and need not wait for a time-out.
    Probing,
}

/// The machine's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// Nearly all of the sample was sent again.
    Refused,
    /// The epoch is over, and most of its sample was not sent again.
    Healthy,
    /// The bypass is over.
    Waited,
}

impl TrustState {
    /// The whole machine: no other code changes a state, and no arm is `_`.
    const fn next(self, evidence: Evidence) -> Self {
        use Evidence::{Healthy, Refused, Waited};
        use TrustState::{Bypassed, Probing, Trusted};
        match (self, evidence) {
            (Trusted | Probing, Refused) => Bypassed,
            (Trusted | Probing, Healthy) => Trusted,
            (Bypassed, Waited) => Probing,
            // Evidence that no longer has a question to answer.
            (Bypassed, Refused | Healthy) => Bypassed,
            (Trusted, Waited) => Trusted,
            (Probing, Waited) => Probing,
        }
    }
}

/// One flow's evidence.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    state: TrustState,
    /// Bypasses since the peer was last seen to restore.
    backoff: u8,
    /// The number of bits in `compressed`.
    sampled: u8,
    /// When the epoch or the bypass began.
    since: Millis,
    /// Sequence number at which the sample starts.
    start: u32,
    /// Units in which a segment started that was sent compressed; bit 0 is at `start`.
    compressed: u64,
    /// Those of them in which one was sent again. How often does not count.
    resent: u64,
}

impl Trust {
    pub(super) const NEW: Self = Self {
        state: TrustState::Trusted,
        backoff: 0,
        sampled: 0,
        since: Millis(0),
        start: 0,
        compressed: 0,
        resent: 0,
    };

    /// The belief about the peer.
    #[must_use]
    pub const fn state(&self) -> TrustState {
        self.state
    }

    /// Whether a new segment that starts at `seq` may be compressed.
    #[inline(always)]
    pub(super) fn allows(&mut self, seq: u32, now: Millis) -> bool {
        // A clock that went back would prolong what it interrupts.
        self.since = self.since.min(now);
        let elapsed = now.since(self.since);
        if self.state == TrustState::Bypassed {
            if elapsed < self.bypass_ms() {
                return false;
            }
            self.state = self.state.next(Evidence::Waited);
            self.begin_epoch(seq, now);
            return true;
        }
        let is_sample_large_enough = self.sampled >= MIN_SAMPLE;
        if is_sample_large_enough && elapsed >= EPOCH_MS {
            self.state = self.state.next(Evidence::Healthy);
            self.backoff = 0;
            self.begin_epoch(seq, now);
        } else if self.sampled == 0 || (!is_sample_large_enough && self.unit(seq) == 0) {
            // Nothing was sampled, or too little and the sample is over.
            self.begin_epoch(seq, now);
        }
        self.state == TrustState::Trusted || self.unit(seq) != 0
    }

    /// The segment that starts at `seq` was sent compressed.
    pub(super) const fn compressed(&mut self, seq: u32) {
        let unit = self.unit(seq);
        self.sampled += (unit & !self.compressed != 0) as u8; // at most 64
        self.compressed |= unit;
    }

    /// The segment that starts at `seq` was sent again.
    pub(super) fn resent(&mut self, seq: u32, now: Millis) {
        self.resent |= self.unit(seq) & self.compressed;
        let resent = self.resent.count_ones();
        if resent >= u32::from(MIN_EVIDENCE) && 8 * resent >= 7 * u32::from(self.sampled) {
            self.state = self.state.next(Evidence::Refused);
            self.backoff = self.backoff.saturating_add(1);
            self.begin_epoch(seq, now);
        }
    }

    /// The bit of the sample's unit in which `seq` lies; none if it lies outside.
    const fn unit(&self, seq: u32) -> u64 {
        match 1u64.checked_shl(seq.wrapping_sub(self.start) / UNIT_LEN) {
            Some(bit) => bit,
            None => 0,
        }
    }

    /// The time that the present bypass lasts.
    fn bypass_ms(&self) -> u64 {
        BYPASS_MS << self.backoff.saturating_sub(1).min(MAX_BACKOFF)
    }

    const fn begin_epoch(&mut self, seq: u32, now: Millis) {
        self.since = now;
        self.start = seq;
        (self.sampled, self.compressed, self.resent) = (0, 0, 0);
    }
}
