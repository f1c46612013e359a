//! One virtio-net NIC: reset, negotiation, a receive and a transmit queue (sections 3.1, 4.2.3 and
//! 5.1).

use core::fmt;

use gradwire::forward::Buffer;

use super::Registers;
use super::queue::{Queue, QueueMemory, RING, Returned, Writer};
use crate::board::Faults;
use crate::buffers::{FrameBuffer, HEADER_LEN, MAX_FRAME_LEN, Pool, ROOM};

/// Registers: section 4.2.2.
mod register {
    pub(super) const MAGIC: usize = 0x000;
    pub(super) const VERSION: usize = 0x004;
    pub(super) const DEVICE: usize = 0x008;
    pub(super) const DEVICE_FEATURES: usize = 0x010;
    pub(super) const DEVICE_FEATURES_WORD: usize = 0x014;
    pub(super) const DRIVER_FEATURES: usize = 0x020;
    pub(super) const DRIVER_FEATURES_WORD: usize = 0x024;
    pub(super) const QUEUE: usize = 0x030;
    pub(super) const QUEUE_LEN_MAX: usize = 0x034;
    pub(super) const QUEUE_LEN: usize = 0x038;
    pub(super) const QUEUE_READY: usize = 0x044;
    pub(super) const QUEUE_NOTIFY: usize = 0x050;
    pub(super) const INTERRUPT_STATUS: usize = 0x060;
    pub(super) const INTERRUPT_ACK: usize = 0x064;
    pub(super) const STATUS: usize = 0x070;
    /// Low words of the addresses of descriptors, available and used ring; the high words stand
    /// behind them.
    pub(super) const QUEUE_ADDRESSES: [usize; 3] = [0x080, 0x090, 0x0a0];
    /// MAC address (6 bytes), status (2): section 5.1.4.
    pub(super) const CONFIG_MAC_STATUS: usize = 0x104;
}

const MAGIC: u32 = 0x7472_6976;
/// The interface of virtio 1.0 and later.
const VERSION: u32 = 2;
const DEVICE_NET: u32 = 1;

/// Device status: section 2.1.
const ACKNOWLEDGE: u32 = 1;
const DRIVER: u32 = 2;
const DRIVER_OK: u32 = 4;
const FEATURES_OK: u32 = 8;
const NEEDS_RESET: u32 = 64;

/// Feature bits 0 to 31: VIRTIO_NET_F_STATUS.
const FEATURE_STATUS: u32 = 1 << 16;
/// Feature bits 32 to 63: VIRTIO_F_VERSION_1.
const FEATURE_VERSION_1: u32 = 1;

const RECEIVE: u32 = 0;
const TRANSMIT: u32 = 1;
/// Shorter is no Ethernet frame.
const MIN_FRAME_LEN: usize = 14;

/// Why a NIC cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), derive(defmt::Format))]
pub enum Unusable {
    /// There is no virtio device of the version wanted at this address.
    Absent,
    /// It is not a NIC.
    NoNic,
    /// It wants the interface from before virtio 1.0.
    Legacy,
    /// Its queues hold fewer than [`RING`] buffers.
    QueueTooShort,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "no virtio device there: -device virtio-net-device,bus=virtio-mmio-bus.N",
            Self::NoNic => "a virtio device, but no NIC",
            Self::Legacy => "the interface from before virtio 1.0: -global virtio-mmio.force-legacy=false",
            Self::QueueTooShort => "its queues are too short",
        })
    }
}

/// A NIC.
#[derive(Debug)]
pub struct Nic<R> {
    registers: R,
    receive: Queue,
    transmit: Queue,
    has_status: bool,
    link: bool,
    /// The receiver has had buffers.
    started: bool,
    faults: Faults,
}

