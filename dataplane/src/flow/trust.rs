//! Whether a flow's peer restores what it is sent.
//!
//! A peer without a decompressor drops every compressed segment, so all of them are sent again. Loss
//! makes some of them be sent again. The two are told apart on a sample: of the first
//! [`SAMPLE_LEN`] bytes that an epoch sends compressed, how many had to be sent again?

use super::Millis;

/// Bytes sent compressed that an epoch watches.
pub const SAMPLE_LEN: u32 = 65_536;
/// Fewer resent bytes than this prove nothing: a small message may be lost whole. Below the 10 segments
/// that TCP sends before it hears anything (RFC 6928).
pub const MIN_EVIDENCE: u32 = 8_192;
/// An epoch lasts at least this long: beyond TCP's first retransmission time-outs.
pub const EPOCH_MS: u64 = 2_000;
/// The first bypass lasts this long, the next one twice as long, and so on.
pub const BYPASS_MS: u64 = 1_000;
/// The longest bypass is `BYPASS_MS << MAX_BACKOFF`: about a minute.
pub const MAX_BACKOFF: u8 = 6;

/// What is believed of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum TrustState {
    /// It restores.
    Trusted,
    /// It does not: nothing is compressed for a while.
    Bypassed,
    /// After a bypass: one sample is compressed, the rest goes untouched until the epoch is over. TCP then
    /// notices a loss by the segments that follow it, and need not wait for a time-out.
    Probing,
}

/// What the machine hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Most of the sample was sent again.
    Refused,
    /// The epoch is over, and most of its sample was not sent again.
    Healthy,
    /// The bypass is over.
    Waited,
}

impl TrustState {
    /// The whole machine: no other code changes a state, and no arm is `_`.
    pub(super) const fn next(self, evidence: Evidence) -> Self {
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
    /// When the epoch or the bypass began.
    since: Millis,
    /// Sequence numbers of the sample: from `start` up to `end`.
    start: u32,
    end: u32,
    /// Bytes of the sample that were sent compressed, at least [`SAMPLE_LEN`] where it is whole.
    compressed: u32,
    /// Bytes of the sample that were sent again.
    resent: u32,
}

impl Trust {
    pub(super) const NEW: Self = Self {
        state: TrustState::Trusted,
        backoff: 0,
        since: Millis(0),
        start: 0,
        end: 0,
        compressed: 0,
        resent: 0,
    };

    /// What is believed of the peer.
    #[must_use]
    pub const fn state(&self) -> TrustState {
        self.state
    }

    /// Whether a new segment that starts at `seq` may be compressed.
    pub(super) fn allows(&mut self, seq: u32, now: Millis) -> bool {
        // A clock that went back would prolong what it interrupts.
        self.since = self.since.min(now);
        let elapsed = now.since(self.since);
        match self.state {
            TrustState::Bypassed if elapsed >= self.bypass_ms() => {
                self.state = self.state.next(Evidence::Waited);
                self.begin_epoch(seq, now);
            }
            TrustState::Bypassed => return false,
            TrustState::Trusted | TrustState::Probing => {
                // An epoch without a sample worth judging goes on.
                if elapsed >= EPOCH_MS && self.compressed >= 2 * MIN_EVIDENCE {
                    self.state = self.state.next(Evidence::Healthy);
                    self.backoff = 0;
                    self.begin_epoch(seq, now);
                } else if self.compressed == 0 {
                    self.begin_epoch(seq, now);
                }
            }
        }
        self.state == TrustState::Trusted || self.compressed < SAMPLE_LEN
    }

    /// `len` bytes that end at sequence number `end` were sent compressed.
    pub(super) const fn compressed(&mut self, end: u32, len: u32) {
        if self.compressed < SAMPLE_LEN {
            self.compressed = self.compressed.saturating_add(len);
            self.end = end;
        }
    }

    /// The bytes from `seq` to `end` were sent again.
    pub(super) fn resent(&mut self, seq: u32, end: u32, now: Millis) {
        let sample = self.end.wrapping_sub(self.start);
        let from = seq.wrapping_sub(self.start);
        if from >= sample {
            return;
        }
        let to = end.wrapping_sub(self.start).min(sample);
        self.resent = self.resent.saturating_add(to.saturating_sub(from));
        if self.resent >= MIN_EVIDENCE && self.resent > self.compressed / 2 {
            self.state = self.state.next(Evidence::Refused);
            self.backoff = self.backoff.saturating_add(1);
            self.begin_epoch(seq, now);
        }
    }

    /// How long the present bypass lasts.
    fn bypass_ms(&self) -> u64 {
        BYPASS_MS << self.backoff.saturating_sub(1).min(MAX_BACKOFF)
    }

    const fn begin_epoch(&mut self, seq: u32, now: Millis) {
        self.since = now;
        (self.start, self.end) = (seq, seq);
        (self.compressed, self.resent) = (0, 0);
    }
}
