//! Frames of anybody's making, put on the wire towards one side, or on a queue of a host.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire::forward::{Buffer, Device, Port};
use gradwire::wire::frame::MAX_LINK_LEN;
use gradwire_xdp::path::device::Queues;
use gradwire_xdp::path::worker::monotonic_ns;
use gradwire_xdp::path::xsk::Binding;
use gradwire_xdp::telemetry::Bound;

use super::{Lab, Side};

/// A thread inside a namespace.
pub struct Injector {
    frames: SyncSender<Vec<u8>>,
    thread: JoinHandle<()>,
}

impl Injector {
    pub fn start(lab: &Lab, towards: Side) -> Self {
        Self::on(lab, "w", towards.name(), 0)
    }

    /// Sends on a queue of an interface: a veth's other end receives on the same.
    pub fn on(lab: &Lab, place: &str, interface: &str, queue: u32) -> Self {
        let (interface, mtu) = (lab.index(place, interface), lab.plan.mtu);
        let binding = Binding { interface, queue, bound: Bound::Copy };
        let (frames, queue) = sync_channel::<Vec<u8>>(1024);
        let thread = lab.enter(place, move || {
            let mut port = InjectorPort::bind(binding, mtu);
            // Frames that come close together are sent together.
            while let Ok(frame) = queue.recv() {
                port.send(&frame);
                queue.try_iter().take(64).for_each(|frame| port.send(&frame));
                port.0.kick(Port::Network);
                // The kernel sends nothing while the ring of what it has sent is full.
                while !port.0.service(monotonic_ns()) {}
            }
        });
        Self { frames, thread }
    }

    /// Sends a frame; waits until there is room.
    pub fn send(&self, frame: Vec<u8>) {
        self.frames.send(frame).unwrap();
    }

    /// Waits until all is sent.
    pub fn finish(self) {
        drop(self.frames);
        self.thread.join().unwrap();
    }
}

struct InjectorPort(Queues);

impl InjectorPort {
    fn bind(binding: Binding, mtu: u16) -> Self {
        let mut queues = Queues::new(2, usize::from(mtu) + MAX_LINK_LEN, Bound::Copy).unwrap();
        queues.bind(Port::Network, binding, Duration::ZERO).unwrap();
        Self(queues)
    }

    fn send(&mut self, frame: &[u8]) {
        let mut buffer = loop {
            if let Some(buffer) = self.0.take() {
                break buffer;
            }
            self.0.service(monotonic_ns());
        };
        buffer.room()[..frame.len()].copy_from_slice(frame);
        buffer.set_len(frame.len());
        while let Err(refused) = self.0.transmit(Port::Network, buffer) {
            self.0.kick(Port::Network);
            self.0.service(monotonic_ns());
            buffer = refused;
        }
    }
}

/// Marsaglia's xorshift: the same in every run.
pub struct Random(pub u32);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// 0 to `below - 1`.
    pub fn below(&mut self, below: usize) -> usize {
        self.next() as usize % below
    }
}