impl<R: Registers> Nic<R> {
    /// Takes a device into service; its receive queue has no buffers yet.
    ///
    /// # Errors
    /// It is no NIC that this driver knows.
    pub fn new(
        mut registers: R,
        receive: &'static QueueMemory,
        transmit: &'static QueueMemory,
    ) -> Result<Self, Unusable> {
        use register as at;
        if registers.read(at::MAGIC) != MAGIC {
            return Err(Unusable::Absent);
        }
        match (registers.read(at::VERSION), registers.read(at::DEVICE)) {
            (VERSION, DEVICE_NET) => {}
            (_, DEVICE_NET) => return Err(Unusable::Legacy),
            (_, 0) => return Err(Unusable::Absent),
            _ => return Err(Unusable::NoNic),
        }
        registers.write(at::STATUS, 0);
        let mut status = ACKNOWLEDGE | DRIVER;
        registers.write(at::STATUS, status);

        registers.write(at::DEVICE_FEATURES_WORD, 0);
        let low = registers.read(at::DEVICE_FEATURES) & FEATURE_STATUS;
        registers.write(at::DRIVER_FEATURES_WORD, 0);
        registers.write(at::DRIVER_FEATURES, low);
        registers.write(at::DRIVER_FEATURES_WORD, 1);
        registers.write(at::DRIVER_FEATURES, FEATURE_VERSION_1);
        status |= FEATURES_OK;
        registers.write(at::STATUS, status);
        if registers.read(at::STATUS) & FEATURES_OK == 0 {
            return Err(Unusable::Legacy);
        }

        for (queue, memory) in [(RECEIVE, receive), (TRANSMIT, transmit)] {
            registers.write(at::QUEUE, queue);
            if (registers.read(at::QUEUE_LEN_MAX) as usize) < RING {
                return Err(Unusable::QueueTooShort);
            }
            registers.write(at::QUEUE_LEN, RING as u32);
            for (offset, address) in at::QUEUE_ADDRESSES.into_iter().zip(memory.addresses()) {
                registers.write(offset, address as u32);
                registers.write(offset + 4, (address >> 32) as u32);
            }
            registers.write(at::QUEUE_READY, 1);
        }
        registers.write(at::STATUS, status | DRIVER_OK);
        let mut nic = Self {
            registers,
            receive: Queue::new(receive, Writer::Device),
            transmit: Queue::new(transmit, Writer::Driver),
            has_status: low != 0,
            link: true,
            started: false,
            faults: Faults::default(),
        };
        nic.link = nic.read_link();
        Ok(nic)
    }

    /// The next frame received. Runts, frames that are too long and what the device may not do are
    /// counted and skipped, at most a ring's length of them.
    pub fn receive<const N: usize>(&mut self, pool: &mut Pool<N>) -> Option<FrameBuffer> {
        for _ in 0..RING {
            let Ok(Returned { mut buffer, written }) = self.receive.take_back()? else {
                count(&mut self.faults.violations);
                continue;
            };
            let len = (written as usize).wrapping_sub(HEADER_LEN);
            if (MIN_FRAME_LEN..=MAX_FRAME_LEN).contains(&len) {
                buffer.set_len(len);
                return Some(buffer);
            }
            let runt = (written as usize) < HEADER_LEN + MIN_FRAME_LEN;
            count(if runt { &mut self.faults.runts } else { &mut self.faults.oversize });
            pool.put(buffer);
        }
        None
    }

    /// Queues a frame.
    ///
    /// # Errors
    /// The buffer with its frame, if the queue is full or the link gone.
    pub fn transmit(&mut self, mut frame: FrameBuffer) -> Result<(), FrameBuffer> {
        if !self.link {
            return Err(frame);
        }
        // Nothing is offloaded: all of the header is zero (section 5.1.6).
        *frame.header_mut() = [0; HEADER_LEN];
        let len = frame.frame().len();
        self.transmit.lend(frame, len)
    }

    /// Tells the device that frames were queued.
    pub fn kick(&mut self) {
        self.registers.write(register::QUEUE_NOTIFY, TRANSMIT);
    }

    /// Takes back what was sent, gives the receiver buffers, looks after the link, and stops the
    /// interrupt.
    pub fn service<const N: usize>(&mut self, pool: &mut Pool<N>) {
        // Before anything is looked at: what comes later interrupts again.
        let interrupt = self.registers.read(register::INTERRUPT_STATUS);
        if interrupt != 0 {
            self.registers.write(register::INTERRUPT_ACK, interrupt);
        }
        for _ in 0..RING {
            match self.transmit.take_back() {
                Some(Ok(returned)) => pool.put(returned.buffer),
                Some(Err(_)) => count(&mut self.faults.violations),
                None => break,
            }
        }
        if self.started && self.receive.is_idle() {
            count(&mut self.faults.overruns);
        }
        let mut lent = false;
        while !self.receive.is_full()
            && let Some(buffer) = pool.take()
        {
            if let Err(buffer) = self.receive.lend(buffer, ROOM) {
                pool.put(buffer);
                break;
            }
            lent = true;
        }
        if lent {
            self.started = true;
            self.registers.write(register::QUEUE_NOTIFY, RECEIVE);
        }
        let link = self.read_link();
        if self.link && !link {
            count(&mut self.faults.links_lost);
        }
        self.link = link;
    }

