//! Corrupt and hostile frames on the wire: dropped and counted, nothing wrong delivered, no growth.

mod support;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_ip_tos;

use support::frames::{L4_AT, compressed};
use support::injector::{Injector, Random};
use support::shim::Shim;
use support::traffic::{Capturing, TAG, Transfer, assert_within_bound, gradients, transfer};
use support::{Lab, PATIENCE, Plan, Side};

const ROUTED: &str = "[[rule]]\ntos = 0x28\nhandshake = \"off\"\n";

/// Every compressed datagram with every byte changed behind the IP header, one at a time.
#[test]
fn corrupt_datagrams_are_dropped_and_counted() {
    const DATAGRAMS: usize = 8;
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let (tell, told) = std::sync::mpsc::channel();
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let receiver = lab.enter("hb", move || {
        let socket = UdpSocket::bind("10.77.0.2:5400").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        tell.send(()).unwrap();
        let (mut got, mut buffer) = (Vec::new(), [0; 2048]);
        loop {
            match socket.recv(&mut buffer) {
                Ok(len) => got.push(buffer[..len].to_vec()),
                Err(_) if stop.load(Ordering::Relaxed) => return got,
                Err(_) => {}
            }
        }
    });
    told.recv().unwrap();
    let data = gradients(DATAGRAMS * 1200);
    let capturing = Capturing::start(&lab, "w");
    let sent = data.clone();
    let sender = lab.enter("ha", move || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        set_ip_tos(&socket, TAG).unwrap();
        for datagram in sent.chunks(1200) {
            socket.send_to(datagram, "10.77.0.2:5400").unwrap();
        }
    });
    sender.join().unwrap();
    let end = Instant::now() + PATIENCE;
    while shims[1].outcomes()[1].changed["restored"] < DATAGRAMS as u64 {
        assert!(Instant::now() < end, "not all datagrams were restored");
    }
    let frames = compressed(&capturing.finish(), lab.mac("ha"));
    assert!(frames.len() >= DATAGRAMS);

    let injector = Injector::start(&lab, Side::B);
    let (mut random, mut injected) = (Random(0x1234_5678), 0);
    let dropped = || shims[1].outcomes()[1].dropped.values().sum::<u64>();
    for frame in frames.iter().take(DATAGRAMS) {
        for at in L4_AT..frame.len() {
            let mut frame = frame.clone();
            frame[at] ^= 1 << random.below(8);
            injector.send(frame);
            injected += 1;
        }
        // No more at once than a ring holds.
        let end = Instant::now() + PATIENCE;
        while dropped() < injected && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }
    injector.finish();
    done.store(true, Ordering::Relaxed);
    let got = receiver.join().unwrap();
    eprintln!("  {injected} corrupt frames: {:?}", shims[1].outcomes()[1].dropped);
    assert_eq!(dropped(), injected);
    assert_eq!(got.len(), DATAGRAMS, "what was sent arrived once, and nothing else did");
    assert_within_bound(&data, &got.concat());
}

/// Corrupt copies of a stream's own segments, beside the stream.
#[test]
fn corrupt_segments_of_a_live_stream() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(80_000_000);
    let running = Transfer::start(&lab, "10.77.0.2", TAG, data.clone(), usize::MAX);
    let injector = Injector::start(&lab, Side::B);
    let (mut random, mut injected) = (Random(0x1357_9bdf), 0);
    for part in 1..=4 {
        let capturing = Capturing::start(&lab, "w");
        running.wait_for(part * data.len() / 10);
        let frames = compressed(&capturing.finish(), lab.mac("ha"));
        for frame in frames.iter().rev().take(300) {
            let mut frame = frame.clone();
            let at = L4_AT + random.below(frame.len() - L4_AT);
            frame[at] ^= 1 << random.below(8);
            injector.send(frame);
            injected += 1;
        }
    }
    injector.finish();
    let (got, _) = running.finish();
    assert_within_bound(&data, &got);
    let [_, ingress] = shims[1].outcomes();
    eprintln!("  {injected} corrupt segments: {:?}", ingress.dropped);
    assert!(injected >= 300);
    // Those beyond a full ring, or while a thread waits for its processor, do not come to the engine.
    let dropped = ingress.dropped.values().sum::<u64>();
    assert!(dropped <= injected && 10 * dropped >= 9 * injected, "{dropped} of {injected}");
}

/// Anything at all, as fast as the wire takes it, while gradients and pings go by.
#[test]
fn hostile_frames_at_line_rate() {
    const FRAMES: u64 = 400_000;
    for config in [ROUTED, "[[rule]]\ntos = 0x28\nframing = \"in-place\"\n"] {
        let Some(lab) = Lab::new(Plan::default()) else { return };
        let shims = Side::BOTH.map(|side| Shim::start(&lab, side, config));
        let capturing = Capturing::start(&lab, "w");
        transfer(&lab, "10.77.0.2", TAG, &gradients(400_000));
        transfer(&lab, "fd77::2", TAG, &gradients(400_000));
        let source = lab.mac("ha");
        let mut frames = capturing.finish().frames;
        frames.retain(|frame| frame.bytes[6..12] == source);
        // Every pool is touched, every table full before.
        let before = shims[1].resident_kib();
        let injector = Injector::start(&lab, Side::B);
        let injecting = thread::spawn(move || {
            let mut random = Random(0xdead_beef);
            for _ in 0..FRAMES {
                let mut frame = frames[random.below(frames.len())].bytes.clone();
                for _ in 0..random.below(6) {
                    let at = 12 + random.below(frame.len() - 12);
                    frame[at] = random.next() as u8;
                }
                if random.below(8) == 0 {
                    frame.truncate(14 + random.below(frame.len() - 14));
                }
                injector.send(frame);
            }
            injector.finish();
        });
        let data = gradients(4_000_000);
        let mut transfers = 0;
        while !injecting.is_finished() {
            let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
            assert_within_bound(&data, &got);
            transfers += 1;
        }
        injecting.join().unwrap();
        let after = shims[1].resident_kib();
        let [_, ingress] = shims[1].outcomes();
        let dropped = ingress.dropped.values().sum::<u64>();
        eprintln!(
            "  {dropped} dropped {:?}; {transfers} transfers beside; {before} and {after} KiB",
            ingress.dropped
        );
        assert!(dropped > FRAMES / 20, "{ingress:?}");
        assert!(after <= before + 512, "memory grew from {before} to {after} KiB");
        lab.assert_pings("10.77.0.2");
    }
}
