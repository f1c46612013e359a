//! The network: hosts on one non-blocking switch, each with a FIFO egress and a FIFO ingress link.
//!
//! ```text
//! encode? -> egress -> (rack uplink -> core -> rack downlink)? -> ingress -> decode?
//! ```
//! Cut-through: a message's head enters the next link when it enters this one, and a message is
//! delivered when its last bit has left the last link. Switch buffers are unbounded. Every link,
//! codec and processor is a station that serves first in, first out, so what leaves one of them is
//! ordered in time: the heap holds one entry for each station, not one for each message. Equal
//! times are ordered by the sequence number given at admission.
//!
//! Source: Chang et al., 'How to Train your DNN', the rules of its simulator.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use crate::scenario::{Links, WireCost};
use crate::time::{Picos, transmission};

/// A message of a mechanism; the network reads only `src` and `dest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Sending host.
    pub src: u32,
    /// Its destination.
    pub dest: Dest,
    /// The mechanism's own number for what is inside: a parameter or a piece of one.
    pub item: u32,
    /// The mechanism's own count of hops or rounds.
    pub step: u32,
    /// Training iteration, from 0.
    pub iteration: u32,
}

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dest {
    /// One host.
    Host(u32),
    /// Every worker but the sender, replicated by the switch.
    Workers,
    /// The switch itself, which takes it off the wire (in-network aggregation); the core switch, if
    /// there are racks.
    Switch,
    /// The switch of the sender's rack; the only switch, if there are no racks.
    RackSwitch,
}

/// The sender of what a switch itself sends: no host, so nobody is left out of a multicast.
pub(crate) const SWITCH: u32 = u32::MAX;

/// An event for the mechanism to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FabricEvent {
    /// `worker` finished the row it was computing.
    Computed {
        /// The worker.
        worker: u32,
    },
    /// `message` is whole at `host`, which goes on to decode it.
    Arrived {
        /// The receiving host.
        host: u32,
        /// The message that arrived.
        message: Message,
    },
    /// `message` is whole, and decoded, at `host`.
    Delivered {
        /// The receiving host.
        host: u32,
        /// The message that arrived.
        message: Message,
        /// Whether an [`FabricEvent::Arrived`] told of it; without a decoder nothing lies between
        /// the two.
        announced: bool,
    },
    /// `message` reached the switch it was addressed to.
    AtSwitch {
        /// The message that arrived.
        message: Message,
        /// When its last bit is at the switch; later than now under cut-through.
        tail: Picos,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Compute,
    Encode,
    Egress,
    Uplink,
    Downlink,
    Ingress,
    Decode,
}

/// Stations of a host, in the order of their numbers.
const HOST_STAGES: [Stage; 5] = [Stage::Compute, Stage::Encode, Stage::Egress, Stage::Ingress, Stage::Decode];
const COMPUTE: usize = 0;
const ENCODE: usize = 1;
const EGRESS: usize = 2;
const INGRESS: usize = 3;
const DECODE: usize = 4;

/// A message on its way.
#[derive(Clone, Copy)]
struct Flight {
    /// Bits on the wire.
    bits: u64,
    /// Time in the receiver's decoder.
    decode: Picos,
    /// When the last bit leaves the link behind; no later link can be done before.
    tail: Picos,
    message: Message,
}

/// Bytes for a message under way: a queue that grows holds its messages, and room for twice as
/// many.
pub(crate) const MESSAGE_BYTES: u128 = 192;
/// Bytes of a station and its entry in the heap.
pub(crate) const STATION_BYTES: u128 = 128;
/// Stations of a host.
pub(crate) const STATIONS: u128 = HOST_STAGES.len() as u128;

const _: () = assert!(3 * size_of::<Pending>() as u128 <= MESSAGE_BYTES);
const _: () =
    assert!((size_of::<Station>() + size_of::<Reverse<(Picos, u64, u32)>>()) as u128 <= STATION_BYTES);

struct Pending {
    at: Picos,
    seq: u64,
    flight: Flight,
}

struct Station {
    stage: Stage,
    /// Host or rack.
    owner: u32,
    rate: u64,
    free: Picos,
    /// When the last bit so far is out.
    tail: Picos,
    bits: u64,
    /// Ordered by time and sequence number; its front is in the heap.
    pending: VecDeque<Pending>,
}