    /// Whether there is a link.
    pub const fn link(&self) -> bool {
        self.link
    }

    /// The faults.
    pub const fn faults(&self) -> Faults {
        self.faults
    }

    /// Sets them to zero.
    pub fn clear_faults(&mut self) {
        self.faults = Faults::default();
    }

    /// The number of buffers the device has.
    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.receive.lent() + self.transmit.lent()
    }

    fn read_link(&self) -> bool {
        let broken = self.registers.read(register::STATUS) & NEEDS_RESET != 0;
        let status = self.registers.read(register::CONFIG_MAC_STATUS) >> 16;
        !broken && (!self.has_status || status & 1 != 0)
    }
}

const fn count(counter: &mut u32) {
    *counter = counter.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use super::*;
    use crate::buffers::Memory;
    use gradwire::forward::Device as _;
    use gradwire::forward::Port;
    use proptest::prelude::*;

    use crate::board::Nics;
    use crate::virtio::pair::{BUFFERS, Pair};

    /// A device's registers, and what was written to them.
    #[derive(Clone, Debug)]
    struct Fake {
        link: Rc<Cell<bool>>,
        version: u32,
        writes: Rc<RefCell<Vec<(usize, u32)>>>,
    }

    impl Fake {
        fn new() -> Self {
            Self { link: Rc::new(Cell::new(true)), version: VERSION, writes: Rc::default() }
        }
    }

    impl Registers for Fake {
        fn read(&self, offset: usize) -> u32 {
            match offset {
                register::MAGIC => MAGIC,
                register::VERSION => self.version,
                register::DEVICE => DEVICE_NET,
                register::DEVICE_FEATURES => u32::MAX,
                register::QUEUE_LEN_MAX => 256,
                register::STATUS => FEATURES_OK | DRIVER_OK,
                register::CONFIG_MAC_STATUS => u32::from(self.link.get()) << 16,
                _ => 0,
            }
        }

        fn write(&mut self, offset: usize, value: u32) {
            self.writes.borrow_mut().push((offset, value));
        }
    }

    struct Bench {
        pair: Pair<Fake>,
        /// Receive and transmit queue of the host's NIC, then of the network's.
        queues: [&'static QueueMemory; 4],
        fakes: [Fake; 2],
    }

    /// Both NICs; what tests leak is little.
    fn bench() -> Bench {
        let queues = [(); 4].map(|()| &*Box::leak(Box::new(QueueMemory::new())));
        let fakes = [Fake::new(), Fake::new()];
        let host = Nic::new(fakes[0].clone(), queues[0], queues[1]).unwrap();
        let network = Nic::new(fakes[1].clone(), queues[2], queues[3]).unwrap();
        let memory: Box<[Memory; BUFFERS]> =
            (0..BUFFERS).map(|_| Memory::NEW).collect::<Vec<_>>().try_into().unwrap();
        Bench { pair: Pair::new(host, network, Pool::new(Box::leak(memory))), queues, fakes }
    }

    /// As many buffers as can be had at the moment.
    fn free(pair: &mut Pair<Fake>) -> usize {
        let taken: Vec<_> = std::iter::from_fn(|| pair.take()).collect();
        let count = taken.len();
        taken.into_iter().for_each(|buffer| pair.release(buffer));
        count
    }

    #[test]
    fn a_device_of_another_kind_is_refused() {
        let memory = || &*Box::leak(Box::new(QueueMemory::new()));
        let legacy = Fake { version: 1, ..Fake::new() };
        assert_eq!(Nic::new(legacy, memory(), memory()).unwrap_err(), Unusable::Legacy);
        let writes = Fake::new();
        Nic::new(writes.clone(), memory(), memory()).unwrap();
        let last =
            writes.writes.borrow().iter().rev().find(|(offset, _)| *offset == register::STATUS).copied();
        assert_eq!(last, Some((register::STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK)));
    }

    #[test]
    fn runts_and_frames_that_are_too_long_are_counted_and_their_buffers_lent_again() {
        let Bench { mut pair, queues, .. } = bench();
        for (place, len) in [(0, 13), (1, 14), (2, MAX_FRAME_LEN), (3, MAX_FRAME_LEN + 1), (4, usize::MAX)] {
            queues[0].write_used(
                place,
                RING as u32 - 1 - u32::from(place),
                (len.wrapping_add(HEADER_LEN)) as u32,
            );
        }
        queues[0].set_used_index(5);
        let lens: Vec<usize> =
            std::iter::from_fn(|| pair.receive(Port::Host)).map(|frame| frame.frame().len()).collect();
        assert_eq!(lens, [14, MAX_FRAME_LEN]);
        let expected = Faults { runts: 2, oversize: 1, ..Faults::default() };
        assert_eq!(pair.faults(Port::Host), expected);
        pair.clear_faults();
        assert_eq!(pair.faults(Port::Host), Faults::default());
    }

    #[test]
    fn a_receiver_without_buffers_is_an_overrun() {
        let Bench { mut pair, queues, .. } = bench();
        assert_eq!(pair.faults(Port::Host).overruns, 0);
        for place in 0..RING as u16 {
            queues[0].write_used(place, u32::from(place), 100);
        }
        queues[0].set_used_index(RING as u16);
        let frames: Vec<_> = std::iter::from_fn(|| pair.receive(Port::Host)).collect();
        assert_eq!(frames.len(), RING);
        pair.service();
        assert_eq!(pair.faults(Port::Host).overruns, 1);
        frames.into_iter().for_each(|frame| pair.release(frame));
        pair.service();
        assert_eq!(pair.faults(Port::Host).overruns, 1);
    }

    #[test]
    fn a_link_that_went_takes_no_frame_and_is_counted() {
        let Bench { mut pair, fakes, .. } = bench();
        let before = free(&mut pair);
        fakes[1].link.set(false);
        pair.service();
        assert!(!pair.link(Port::Network) && pair.link(Port::Host));
        assert_eq!(pair.faults(Port::Network).links_lost, 1);
        let frame = pair.take().unwrap();
        let Err(frame) = pair.transmit(Port::Network, frame) else { panic!("taken") };
        pair.release(frame);
        fakes[1].link.set(true);
        pair.service();
        let frame = pair.take().unwrap();
        assert!(pair.transmit(Port::Network, frame).is_ok());
        assert_eq!(free(&mut pair), before - 1);
    }

    #[test]
    fn a_frame_that_finds_no_room_comes_back_whole() {
        let Bench { mut pair, queues, .. } = bench();
        let frame = |pair: &mut Pair<Fake>, len: usize| {
            let mut frame = pair.take().unwrap();
            frame.room()[..len].fill(0xa5);
            frame.set_len(len);
            frame
        };
        for _ in 0..RING {
            let frame = frame(&mut pair, 60);
            pair.transmit(Port::Network, frame).unwrap();
        }
        let last = frame(&mut pair, 700);
        let Err(held) = pair.transmit(Port::Network, last) else { panic!("taken") };
        assert_eq!(held.frame(), [0xa5; 700]);
        // The device has sent one.
        queues[3].write_used(0, 0, 0);
        queues[3].set_used_index(1);
        pair.service();
        assert!(pair.transmit(Port::Network, held).is_ok());
        let lens = queues[3].lens();
        assert_eq!(lens.iter().filter(|len| **len == (HEADER_LEN + 700) as u32).count(), 1, "{lens:?}");
    }

    proptest! {
        /// Whatever a device writes: no panic, no loop, no buffer twice and none lost that it gave
        /// back.
        #[test]
        fn a_device_that_lies_costs_frames_and_nothing_else(
            turns in prop::collection::vec(
                (0usize..4, any::<u16>(), prop::collection::vec((0u16..64, 0u32..40, any::<u32>()), 0..8), 0u16..70),
                1..60,
            ),
        ) {
            let Bench { mut pair, queues, .. } = bench();
            for (queue, index, entries, ahead) in turns {
                for (place, id, written) in entries {
                    queues[queue].write_used(place % RING as u16, id, written);
                }
                queues[queue].set_used_index(if ahead < 40 { queues[queue].used_index().wrapping_add(ahead) } else { index });
                for port in Port::ALL {
                    for _ in 0..40 {
                        let Some(frame) = pair.receive(port) else { break };
                        prop_assert!((MIN_FRAME_LEN..=MAX_FRAME_LEN).contains(&frame.frame().len()));
                        if let Err(refused) = pair.transmit(port.other(), frame) {
                            pair.release(refused);
                        }
                    }
                    pair.service();
                }
                let lent: usize = pair.lent();
                prop_assert_eq!(free(&mut pair) + lent, BUFFERS);
            }
        }
    }
}
