//! Receive, process, transmit: frames from port to port, in batches. What every driver runs; a
//! driver itself is a [`Device`].
//!
//! [`forward_batch`] is the loop, for any number of ports: who calls it decides what becomes of a
//! frame and where it leaves. [`Forwarder`] calls it with the two engines between two ports:
//!
//! ```text
//!          receive              transmit
//!   host ──────────► Egress ──────────────► network
//!   host ◄────────── Ingress ◄───────────── network
//!          transmit              receive
//! ```
//!
//! Buffers are handed over, never copied: an untouched frame leaves in the buffer that it came in,
//! a changed one in a spare, and the buffer that it came in is the next spare.

use crate::engine::{Coded, Egress, Ingress, Millis};
use crate::flow::capabilities::CapabilityTable;
use crate::kernels::Kernel;
use crate::rules::Rules;
use crate::verdict::{Change, Verdict};

/// One of a [`Forwarder`]'s two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Port {
    /// Towards the host: its frames are compressed.
    Host,
    /// Towards the wire: its frames are restored.
    Network,
}

impl Port {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Host, Self::Network];

    /// The port on the other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Host => Self::Network,
            Self::Network => Self::Host,
        }
    }
}

/// A buffer that holds a frame at its start. Whoever has the value has the memory.
pub trait Buffer {
    /// The frame: Ethernet II, without FCS.
    fn frame(&self) -> &[u8];

    /// The whole memory: at least the MTU and [`crate::wire::frame::MAX_LINK_LEN`] bytes.
    fn room(&mut self) -> &mut [u8];

    /// The first `len` bytes are the frame now; `len` is at most the length of the room.
    fn set_len(&mut self, len: usize);
}

/// Ports and the buffers that circulate between them. No call waits.
pub trait Device {
    /// A name of one of its ports: [`Port`] if it has a host's and a network's.
    type Port: Copy + PartialEq;
    /// Its buffers.
    type Buffer: Buffer;

    /// The next frame that a port received.
    fn receive(&mut self, from: Self::Port) -> Option<Self::Buffer>;

    /// Last work on a frame that leaves with the payload that it came with from the port `from`. A
    /// device whose ports hand over frames with checksums left to offload, and do not compute them
    /// when they send, completes them here ([`crate::wire::rewrite::complete_checksum`]); others
    /// have nothing to do.
    #[inline]
    fn finish(&mut self, from: Self::Port, frame: &mut Self::Buffer) {
        let _ = (from, frame);
    }

    /// Queues a frame for sending.
    ///
    /// # Errors
    /// The buffer with its frame, if a port has no room for it or no link.
    fn transmit(&mut self, to: Self::Port, frame: Self::Buffer) -> Result<(), Self::Buffer>;

    /// A buffer that nobody uses. None if all are under way.
    fn take(&mut self) -> Option<Self::Buffer>;

    /// Takes back a buffer that is not sent.
    fn release(&mut self, buffer: Self::Buffer);

    /// Tells a port that frames were queued: once a batch, and again each time that the batch turns
    /// to another port.
    fn kick(&mut self, to: Self::Port);
}

/// Losses among frames of one port that no verdict counts; the counts wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Losses {
    /// Dropped: the queue of the port where they were to leave was full, or its link gone.
    pub no_queue: u64,
    /// No buffer was free to write their replacement to: compressed frames were dropped, others
    /// left as they were. The engines count both.
    pub no_buffer: u64,
}

/// Takes at most `budget` frames that `from` received through `process`, and on to the port that it
/// names; how many there were.
///
/// `process` gets a frame and room for its replacement, which is empty if no buffer is free: it
/// then changes nothing. It gives its verdict and the port where the frame leaves, which means
/// nothing for a frame that it drops.
///
/// Frames keep their order. One that finds no room at the port where it is to leave is dropped and
/// counted, as a switch would.
pub fn forward_batch<D: Device>(
    device: &mut D,
    from: D::Port,
    budget: usize,
    losses: &mut Losses,
    mut process: impl FnMut(&[u8], &mut [u8]) -> (Verdict, D::Port),
) -> usize {
    let mut spare = None;
    let mut received = 0;
    let mut queued_at = None;
    while received < budget
        && let Some(frame) = device.receive(from)
    {
        received += 1;
        if spare.is_none() {
            spare = device.take();
        }
        let room = match &mut spare {
            Some(spare) => spare.room(),
            None => {
                count(&mut losses.no_buffer);
                &mut []
            }
        };
        let (verdict, to) = process(frame.frame(), room);
        let mut sent = match verdict {
            Verdict::Untouched(_) => frame,
            Verdict::Dropped(_) => {
                device.release(frame);
                continue;
            }
            Verdict::Changed { len, .. } => {
                // Always there: without room nothing is changed.
                let Some(mut changed) = spare.replace(frame) else { continue };
                changed.set_len(len);
                changed
            }
        };
        // Never one that egress compressed: its checksum is wrong on purpose.
        if matches!(verdict, Verdict::Untouched(_) | Verdict::Changed { change: Change::Remarked, .. }) {
            device.finish(from, &mut sent);
        }
        match device.transmit(to, sent) {
            Ok(()) => {
                if let Some(before) = queued_at.replace(to)
                    && before != to
                {
                    device.kick(before);
                }
            }
            Err(refused) => {
                count(&mut losses.no_queue);
                device.release(refused);
            }
        }
    }
    if let Some(spare) = spare {
        device.release(spare);
    }
    if let Some(last) = queued_at {
        device.kick(last);
    }
    received
}

