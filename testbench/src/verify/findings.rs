//! The findings of a replay, frame by frame and in all.

use std::collections::BTreeMap;

use serde::Serialize;

use super::usefulness::Remark;

/// So many failures are listed one by one; the rest is counted.
const LISTED: usize = 20;

/// Kinds of frames, as the capture shows them before anything is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The rule matches; TCP with payload.
    TaggedTcp,
    /// The rule matches; UDP with payload.
    TaggedUdp,
    /// The rule matches; TCP or UDP without payload: bare ACKs, SYNs, FINs.
    TaggedEmpty,
    /// The rule matches; fragments, other protocols.
    TaggedOther,
    /// IP that the rule does not match.
    Untagged,
    /// ARP and all else that is not IP, or not whole.
    NotIp,
}

impl Kind {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TaggedTcp => "tagged TCP, payload",
            Self::TaggedUdp => "tagged UDP, payload",
            Self::TaggedEmpty => "tagged, no payload",
            Self::TaggedOther => "tagged, other",
            Self::Untagged => "untagged IP",
            Self::NotIp => "not IP",
        }
    }
}

/// The findings of a replay. The serialised fields are those of `gradwire replay --json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    /// The number of the rules' codec.
    pub codec: u8,
    /// Frames replayed.
    pub frames: u64,
    /// Frames whose type of service matches the rule, with payload or not.
    pub tagged: u64,
    /// Frames that egress compressed.
    pub compressed: u64,
    /// SYNs that left with a capability option, and arrived without.
    #[serde(skip_serializing_if = "is_zero")]
    pub options_added: u64,
    /// Frames that looked compressed when they came, and lost their type of service.
    #[serde(skip_serializing_if = "is_zero")]
    pub remarked: u64,
    /// Frames that egress left untouched, by reason.
    pub untouched: BTreeMap<&'static str, u64>,
    /// Frames that either engine dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Ethernet bytes of the tagged frames with payload as the hosts sent them: at least 60 bytes
    /// each, with preamble, FCS and gap (24 bytes).
    pub wire_bytes_in: u64,
    /// The same for what went over the wire in their place.
    pub wire_bytes_out: u64,
    /// Segments longer than frames on the wire are, as before segmentation offload: with any, the
    /// ratio is too high.
    #[serde(skip_serializing_if = "is_zero")]
    pub oversized: u64,
    /// Values in compressed frames.
    pub values: u64,
    /// The largest error of any of them, in its frame or in its reassembled stream.
    pub max_error: f64,
    /// `1 - ||f'|| / ||f||` over the values of all frames.
    pub norm_lost: f64,
    /// Values whose error is beyond the bound, in frames and in streams.
    pub violations: u64,
    /// Untagged frames that did not arrive byte-identical.
    pub altered_untagged: u64,
    /// Whether every check held.
    pub ok: bool,
    /// Whether the values are still of use; None if there are none.
    pub useful: Option<bool>,
    /// Connections that seem to carry other things than values, which compressing would alter. A
    /// capture with one does not pass.
    pub mixed: Vec<String>,
    /// Warnings to the user though no check failed.
    pub warnings: Vec<String>,
    /// Remarks to the user on the values beside the bound.
    #[serde(skip)]
    pub remarks: Vec<Remark>,
    /// Tagged TCP streams, each reassembled twice and compared.
    #[serde(skip)]
    pub streams: u64,
    /// The first failures, one line each.
    #[serde(skip)]
    pub failures: Vec<String>,
    /// The number found.
    #[serde(skip)]
    pub failed: u64,
    /// The outcomes of each kind of frame.
    #[serde(skip)]
    pub kinds: BTreeMap<Kind, BTreeMap<String, u64>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Findings {
    /// Frames that a rule matches and that have payload: without any, nothing was verified.
    #[must_use]
    pub fn payloads(&self) -> u64 {
        let kinds = self.kinds.range(Kind::TaggedTcp..=Kind::TaggedUdp);
        kinds.flat_map(|(_, outcomes)| outcomes.values()).sum()
    }

    pub(crate) fn fail(&mut self, what: String) {
        self.failed += 1;
        if self.failures.len() < LISTED {
            self.failures.push(what);
        }
    }
}
