//! A wire that frames overtake each other on: a process between its two ends, in place of the
//! bridge.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire::forward::{Buffer, Device, Port};
use gradwire::wire::frame::MAX_LINK_LEN;
use gradwire_xdp::path::device::Queues;
use gradwire_xdp::path::worker::monotonic_ns;
use gradwire_xdp::path::xsk::Binding;
use gradwire_xdp::telemetry::Bound;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};

use super::injector::Random;
use super::{Lab, Side};

/// One frame in so many is overtaken by the frames that come after it; one in so many comes twice.
const OVERTAKEN: u32 = 50;
const DOUBLED: u32 = 200;
/// By how many frames, at most.
const BEHIND: usize = 8;

pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64)>,
}

impl Relay {
    /// Frames are taken from a packet socket and sent by `AF_XDP`, which packet sockets do not see.
    pub fn start(lab: &Lab) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let macs = ["ha", "hb"].map(|place| lab.mac(place));
        let ends = Side::BOTH.map(|side| lab.wire_end(side));
        let frame_len = usize::from(lab.plan.mtu) + MAX_LINK_LEN;
        let thread = lab.enter("w", move || {
            let socket =
                socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(eth::ALL))
                    .unwrap();
            set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
            set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(2))).unwrap();
            let mut wire = Wire::new(ends, frame_len);
            let mut buffer = vec![0; 1 << 16];
            while !stopped.load(Ordering::Relaxed) {
                match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
                    Ok((len, _)) if buffer[6..12] == macs[0] => wire.pass(Port::Network, &buffer[..len]),
                    Ok((len, _)) if buffer[6..12] == macs[1] => wire.pass(Port::Host, &buffer[..len]),
                    Ok(_) => {}
                    // A pause: nothing more comes to overtake what waits.
                    Err(_) => wire.flush(),
                }
            }
            (wire.overtaken, wire.doubled)
        });
        Self { stop, thread }
    }

    /// The number of frames that were overtaken, and how many came twice.
    pub fn finish(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

struct Wire {
    /// Port `Host` is the end at A, `Network` the one at B.
    queues: Queues,
    /// Frames that wait, where to, and for how many others.
    waiting: VecDeque<(Port, Vec<u8>, usize)>,
    random: Random,
    overtaken: u64,
    doubled: u64,
}

impl Wire {
    fn new(ends: [u32; 2], frame_len: usize) -> Self {
        let mut queues = Queues::new(2, frame_len, Bound::Copy).unwrap();
        for (port, interface) in Port::ALL.into_iter().zip(ends) {
            let binding = Binding { interface, queue: 0, bound: Bound::Copy };
            queues.bind(port, binding, Duration::ZERO).unwrap();
        }
        Self { queues, waiting: VecDeque::new(), random: Random(0x9e37_79b9), overtaken: 0, doubled: 0 }
    }

    fn pass(&mut self, to: Port, frame: &[u8]) {
        let random = self.random.next();
        if random.is_multiple_of(OVERTAKEN) {
            self.waiting.push_back((to, frame.to_vec(), 1 + random as usize / 7 % BEHIND));
            self.overtaken += 1;
            return;
        }
        self.send(to, frame);
        if random % DOUBLED == 1 {
            self.doubled += 1;
            self.send(to, frame);
        }
        self.waiting.iter_mut().for_each(|(_, _, behind)| *behind -= 1);
        while let Some((to, frame, _)) = self.waiting.pop_front_if(|(_, _, behind)| *behind == 0) {
            self.send(to, &frame);
        }
        self.waiting.iter_mut().for_each(|(_, _, behind)| *behind = (*behind).max(1));
    }

    fn flush(&mut self) {
        while let Some((to, frame, _)) = self.waiting.pop_front() {
            self.send(to, &frame);
        }
        self.queues.service(monotonic_ns());
    }

    fn send(&mut self, to: Port, frame: &[u8]) {
        self.queues.service(monotonic_ns());
        let Some(mut buffer) = self.queues.take() else { return };
        buffer.room()[..frame.len()].copy_from_slice(frame);
        buffer.set_len(frame.len());
        if let Err(buffer) = self.queues.transmit(to, buffer) {
            self.queues.release(buffer);
        }
        self.queues.kick(to);
    }
}
