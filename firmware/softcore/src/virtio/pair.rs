//! Two virtio NICs as the device that gradwire forwards over.

use gradwire::forward::{Device, Port};

use super::Registers;
use super::net::Nic;
use super::queue::RING;
use crate::board::{Faults, Nics};
use crate::buffers::{FrameBuffer, Pool};

/// Enough for both receivers and both senders, and two that the engines write to.
pub const BUFFERS: usize = 4 * RING + 2;

/// Both NICs and the buffers.
#[derive(Debug)]
pub struct Pair<R> {
    host: Nic<R>,
    network: Nic<R>,
    pool: Pool<BUFFERS>,
}

impl<R: Registers> Pair<R> {
    /// Gives both receivers their first buffers.
    pub fn new(host: Nic<R>, network: Nic<R>, pool: Pool<BUFFERS>) -> Self {
        let mut pair = Self { host, network, pool };
        pair.service();
        pair
    }

    /// The number of buffers the devices have.
    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.host.lent() + self.network.lent()
    }

    const fn nic(&mut self, port: Port) -> (&mut Nic<R>, &mut Pool<BUFFERS>) {
        match port {
            Port::Host => (&mut self.host, &mut self.pool),
            Port::Network => (&mut self.network, &mut self.pool),
        }
    }
}

impl<R: Registers> Device for Pair<R> {
    type Port = Port;
    type Buffer = FrameBuffer;

    fn receive(&mut self, from: Port) -> Option<FrameBuffer> {
        let (nic, pool) = self.nic(from);
        nic.receive(pool)
    }

    fn transmit(&mut self, to: Port, frame: FrameBuffer) -> Result<(), FrameBuffer> {
        self.nic(to).0.transmit(frame)
    }

    fn take(&mut self) -> Option<FrameBuffer> {
        self.pool.take()
    }

    fn release(&mut self, buffer: FrameBuffer) {
        self.pool.put(buffer);
    }

    fn kick(&mut self, to: Port) {
        self.nic(to).0.kick();
    }
}

impl<R: Registers> Nics for Pair<R> {
    fn service(&mut self) {
        for port in Port::ALL {
            let (nic, pool) = self.nic(port);
            nic.service(pool);
        }
    }

    fn link(&self, port: Port) -> bool {
        match port {
            Port::Host => self.host.link(),
            Port::Network => self.network.link(),
        }
    }

    fn faults(&self, port: Port) -> Faults {
        match port {
            Port::Host => self.host.faults(),
            Port::Network => self.network.faults(),
        }
    }

    fn clear_faults(&mut self) {
        for port in Port::ALL {
            self.nic(port).0.clear_faults();
        }
    }
}
