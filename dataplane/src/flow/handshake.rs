//! What the two ends of a connection advertised on their SYNs that they restore, and whether it
//! still holds (FORMAT.md §5.5).

use super::capabilities::{Advertisement, CapabilityTable};
use crate::rules::{Handshake, Rule, Rules};
use crate::verdict::PassReason;
use crate::wire::flow_key::FlowKey;

/// So often a SYN is sent with the capability option. A box on the way may drop SYNs with an option
/// that it does not know.
pub const MAX_ADVERTISEMENTS: u8 = 2;

/// Which ends of a connection advertised on their SYNs what they restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Negotiation {
    /// Neither: no rule asked for it, or nobody saw the SYN.
    None,
    /// The host's; the far end has not answered.
    Advertised,
    /// The far end's, and the host's unless its SYN had no room.
    Negotiated,
}

impl Negotiation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Advertised, Self::Negotiated];

    /// Its name in reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Advertised => "advertised",
            Self::Negotiated => "negotiated",
        }
    }
}

/// The handshake of a connection, as the direction of one of its hosts knows it.
///
/// An even number of bytes: padding would be a flow's 145th byte, and cost eight.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandshakeState {
    /// The advertisement of its host's SYN.
    advertised: Option<Advertisement>,
    /// The advertisement of the far end's SYN.
    received: Option<Advertisement>,
    /// Most bytes of data that its SYN had.
    syn_len: u16,
    /// The number of times that its SYN was sent.
    syns: u8,
    /// Its connection was silent for too long to be compressed in place: [`super::UNUSED_MS`].
    lapsed: bool,
}

impl HandshakeState {
    pub(super) const NEW: Self =
        Self { advertised: None, received: None, syn_len: 0, syns: 0, lapsed: false };

    /// The SYN is sent, for the first time or again.
    pub(super) const fn count_syn(&mut self) {
        self.syns = self.syns.saturating_add(1);
    }

    /// Whether the SYN that was counted last may carry the capability option.
    pub(super) const fn may_advertise(&self) -> bool {
        self.syns <= MAX_ADVERTISEMENTS
    }

    /// The SYN leaves with `len` bytes of data, and advertises this.
    pub(super) fn advertise(&mut self, advertised: Advertisement, len: u16) {
        self.advertised = Some(advertised);
        self.syn_len = self.syn_len.max(len);
    }

    /// Takes the capability of the far end's SYN, if there is one on the SYN that `acknowledges`
    /// answers. What was received before, of a copy of that SYN, holds.
    pub(super) fn receive_from_syn(
        &mut self,
        capabilities: &CapabilityTable,
        key: &FlowKey,
        acknowledges: u32,
    ) {
        if let Some((start, advertised)) = capabilities.find(key)
            && start.is_answered_by(acknowledges)
        {
            self.received = Some(advertised);
        }
    }

    /// Takes the capability of the far end's SYN-ACK, if the host's SYN, whose number is `isn`,
    /// asked for one and none was received.
    #[inline]
    pub(super) fn receive_from_syn_ack(&mut self, capabilities: &CapabilityTable, key: &FlowKey, isn: u32) {
        if self.advertised.is_some()
            && self.received.is_none()
            && let Some((start, advertised)) = capabilities.find(key)
            && start.answers(isn, self.syn_len)
        {
            self.received = Some(advertised);
        }
    }

    /// From now on nothing is compressed in place if the connection was `silent` for too long: the
    /// far end may restore in-place frames by other rules than it advertised.
    pub(super) const fn lapse(&mut self, silent: bool) {
        self.lapsed |= silent;
    }

    /// Whether the far end advertised that it restores frames of this rule and this type of
    /// service, without ECN.
    ///
    /// # Errors
    /// `unanswered`, if it advertised nothing; [`PassReason::NotNegotiated`],
    /// [`PassReason::ParametersDiffer`].
    #[inline]
    pub(super) fn negotiated(
        &self,
        rule: &Rule,
        tos: u8,
        unanswered: impl FnOnce() -> PassReason,
    ) -> Result<(), PassReason> {
        if rule.handshake == Handshake::Off {
            return Ok(());
        }
        let Some(Advertisement { capability, tos: received_tos }) = self.received else {
            return Err(unanswered());
        };
        match rule.in_place() {
            None if capability.restores(rule.profile.codec()) => Ok(()),
            None => Err(PassReason::NotNegotiated),
            // It may restore by other rules meanwhile.
            Some(_) if self.lapsed => Err(PassReason::NotNegotiated),
            // Its rule for another type of service may be another.
            Some(_) if received_tos == tos && capability.in_place() == rule.in_place() => Ok(()),
            Some(_) => Err(PassReason::ParametersDiffer),
        }
    }

    /// Whether its host advertised anything.
    pub(super) const fn has_advertised(&self) -> bool {
        self.advertised.is_some()
    }

    /// Whether the far end advertised anything.
    pub(super) const fn has_received(&self) -> bool {
        self.received.is_some()
    }

    /// Whether its host advertised in-place framing, whose frames carry no parameters.
    pub(super) fn restores_in_place(&self) -> bool {
        self.advertised.is_some_and(|advertised| advertised.capability.in_place().is_some())
    }

    /// Whether `rules` restore in-place frames to other values than its host advertised.
    pub(super) fn differs_from(&self, rules: &Rules) -> bool {
        let Some(Advertisement { capability, tos }) = self.advertised else { return false };
        capability.in_place().is_some() && rules.find(tos).and_then(Rule::in_place) != capability.in_place()
    }

    /// The advertisements of the two ends, as far as they are known.
    pub(super) const fn negotiation(&self) -> Negotiation {
        match (&self.advertised, &self.received) {
            (_, Some(_)) => Negotiation::Negotiated,
            (Some(_), None) => Negotiation::Advertised,
            (None, None) => Negotiation::None,
        }
    }
}