/// The stations and the event queue.
pub(crate) struct Fabric {
    now: Picos,
    seq: u64,
    events: u64,
    workers: u32,
    hosts: u32,
    copies: Option<u32>,
    latency: Picos,
    rack_size: u32,
    cut_through: bool,
    stations: Vec<Station>,
    queue: BinaryHeap<Reverse<(Picos, u64, u32)>>,
}

impl Fabric {
    /// A network of `workers` hosts and then `others` (servers, aggregators).
    ///
    /// `copies`: in the symmetric form, in which one worker stands for all, how many multicasts of
    /// the others reach it for each one that it sends. `cut_through`: whether a message is at the
    /// switch with its first bit.
    #[must_use]
    pub(crate) fn new(
        links: &Links,
        workers: u32,
        others: u32,
        copies: Option<u32>,
        cut_through: bool,
    ) -> Self {
        let hosts = workers + others;
        let mut rates = vec![links.bandwidth; hosts as usize];
        for &(worker, rate) in &links.exceptions {
            rates[worker as usize] = rate;
        }
        let station = |stage, owner, rate| Station {
            stage,
            owner,
            rate,
            free: 0,
            tail: 0,
            bits: 0,
            pending: VecDeque::new(),
        };
        let mut stations: Vec<Station> = (0..hosts)
            .flat_map(|host| HOST_STAGES.map(|stage| (stage, host)))
            .map(|(stage, host)| station(stage, host, rates[host as usize]))
            .collect();
        if let Some(racks) = links.racks {
            for (rack, hosts) in rates[..workers as usize].chunks(racks.size as usize).enumerate() {
                let rate =
                    (hosts.iter().sum::<u64>() as f64 / racks.oversubscription).round().max(1.0) as u64;
                stations.push(station(Stage::Uplink, rack as u32, rate));
                stations.push(station(Stage::Downlink, rack as u32, rate));
            }
        }
        Self {
            now: 0,
            seq: 0,
            events: 0,
            workers,
            hosts,
            copies,
            latency: links.latency,
            rack_size: links.racks.map_or(0, |racks| racks.size),
            cut_through,
            queue: BinaryHeap::with_capacity(stations.len()),
            stations,
        }
    }

    /// The time of the last event.
    #[must_use]
    pub(crate) fn now(&self) -> Picos {
        self.now
    }

    /// Events so far: every step of a message from one station to the next, every row computed.
    #[must_use]
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Bits that left `host`'s egress link.
    #[must_use]
    pub(crate) fn sent(&self, host: u32) -> u64 {
        self.stations[host as usize * HOST_STAGES.len() + EGRESS].bits
    }

    /// Bits that arrived on `host`'s ingress link.
    #[must_use]
    pub(crate) fn received(&self, host: u32) -> u64 {
        self.stations[host as usize * HOST_STAGES.len() + INGRESS].bits
    }

    /// Hosts, workers first.
    #[must_use]
    pub(crate) fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Keeps `worker`'s processor busy for `span`; then [`FabricEvent::Computed`].
    pub(crate) fn compute(&mut self, worker: u32, span: Picos) {
        let message = Message { src: worker, dest: Dest::Host(worker), item: 0, step: 0, iteration: 0 };
        let flight = Flight { bits: 0, decode: 0, tail: 0, message };
        self.occupy(host(worker, COMPUTE), span, flight);
    }

    /// Queues `message` at its sender.
    pub(crate) fn send(&mut self, message: Message, cost: WireCost) {
        if cost.encode > 0 {
            self.send_encoded(message, cost);
        } else {
            self.egress(Flight { bits: cost.bits, decode: cost.decode, tail: 0, message });
        }
    }

    /// Queues `message` at its sender, behind all that the encoder has to do there.
    pub(crate) fn send_encoded(&mut self, message: Message, cost: WireCost) {
        let flight = Flight { bits: cost.bits, decode: cost.decode, tail: 0, message };
        self.occupy(host(message.src, ENCODE), cost.encode, flight);
    }

