//! The network's NIC as smoltcp sees it: IP packets. Ethernet headers are written here, towards
//! whoever sent the last segment of the same address, so that the stack needs no ARP beside the
//! aggregator's.

use core::net::Ipv4Addr;

use gradwire::forward::{Buffer, Port};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use super::CLIENTS;
use crate::MTU;
use crate::aggregation::MAC;
use crate::board::Nics;

const ETHERNET_LEN: usize = 14;

/// The station behind an address: a host, or the router towards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) ip: Ipv4Addr,
    pub(super) mac: [u8; 6],
}

/// The wire's properties for smoltcp.
fn capabilities() -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = MTU.into();
    capabilities
}

/// The NIC for one turn.
pub(super) struct Wire<'a, N: Nics> {
    nics: &'a mut N,
    /// Of clients in their order, and of the last segment behind them.
    pub(super) neighbours: &'a mut [Option<Neighbour>; CLIENTS + 1],
    /// A packet that the stack has not got yet.
    packet: Option<&'a [u8]>,
    /// A buffer to write to, if there is one.
    spare: Option<N::Buffer>,
    no_room: &'a mut u64,
}

impl<'a, N: Nics> Wire<'a, N> {
    /// The stack gets `packet`. `no_room` counts what is lost, which TCP sends again.
    pub(super) fn new(
        nics: &'a mut N,
        neighbours: &'a mut [Option<Neighbour>; CLIENTS + 1],
        packet: Option<&'a [u8]>,
        no_room: &'a mut u64,
    ) -> Self {
        Self { nics, neighbours, packet, spare: None, no_room }
    }

    /// Ends the turn.
    pub(super) fn finish(self) {
        if let Some(spare) = self.spare {
            self.nics.release(spare);
        }
        self.nics.kick(Port::Network);
    }

    /// Whether there is a buffer to write to.
    fn has_room(&mut self) -> bool {
        if self.spare.is_none() {
            self.spare = self.nics.take();
        }
        self.spare.is_some()
    }

    /// Sends the buffer's packet of so many bytes, if its receiver is known and the NIC has room.
    fn send(&mut self, mut frame: N::Buffer, len: usize) -> Result<(), N::Buffer> {
        let room = frame.room();
        let to = room.get(ETHERNET_LEN + 16..).and_then(|address| address.first_chunk::<4>()).copied();
        let to = to.map(Ipv4Addr::from);
        let last_first = self.neighbours.iter().rev().flatten();
        let Some(neighbour) = last_first.copied().find(|neighbour| Some(neighbour.ip) == to) else {
            return Err(frame);
        };
        let header = neighbour.mac.into_iter().chain(MAC).chain([0x08, 0x00]);
        room.iter_mut().zip(header).for_each(|(byte, header)| *byte = header);
        frame.set_len(ETHERNET_LEN + len);
        self.nics.transmit(Port::Network, frame)
    }
}

impl<'a, N: Nics> Device for Wire<'a, N> {
    type RxToken<'t>
        = Packet<'a>
    where
        Self: 't;
    type TxToken<'t>
        = Room<'t, 'a, N>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Packet<'a>, Room<'_, 'a, N>)> {
        // Without room, what it answers to a segment is lost, and the segment is worth no more than
        // lost.
        if !self.has_room() {
            *self.no_room += u64::from(self.packet.take().is_some());
            return None;
        }
        self.packet.take().map(|packet| (Packet(packet), Room(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_, 'a, N>> {
        self.has_room().then_some(Room(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities()
    }
}

/// A packet for the stack.
pub(super) struct Packet<'a>(&'a [u8]);

impl RxToken for Packet<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// The buffer that the stack may write to.
pub(super) struct Room<'t, 'a, N: Nics>(&'t mut Wire<'a, N>);

impl<N: Nics> TxToken for Room<'_, '_, N> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self(wire) = self;
        let mut frame = wire.spare.take().expect("there is room where there is a token");
        let result = f(&mut frame.room()[ETHERNET_LEN..ETHERNET_LEN + len]);
        if let Err(frame) = wire.send(frame, len) {
            *wire.no_room += 1;
            wire.spare = Some(frame);
        }
        result
    }
}

/// A wire before there is one: it says what packets may look like.
pub(super) struct Unconnected;

/// Nothing comes from there, and nothing goes there.
pub(super) enum Never {}

impl RxToken for Never {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, _: F) -> R {
        match self {}
    }
}

impl TxToken for Never {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, _: usize, _: F) -> R {
        match self {}
    }
}

impl Device for Unconnected {
    type RxToken<'t> = Never;
    type TxToken<'t> = Never;

    fn receive(&mut self, _: Instant) -> Option<(Never, Never)> {
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<Never> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities()
    }
}
