//! Sends the frames of a capture through the dataplane: sender's egress, wire, receiver's ingress.
//!
//! - *Hosts.* A capture from a bridge holds the frames of several hosts, and each has a card of its
//!   own: there is one egress engine for each source MAC address. Ingress keeps no state of flows,
//!   so one stands for all. What SYNs say is found by the flow that it is for, so all hosts may
//!   share the table.
//! - *UDP* has no handshake, and both ends are here. So datagrams go through engines of their own,
//!   whose rules need none.
//! - *Time* is the capture's: milliseconds since its first frame, never backwards.
//! - *Wire.* A frame that egress has changed is padded to the Ethernet minimum of 60 bytes, as the
//!   MAC does. A frame left untouched goes on as it was captured.

use std::collections::BTreeMap;
use std::time::Duration;

use gradwire::engine::{CapabilityTable, Egress, Ingress, Millis};
use gradwire::flow::Negotiation;
use gradwire::flow::capabilities::Slot;
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, Handshake, Rule, Rules, RulesError};
use gradwire::verdict::{PassReason, Verdict};
use gradwire::wire::frame::{IpFrame, MAX_LINK_LEN, Transport};

use crate::input::{Capture, Frame};

/// Shortest frame that Ethernet carries, without FCS.
pub const MIN_FRAME_LEN: usize = 60;

/// 512 flows a host.
const SETS: usize = 64;
/// Places for what SYNs say.
const CAPABILITY_SLOTS: usize = 1 << 16;
/// So many hosts have an engine of their own; further ones share the engine of MAC address zero. It
/// bounds the memory that a capture with made-up addresses can ask for.
const MAX_HOSTS: usize = 256;

/// The rules that a replay uses, the mark of compressed frames, and the kernel.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Which frames, and what is done to them; the first match counts. There is at least one, and
    /// all have the same codec parameters.
    pub rules: Vec<Rule>,
    /// Type of service of compressed frames in routed framing.
    pub mark: u8,
    /// The kernel that encodes and decodes.
    pub kernel: Kernel,
    /// Both ends count as configured for UDP, whatever the rules say.
    pub datagrams: bool,
}

impl Setup {
    /// The default mark with `rule`, the fastest kernel, and UDP too since both ends are here.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self { rules: vec![rule], mark: DEFAULT_MARK, kernel: Kernel::detect(), datagrams: true }
    }

    /// The rules as the engines of TCP take them.
    ///
    /// # Errors
    /// A rule contradicts itself or matches the mark.
    pub fn rules(&self) -> Result<Rules, RulesError> {
        let by_segment = |rule: &Rule| match rule.handshake {
            Handshake::Required if self.datagrams => Rule { udp_offset: 0, ..*rule },
            Handshake::Required | Handshake::Off => *rule,
        };
        Rules::new(&self.rules.iter().map(by_segment).collect::<Vec<_>>(), self.mark)
    }

    /// The rules for UDP.
    fn datagram_rules(&self) -> Result<Rules, RulesError> {
        let configured = |rule: &Rule| match self.datagrams {
            true => Rule { handshake: Handshake::Off, ..*rule },
            false => *rule,
        };
        Rules::new(&self.rules.iter().map(configured).collect::<Vec<_>>(), self.mark)
    }

    /// The first rule that matches this type of service; worked out here, for the verifier.
    pub(crate) fn rule(&self, tos: u8) -> Option<&Rule> {
        self.rules.iter().find(|rule| (tos ^ rule.tos) & rule.mask == 0)
    }

    /// The profile of all rules.
    pub(crate) fn profile(&self) -> Profile {
        self.rules.first().map_or(Profile::DEFAULT, |rule| rule.profile)
    }
}

/// The way of one frame. Bytes are kept only if they differ from those before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The verdict of the sender's card.
    pub egress: Verdict,
    /// The verdict of the receiver's card; `None` if nothing reached it.
    pub ingress: Option<Verdict>,
    /// Whether it went through engines at all.
    pub(crate) seen: bool,
    pub(crate) changed_wire: Option<Vec<u8>>,
    pub(crate) changed_delivered: Option<Vec<u8>>,
}

impl Passage {
    /// Of a frame that no engine saw, since none was there yet.
    #[must_use]
    pub const fn unseen() -> Self {
        let verdict = Verdict::Untouched(PassReason::NoRule);
        Self {
            egress: verdict,
            ingress: Some(verdict),
            seen: false,
            changed_wire: None,
            changed_delivered: None,
        }
    }

    /// The frame on the wire, if `frame` is what the sender had; `None` if egress dropped it.
    #[must_use]
    pub fn on_wire<'a>(&'a self, frame: &'a [u8]) -> Option<&'a [u8]> {
        match self.egress {
            Verdict::Dropped(_) => None,
            _ => Some(self.changed_wire.as_deref().unwrap_or(frame)),
        }
    }

    /// The frame that the receiving host gets, if `frame` is what the sender had; `None` if it was
    /// dropped on the way.
    #[must_use]
    pub fn delivered<'a>(&'a self, frame: &'a [u8]) -> Option<&'a [u8]> {
        match self.ingress? {
            Verdict::Dropped(_) => None,
            _ => self.changed_delivered.as_deref().or_else(|| self.on_wire(frame)),
        }
    }
}

/// The engines of all hosts of a capture.
pub struct Engines {
    rules: Rules,
    kernel: Kernel,
    mtu: u16,
    hosts: BTreeMap<[u8; 6], Box<Egress<SETS>>>,
    capabilities: Box<CapabilityTable<[Slot; CAPABILITY_SLOTS]>>,
    ingress: Ingress,
    /// Of all hosts: datagrams have no state.
    datagrams: (Egress<1>, Ingress),
    start: Option<Duration>,
    now: Millis,
    out: Vec<u8>,
}