    /// Sends `message` from the core switch to a host or to all workers, or from the sender's rack
    /// to the core switch; its last bit is not at the switch before `tail`.
    pub(crate) fn send_from_switch(&mut self, message: Message, cost: WireCost, tail: Picos) {
        let flight = Flight { bits: cost.bits, decode: cost.decode, tail, message };
        match (message.dest, self.rack(message.src)) {
            (Dest::Host(to), _) => self.arrive(to, self.now, flight),
            (Dest::Workers, _) => self.across_core(message.src, self.now, flight),
            (Dest::Switch, Some(rack)) => self.link(self.uplink(rack), self.now, flight),
            (Dest::Switch | Dest::RackSwitch, _) => {
                unreachable!("only a rack's switch sends to another switch")
            }
        }
    }

    /// Runs to the next event that concerns a mechanism.
    pub(crate) fn next_event(&mut self) -> Option<FabricEvent> {
        loop {
            let (stage, owner, mut flight) = self.pop()?;
            let message = flight.message;
            if stage == Stage::Egress && !self.ends_at_switch(message) {
                flight.tail += self.latency;
            }
            match stage {
                Stage::Compute => return Some(FabricEvent::Computed { worker: owner }),
                Stage::Encode => self.egress(flight),
                Stage::Egress => match self.rack(owner) {
                    Some(rack) if self.leaves(message.dest, rack) => {
                        if message.dest == Dest::Workers {
                            self.fan_out(rack, owner, self.now + self.latency, flight);
                        }
                        self.link(self.uplink(rack), self.now + self.latency, flight);
                    }
                    _ if self.ends_at_switch(message) => {
                        return Some(FabricEvent::AtSwitch { message, tail: flight.tail });
                    }
                    _ => self.across_core(owner, self.now + self.latency, flight),
                },
                Stage::Uplink if message.dest == Dest::Switch => {
                    return Some(FabricEvent::AtSwitch { message, tail: flight.tail });
                }
                Stage::Uplink => self.across_core(message.src, self.now, flight),
                Stage::Downlink => match message.dest {
                    Dest::Workers => self.fan_out(owner, message.src, self.now, flight),
                    Dest::Host(to) => self.arrive(to, self.now, flight),
                    Dest::Switch | Dest::RackSwitch => unreachable!("messages to switches do not go down"),
                },
                Stage::Ingress if flight.decode > 0 => {
                    self.occupy(host(owner, DECODE), flight.decode, flight);
                    return Some(FabricEvent::Arrived { host: owner, message });
                }
                Stage::Ingress | Stage::Decode => {
                    let announced = stage == Stage::Decode;
                    return Some(FabricEvent::Delivered { host: owner, message, announced });
                }
            }
        }
    }

    /// The rack of a worker; servers have none.
    fn rack(&self, host: u32) -> Option<u32> {
        (self.rack_size > 0 && host < self.workers).then(|| host / self.rack_size)
    }

    fn leaves(&self, dest: Dest, rack: u32) -> bool {
        match dest {
            Dest::Host(to) => self.rack(to) != Some(rack),
            Dest::Workers | Dest::Switch => true,
            Dest::RackSwitch => false,
        }
    }

    /// Is the sender's first switch the one that the message is for?
    fn ends_at_switch(&self, message: Message) -> bool {
        match message.dest {
            Dest::RackSwitch => true,
            Dest::Switch => self.rack(message.src).is_none(),
            Dest::Host(_) | Dest::Workers => false,
        }
    }

    fn uplink(&self, rack: u32) -> usize {
        self.hosts as usize * HOST_STAGES.len() + 2 * rack as usize
    }

    /// From the core (or the only) switch towards the receivers.
    fn across_core(&mut self, from: u32, at: Picos, flight: Flight) {
        match flight.message.dest {
            Dest::Host(to) => match self.rack(to) {
                Some(rack) if self.rack(from) != Some(rack) => self.link(self.uplink(rack) + 1, at, flight),
                _ => self.arrive(to, at, flight),
            },
            Dest::Workers if self.rack_size > 0 => {
                let own = self.rack(from);
                for rack in (0..self.workers.div_ceil(self.rack_size)).filter(|&rack| Some(rack) != own) {
                    self.link(self.uplink(rack) + 1, at, flight);
                }
            }
            Dest::Workers => {
                for _ in 0..self.copies.unwrap_or(0) {
                    self.arrive(from, at, flight);
                }
                for to in (0..self.workers).filter(|&to| to != from) {
                    self.arrive(to, at, flight);
                }
            }
            Dest::Switch | Dest::RackSwitch => unreachable!("messages to a switch end there"),
        }
    }

