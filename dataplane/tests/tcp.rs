//! Real TCP over the engines: two hosts with smoltcp's stack, a wire that loses frames, and peers
//! that do not restore. Time is simulated.

use std::collections::VecDeque;

use gradwire::engine::{CapabilityTable, Egress, Ingress, Millis};
use gradwire::flow::capabilities::Slot;
use gradwire::flow::trust::TrustState;
use gradwire::kernels::Kernel;
use gradwire::rules::{Alignment, DEFAULT_MARK, Framing, Rule, Rules};
use gradwire::verdict::{Change, Counters, PassReason, Verdict};
use gradwire::wire::capability::CAPABILITY_LEN;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Packet, Ipv6Packet};

use crate::common;

const VALUES: usize = 100_000;
const LINK: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// A port: IP packets in and out; its stack's packets are tagged on the way out.
struct Port {
    mtu: usize,
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

struct Rx(Vec<u8>);
struct Tx<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        if packet[0] >> 4 == 4 {
            packet[1] = 0x28;
            Ipv4Packet::new_unchecked(&mut packet).fill_checksum();
        } else {
            Ipv6Packet::new_unchecked(&mut packet).set_traffic_class(0x28);
        }
        self.0.push_back(packet);
        result
    }
}

impl Device for Port {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        self.received.pop_front().map(|packet| (Rx(packet), Tx(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

/// A host with one socket and a NIC with both engines.
struct Host {
    port: Port,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    egress: Egress<4>,
    ingress: Ingress,
    capabilities: CapabilityTable<[Slot; 16]>,
    /// Without it the NIC is an ordinary one, for receiving.
    restores: bool,
}

impl Host {
    fn new(address: IpAddress, mtu: usize, window: usize, rule: Rule) -> Self {
        let mut port = Port { mtu, received: VecDeque::new(), sent: VecDeque::new() };
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut port, Instant::ZERO);
        interface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(address, 24)).unwrap());
        let buffer = || tcp::SocketBuffer::new(vec![0; window]);
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        let rules = Rules::new(&[rule], DEFAULT_MARK).unwrap();
        let ingress = Ingress::new(rules.clone(), Kernel::detect(), mtu as u16);
        Self {
            port,
            interface,
            sockets,
            socket,
            egress: Egress::new(rules, Kernel::detect(), mtu as u16, 3),
            ingress,
            capabilities: CapabilityTable::new(3),
            restores: true,
        }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    /// The frames that leave the NIC.
    fn transmit(&mut self, now: Millis) -> Vec<Vec<u8>> {
        let packets = core::mem::take(&mut self.port.sent);
        let restores = self.restores;
        let frames = packets.into_iter().map(|packet| {
            let ethertype = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
            let frame = [&LINK[..], &ethertype, &packet].concat();
            if !restores {
                return frame;
            }
            let mut out = vec![0; frame.len() + CAPABILITY_LEN];
            match self.egress.process(&frame, &mut out, now, &self.capabilities) {
                Verdict::Changed { len, .. } => out[..len].to_vec(),
                _ => frame,
            }
        });
        frames.collect()
    }

    fn receive(&mut self, frame: &[u8]) {
        let mut out = vec![0; self.port.mtu + 14];
        if !self.restores {
            self.port.received.push_back(frame[14..].to_vec());
            return;
        }
        let frame = match self.ingress.process(frame, &mut out, &self.capabilities) {
            Verdict::Untouched(_) => frame,
            Verdict::Changed { len, .. } => &out[..len],
            Verdict::Dropped(_) => return,
        };
        self.port.received.push_back(frame[14..].to_vec());
    }
}

struct Outcome {
    received: Vec<u8>,
    sender: Counters,
    trust: TrustState,
    elapsed: Millis,
}

struct Scenario {
    v6: bool,
    mtu: usize,
    window: usize,
    /// Of 1000 frames either way.
    lost: u64,
    /// Milliseconds from one end to the other.
    latency: usize,
    /// Whether the receiver has a NIC that restores at this time.
    restores: fn(now: Millis) -> bool,
    /// At both ends.
    rule: Rule,
    /// Whether the sender closes behind its last byte, which then leaves with a FIN.
    closes: bool,
}

const CLEAN: Scenario = Scenario {
    v6: false,
    mtu: 1500,
    window: 65_535,
    lost: 0,
    latency: 1,
    restores: |_| true,
    rule: Rule::STATIC,
    closes: false,
};

/// Moves `payload` from one host to the other.
fn transfer(scenario: &Scenario, payload: &[u8]) -> Outcome {
    let address = |host: u16| match scenario.v6 {
        false => IpAddress::v4(10, 40, 0, host as u8),
        true => IpAddress::v6(0xfd40, 0, 0, 0, 0, 0, 0, host),
    };
    let [mut sender, mut receiver] =
        [1, 2].map(|host| Host::new(address(host), scenario.mtu, scenario.window, scenario.rule));
    receiver.socket().listen(5400).unwrap();
    let (handle, remote) = (sender.socket, (address(2), 5400));
    sender
        .sockets
        .get_mut::<tcp::Socket<'_>>(handle)
        .connect(sender.interface.context(), remote, 40_000)
        .unwrap();

    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut survives = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % 1000 >= scenario.lost
    };
    let mut outcome_trust = TrustState::Trusted;
    let (mut written, mut received) = (0, vec![]);
    for now in (0..600_000).step_by(scenario.latency).map(Millis) {
        receiver.restores = (scenario.restores)(now);
        for host in [&mut sender, &mut receiver] {
            let now = Instant::from_millis(now.0 as i64);
            host.interface.poll(now, &mut host.port, &mut host.sockets);
        }
        if sender.socket().can_send() && written < payload.len() {
            written += sender.socket().send_slice(&payload[written..]).unwrap();
            if scenario.closes && written == payload.len() {
                sender.socket().close();
            }
        }
        while receiver.socket().can_recv() {
            receiver.socket().recv(|bytes| (bytes.len(), received.extend_from_slice(bytes))).unwrap();
        }
        if let Some((_, flow)) = sender.egress.flows().iter().next() {
            outcome_trust = flow.trust();
        }
        if received.len() == payload.len() {
            let sender = sender.egress.counters().clone();
            return Outcome { received, sender, trust: outcome_trust, elapsed: now };
        }
        for frame in sender.transmit(now) {
            if survives() {
                receiver.receive(&frame);
            }
        }
        for frame in receiver.transmit(now) {
            if survives() {
                sender.receive(&frame);
            }
        }
    }
    panic!("stalled: {} of {} bytes, {:?}", received.len(), payload.len(), sender.egress.counters());
}

fn assert_within(payload: &[u8], received: &[u8]) {
    assert_eq!(payload.len(), received.len());
    for (at, (f, g)) in payload.chunks_exact(4).zip(received.chunks_exact(4)).enumerate() {
        let [f, g] = [f, g].map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap())));
        assert!((f - g).abs() < 1.0 / 1024.0, "value {at}: {f} -> {g}");
    }
}