impl Engines {
    /// Engines for the frames of `capture`, whose longest IP packet, but at least 1500 bytes, is
    /// the MTU.
    ///
    /// # Errors
    /// Those of [`Setup::rules`].
    pub fn new(setup: &Setup, capture: &Capture) -> Result<Self, RulesError> {
        const ETHERNET_HEADER_LEN: usize = 14;
        let rules = setup.rules()?;
        let longest = capture.frames.iter().map(|frame| frame.bytes.len()).max().unwrap_or(0);
        let mtu = u16::try_from(longest.saturating_sub(ETHERNET_HEADER_LEN)).unwrap_or(u16::MAX).max(1500);
        let ingress = Ingress::new(rules.clone(), setup.kernel, mtu);
        let rules_of_udp = setup.datagram_rules()?;
        let datagrams = (
            Egress::new(rules_of_udp.clone(), setup.kernel, mtu, 0),
            Ingress::new(rules_of_udp, setup.kernel, mtu),
        );
        let out = vec![0; longest.max(usize::from(mtu) + MAX_LINK_LEN)];
        Ok(Self {
            rules,
            kernel: setup.kernel,
            mtu,
            hosts: BTreeMap::new(),
            // The seed only has to be hard to guess for a sender; a replay is better repeatable.
            capabilities: Box::new(CapabilityTable::new(0)),
            ingress,
            datagrams,
            start: None,
            now: Millis(0),
            out,
        })
    }

    /// Puts the rules of another setup in force at every host, as a reload does.
    ///
    /// # Errors
    /// Those of [`Setup::rules`].
    pub fn reload(&mut self, setup: &Setup) -> Result<(), RulesError> {
        self.rules = setup.rules()?;
        for egress in self.hosts.values_mut() {
            egress.set_rules(self.rules.clone());
        }
        self.ingress.set_rules(self.rules.clone());
        let rules_of_udp = setup.datagram_rules()?;
        self.datagrams.0.set_rules(rules_of_udp.clone());
        self.datagrams.1.set_rules(rules_of_udp);
        Ok(())
    }

    /// Forgets all connections, as if every host started anew; rules stay.
    pub fn restart(&mut self) {
        for egress in self.hosts.values_mut() {
            egress.reset(0);
        }
        let capabilities: &CapabilityTable = &*self.capabilities;
        capabilities.clear(0);
        (self.start, self.now) = (None, Millis(0));
    }

    /// The number of connections the rules of another setup would break.
    ///
    /// # Errors
    /// Those of [`Setup::rules`].
    pub fn would_break(&self, setup: &Setup) -> Result<usize, RulesError> {
        let rules = setup.rules()?;
        Ok(self.hosts.values().map(|egress| egress.would_break(&rules, self.now)).sum())
    }

    /// The handshake of each connection.
    pub fn handshakes(&self) -> impl Iterator<Item = Negotiation> {
        self.hosts.values().flat_map(|egress| egress.flows().iter().map(|(_, flow)| flow.handshake()))
    }

    /// Sends one frame, the next in the order of the capture.
    pub fn send(&mut self, frame: &Frame) -> Passage {
        let start = *self.start.get_or_insert(frame.time);
        let elapsed = frame.time.saturating_sub(start).as_millis();
        self.now = self.now.max(Millis(u64::try_from(elapsed).unwrap_or(u64::MAX)));

        let source = source_mac(&frame.bytes);
        let full = self.hosts.len() >= MAX_HOSTS && !self.hosts.contains_key(&source);
        let host = if full { [0; 6] } else { source };
        let Self { rules, kernel, mtu, capabilities, now, out, .. } = self;
        let egress =
            self.hosts.entry(host).or_insert_with(|| Box::new(Egress::new(rules.clone(), *kernel, *mtu, 0)));

        let by_datagram = is_datagram(&frame.bytes);
        let verdict = if by_datagram {
            self.datagrams.0.process(&frame.bytes, out, *now, &**capabilities)
        } else {
            egress.process(&frame.bytes, out, *now, &**capabilities)
        };
        let mut passage = Passage {
            egress: verdict,
            ingress: None,
            seen: true,
            changed_wire: None,
            changed_delivered: None,
        };
        if let Verdict::Changed { len, .. } = verdict {
            let mut wire = self.out.get(..len).unwrap_or(&self.out).to_vec();
            wire.resize(wire.len().max(MIN_FRAME_LEN), 0);
            passage.changed_wire = Some(wire);
        }
        let Some(wire) = passage.on_wire(&frame.bytes) else { return passage };
        let ingress = if by_datagram { &mut self.datagrams.1 } else { &mut self.ingress };
        let verdict = ingress.process(wire, &mut self.out, &*self.capabilities);
        passage.ingress = Some(verdict);
        if let Verdict::Changed { len, .. } = verdict {
            passage.changed_delivered = Some(self.out.get(..len).unwrap_or(&self.out).to_vec());
        }
        passage
    }
}

fn is_datagram(frame: &[u8]) -> bool {
    let packet = IpFrame::parse(frame).and_then(|ip_frame| ip_frame.packet());
    packet.is_ok_and(|packet| matches!(packet.transport(), Transport::Udp { .. }))
}

/// The source MAC address of an Ethernet frame; zeros if it is too short to have one.
pub(crate) fn source_mac(frame: &[u8]) -> [u8; 6] {
    frame.get(6..12).and_then(|mac| mac.try_into().ok()).unwrap_or_default()
}
