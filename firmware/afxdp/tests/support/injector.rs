//! Frames of anybody's making, put on the wire towards one side.

use gradwire::forward::{Buffer, Device, Port};
use gradwire::wire::frame::MAX_LINK_LEN;
use gradwire_xdp::device::Queues;
use gradwire_xdp::shim::bind_patiently;
use gradwire_xdp::xsk::Binding;

use super::{Lab, Side};

/// To be made inside the wire's namespace.
pub struct Injector(Queues);

impl Injector {
    /// `interface`: the index of the wire's end.
    pub fn new(interface: u32, mtu: u16) -> Self {
        let mut queues = Queues::new(2, usize::from(mtu) + MAX_LINK_LEN).unwrap();
        let binding = Binding { interface, queue: 0, zero_copy: false, busy_poll: None };
        let socket = bind_patiently(queues.frames(), binding).unwrap();
        queues.add(Port::Network, 0, socket);
        Self(queues)
    }

    /// Sends a frame; waits until there is room.
    pub fn send(&mut self, frame: &[u8]) {
        let mut buffer = loop {
            self.0.service();
            if let Some(buffer) = self.0.take() {
                break buffer;
            }
        };
        buffer.room()[..frame.len()].copy_from_slice(frame);
        buffer.set_len(frame.len());
        while let Err(refused) = self.0.transmit(Port::Network, buffer) {
            self.0.service();
            buffer = refused;
        }
        self.0.kick(Port::Network);
    }

    /// Waits until all is sent.
    pub fn finish(mut self) {
        while !self.0.service() {}
    }
}

/// The index of the wire's end at a side.
pub fn end(lab: &Lab, side: Side) -> u32 {
    lab.link("w", side.name())["ifindex"].as_u64().unwrap() as u32
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