fn gradient() -> Vec<u8> {
    common::le_bytes(&common::gradient(VALUES))
}

#[test]
fn a_clean_transfer_is_compressed_and_within_the_bound() {
    for (v6, mtu) in [(false, 1500), (true, 1500), (false, 1449), (true, 9001)] {
        let payload = gradient();
        let outcome = transfer(&Scenario { v6, mtu, ..CLEAN }, &payload);
        assert_within(&payload, &outcome.received);
        let segments = payload.len() / (mtu - 60);
        assert!(
            outcome.sender.changed(Change::Compressed) as usize >= segments * 9 / 10,
            "{:?}",
            outcome.sender
        );
        assert_eq!(outcome.sender.passed(PassReason::Resent), 0);
        assert_eq!(outcome.sender.passed(PassReason::AlignmentUnknown), 0);
    }
}

#[test]
fn ordinary_loss_keeps_the_bound_and_the_trust() {
    for (mtu, lost) in [(1500, 10), (1449, 30), (1449, 50)] {
        let payload = gradient();
        let outcome = transfer(&Scenario { mtu, lost, window: 8_192, ..CLEAN }, &payload);
        assert_within(&payload, &outcome.received);
        assert!(outcome.sender.passed(PassReason::Resent) > 0, "{:?}", outcome.sender);
        assert_eq!(outcome.sender.passed(PassReason::Bypassed), 0, "{lost}: {:?}", outcome.sender);
        assert_eq!(outcome.trust, TrustState::Trusted);
    }
}