    /// A multicast reaches the workers of one rack.
    fn fan_out(&mut self, rack: u32, from: u32, at: Picos, flight: Flight) {
        let first = rack * self.rack_size;
        for to in (first..self.workers.min(first + self.rack_size)).filter(|&to| to != from) {
            self.arrive(to, at, flight);
        }
    }

    fn egress(&mut self, flight: Flight) {
        let src = flight.message.src;
        let index = host(src, EGRESS);
        if self.ends_at_switch(flight.message) {
            self.reach_switch(index, self.now, self.latency, flight);
        } else {
            self.link(index, self.now, flight);
        }
    }

    /// A link on the way: the event is the head's entry into it, which is also its entry into what
    /// follows.
    fn link(&mut self, index: usize, at: Picos, flight: Flight) {
        if self.stations[index].stage == Stage::Uplink && flight.message.dest == Dest::Switch {
            return self.reach_switch(index, at, 0, flight);
        }
        let (start, tail) = self.stations[index].serve(at, flight);
        self.push(index, start, Flight { tail, ..flight });
    }

    /// The last link before the switch, which acts on the first bit (cut-through) or on the last.
    fn reach_switch(&mut self, index: usize, at: Picos, latency: Picos, flight: Flight) {
        let (start, tail) = self.stations[index].serve(at, flight);
        let tail = tail + latency;
        self.push(index, if self.cut_through { start + latency } else { tail }, Flight { tail, ..flight });
    }

    /// The last link: the event is the delivery.
    fn arrive(&mut self, to: u32, at: Picos, flight: Flight) {
        let index = host(to, INGRESS);
        let (_, tail) = self.stations[index].serve(at, flight);
        self.push(index, tail, Flight { tail, ..flight });
    }

    /// Keeps a processor or codec busy for `span`; the event is its end.
    fn occupy(&mut self, index: usize, span: Picos, flight: Flight) {
        let station = &mut self.stations[index];
        station.free = station.free.max(self.now) + span;
        let end = station.free;
        self.push(index, end, flight);
    }

    fn push(&mut self, index: usize, at: Picos, flight: Flight) {
        let pending = &mut self.stations[index].pending;
        debug_assert!(
            pending.back().is_none_or(|last| last.at <= at),
            "a station's events are ordered in time"
        );
        if pending.is_empty() {
            self.queue.push(Reverse((at, self.seq, index as u32)));
        }
        pending.push_back(Pending { at, seq: self.seq, flight });
        self.seq += 1;
    }

    fn pop(&mut self) -> Option<(Stage, u32, Flight)> {
        let mut top = self.queue.peek_mut()?;
        let Reverse((at, _, index)) = *top;
        let station = &mut self.stations[index as usize];
        let done = station.pending.pop_front().expect("a station in the heap has work");
        match station.pending.front() {
            Some(next) => *top = Reverse((next.at, next.seq, index)),
            None => drop(PeekMut::pop(top)),
        }
        self.now = at;
        self.events += 1;
        Some((station.stage, station.owner, done.flight))
    }
}

impl Station {
    /// Serves a message whose head is here at `at`; returns when it starts and when its last bit is
    /// out.
    ///
    /// A fast link after a slow one is not held up by it: it has room for others between the bits
    /// that trickle in, but keeps their order.
    fn serve(&mut self, at: Picos, flight: Flight) -> (Picos, Picos) {
        let start = at.max(self.free);
        self.free = start + transmission(flight.bits, self.rate);
        self.tail = self.free.max(flight.tail).max(self.tail);
        self.bits += flight.bits;
        (start, self.tail)
    }
}

const fn host(host: u32, stage: usize) -> usize {
    host as usize * HOST_STAGES.len() + stage
}