/// Both engines between two ports. At most `SETS * 8` TCP flows; `SETS` is a power of two.
#[derive(Debug)]
pub struct Forwarder<const SETS: usize> {
    egress: Egress<SETS>,
    ingress: Ingress,
    /// By port of reception.
    losses: [Losses; 2],
}

impl<const SETS: usize> Forwarder<SETS> {
    /// Engines with an empty flow table, for IP packets of at most `mtu` bytes; `seed` keys the
    /// flow table's hash and should be random.
    #[must_use]
    pub fn new(rules: Rules, kernel: Kernel, mtu: u16, seed: u64) -> Self {
        let ingress = Ingress::new(rules.clone(), kernel, mtu);
        Self { egress: Egress::new(rules, kernel, mtu, seed), ingress, losses: [Losses::default(); 2] }
    }

    /// Takes at most `budget` frames that `from` received to the other port, as [`forward_batch`]
    /// does; how many there were.
    ///
    /// `capabilities` belongs to the host: all forwarders between it and the network share it.
    pub fn forward<D: Device<Port = Port>>(
        &mut self,
        device: &mut D,
        from: Port,
        budget: usize,
        now: Millis,
        capabilities: &CapabilityTable,
    ) -> usize {
        self.forward_observed(device, from, budget, now, capabilities, |_| {})
    }

    /// The same, and shows `observe` the values of each frame that is compressed, beside what they
    /// became.
    pub fn forward_observed<D: Device<Port = Port>>(
        &mut self,
        device: &mut D,
        from: Port,
        budget: usize,
        now: Millis,
        capabilities: &CapabilityTable,
        mut observe: impl FnMut(Coded<'_>),
    ) -> usize {
        let Self { egress, ingress, losses: [host, network] } = self;
        let losses = match from {
            Port::Host => host,
            Port::Network => network,
        };
        forward_batch(device, from, budget, losses, |frame, room| {
            let verdict = match from {
                Port::Host => egress.process(frame, room, now, capabilities),
                Port::Network => ingress.process(frame, room, capabilities),
            };
            if let Verdict::Changed { change: Change::Compressed, .. } = verdict
                && let Some(coded) = egress.coded(frame, room)
            {
                observe(coded);
            }
            (verdict, from.other())
        })
    }

    /// The engine of the host's frames.
    #[must_use]
    pub const fn egress(&self) -> &Egress<SETS> {
        &self.egress
    }

    /// The engine of the network's frames.
    #[must_use]
    pub const fn ingress(&self) -> &Ingress {
        &self.ingress
    }

    /// Losses among frames of `from` outside the engines.
    #[must_use]
    pub const fn losses(&self, from: Port) -> Losses {
        let [host, network] = self.losses;
        match from {
            Port::Host => host,
            Port::Network => network,
        }
    }

    /// As [`Egress::set_quiet_in_place`]: for as long as other rules are being checked.
    pub const fn set_quiet_in_place(&mut self, quiet: bool) {
        self.egress.set_quiet_in_place(quiet);
    }

    /// Puts other rules in force in both directions; flows and counters stay.
    pub fn set_rules(&mut self, rules: Rules) {
        self.egress.set_rules(rules.clone());
        self.ingress.set_rules(rules);
    }

    /// Forgets flows and counts; rules stay. `seed` keys the flow table's hash from now on.
    pub fn reset(&mut self, seed: u64) {
        self.egress.reset(seed);
        self.ingress.reset();
        self.losses = [Losses::default(); 2];
    }
}

const fn count(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}