/// A peer without a decompressor costs resends, not the connection.
#[test]
fn a_peer_that_never_restores_ends_in_bypass() {
    let payload = gradient();
    let outcome = transfer(&Scenario { restores: |_| false, ..CLEAN }, &payload);
    assert_eq!(payload, outcome.received);
    assert_ne!(outcome.trust, TrustState::Trusted);
    assert!(outcome.sender.passed(PassReason::Bypassed) > 0);
    // One window is lost until the first time-out.
    assert!(outcome.sender.changed(Change::Compressed) < 70, "{:?}", outcome.sender);
    assert!(outcome.elapsed < Millis(10_000), "{:?}", outcome.elapsed);
}

#[test]
fn a_peer_that_fails_for_a_while_is_trusted_again() {
    let payload = gradient().repeat(40);
    let restores = |now: Millis| !(20..8_000).contains(&now.0);
    let outcome = transfer(&Scenario { restores, window: 16_384, latency: 20, ..CLEAN }, &payload);
    assert_within(&payload, &outcome.received);
    assert!(outcome.sender.passed(PassReason::Bypassed) > 0, "{:?}", outcome.sender);
    assert_eq!(outcome.trust, TrustState::Trusted, "{:?} {:?}", outcome.elapsed, outcome.sender);
}

/// The stream's last segment has a FIN, behind which its sender sends again what the peer refused.
#[test]
fn a_peer_that_never_restores_gets_streams_that_end() {
    for alignment in Alignment::ALL {
        let rule = Rule { alignment, ..Rule::STATIC };
        for values in [100, 1_000, VALUES] {
            let payload = common::le_bytes(&common::gradient(values));
            let outcome = transfer(&Scenario { restores: |_| false, rule, closes: true, ..CLEAN }, &payload);
            assert_eq!(payload, outcome.received, "{alignment:?} {values}");
            assert!(outcome.sender.changed(Change::Compressed) > 0, "{:?}", outcome.sender);
            assert!(outcome.elapsed < Millis(10_000), "{:?}", outcome.elapsed);
        }
    }
}

#[test]
fn two_ends_that_agree_compress() {
    for (v6, framing) in [(false, Framing::Routed), (true, Framing::Routed), (false, Framing::InPlace)] {
        let payload = gradient();
        let rule = Rule { framing, ..Rule::DEFAULT };
        let agreed = transfer(&Scenario { v6, rule, ..CLEAN }, &payload);
        assert_within(&payload, &agreed.received);
        let rule = Rule { framing, ..Rule::STATIC };
        let configured = transfer(&Scenario { v6, rule, ..CLEAN }, &payload);
        let compressed = |outcome: &Outcome| outcome.sender.changed(Change::Compressed);
        assert_eq!(compressed(&agreed), compressed(&configured), "{:?}", agreed.sender);
        assert_eq!(
            (agreed.sender.changed(Change::OptionAdded), configured.sender.changed(Change::OptionAdded)),
            (1, 0)
        );
        assert_eq!(agreed.elapsed, configured.elapsed, "no round trip, no byte of the stream");
    }
}

/// SYNs are lost, too.
#[test]
fn a_handshake_under_loss_keeps_the_bound() {
    for lost in [30, 200] {
        let payload = common::le_bytes(&common::gradient(VALUES / 10));
        let outcome = transfer(&Scenario { lost, rule: Rule::DEFAULT, ..CLEAN }, &payload);
        assert_within(&payload, &outcome.received);
        assert_eq!(outcome.sender.passed(PassReason::Bypassed), 0);
    }
}

/// With the far end's gradwire missing, a transfer takes as long as one that is not tagged, to the
/// millisecond.
#[test]
fn a_peer_without_gradwire_costs_nothing() {
    for framing in Framing::ALL {
        let payload = gradient();
        let rule = Rule { framing, ..Rule::DEFAULT };
        let alone = transfer(&Scenario { restores: |_| false, rule, ..CLEAN }, &payload);
        let untagged = Rule { tos: 0x50, ..rule };
        let plain = transfer(&Scenario { restores: |_| false, rule: untagged, ..CLEAN }, &payload);
        assert_eq!(payload, alone.received);
        assert_eq!(alone.sender.changed(Change::Compressed), 0);
        assert_eq!(alone.sender.passed(PassReason::Resent), 0);
        assert!(alone.sender.passed(PassReason::NotNegotiated) > 100);
        assert_eq!(alone.elapsed, plain.elapsed);
    }
}
