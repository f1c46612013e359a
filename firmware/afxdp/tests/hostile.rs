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

/// Frames at once that no ring on the way is too small for, however late the kernel's threads get
/// their processors.
const AT_ONCE: u64 = 64;

/// Every compressed datagram with every byte changed behind the IP header, one at a time.
#[test]
fn corrupt_datagrams_are_dropped_and_counted() {
    const DATAGRAMS: usize = 8;
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let (tx, rx) = std::sync::mpsc::channel();
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let receiver = lab.enter("hb", move || {
        let socket = UdpSocket::bind("10.77.0.2:5400").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        tx.send(()).unwrap();
        let (mut got, mut buffer) = (Vec::new(), [0; 2048]);
        loop {
            match socket.recv(&mut buffer) {
                Ok(len) => got.push(buffer[..len].to_vec()),
                Err(_) if stop.load(Ordering::Relaxed) => return got,
                Err(_) => {}
            }
        }
    });
    rx.recv().unwrap();
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
    let wait_for = |injected| {
        let end = Instant::now() + PATIENCE;
        while dropped() < injected && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    };
    for frame in frames.iter().take(DATAGRAMS) {
        for at in L4_AT..frame.len() {
            let mut frame = frame.clone();
            frame[at] ^= 1 << random.below(8);
            injector.send(frame);
            injected += 1;
            if injected % AT_ONCE == 0 {
                wait_for(injected);
            }
        }
    }
    wait_for(injected);
    injector.finish();
    done.store(true, Ordering::Relaxed);
    let got = receiver.join().unwrap();
    eprintln!("  {injected} corrupt frames: {:?}", shims[1].outcomes()[1].dropped);
    assert_eq!(dropped(), injected);
    assert_eq!(got.len(), DATAGRAMS, "what was sent arrived once, and nothing else did");
    assert_within_bound(&data, &got.concat());
}

/// Corrupt copies of a stream's own segments: beside the stream, where a ring may be full, and
/// while it pauses, where none is.
#[test]
fn corrupt_segments_of_a_live_stream() {
    const PART: usize = 8_000_000;
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(8 * PART);
    let (sender, parts) = std::sync::mpsc::channel();
    let running = Transfer::start_in_pieces(&lab, "10.77.0.2", TAG, parts);
    let injector = Injector::start(&lab, Side::B);
    let dropped = || shims[1].outcomes()[1].dropped.values().sum::<u64>();
    let (mut random, mut injected, mut sent) = (Random(0x1357_9bdf), 0, 0);
    let mut parts = data.chunks(PART);
    let mut send_part = || {
        let part = parts.next().unwrap();
        sent += part.len();
        sender.send(part.to_vec()).unwrap();
        sent
    };
    for _ in 0..4 {
        let capturing = Capturing::start(&lab, "w");
        running.wait_for(send_part());
        let mut frames = compressed(&capturing.finish(), lab.mac("ha"));
        frames.reverse();
        assert!(frames.len() >= 300, "{} compressed frames", frames.len());
        let mut inject = |frame: &Vec<u8>| {
            let mut frame = frame.clone();
            let at = L4_AT + random.below(frame.len() - L4_AT);
            frame[at] ^= 1 << random.below(8);
            injector.send(frame);
            injected += 1;
        };
        let before = dropped();
        for frames in frames[..300].chunks(AT_ONCE as usize) {
            let all = dropped() + frames.len() as u64;
            frames.iter().for_each(&mut inject);
            let end = Instant::now() + PATIENCE;
            while dropped() < all && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
        assert_eq!(dropped() - before, 300, "{:?}", shims[1].outcomes()[1].dropped);
        let all = send_part();
        frames[..300].iter().for_each(&mut inject);
        running.wait_for(all);
    }
    injector.finish();
    drop(sender);
    let (got, _) = running.finish();
    assert_within_bound(&data, &got);
    eprintln!("  {injected} corrupt segments: {:?}", shims[1].outcomes()[1].dropped);
    assert!(dropped() <= injected, "{} of {injected}", dropped());
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
        let (mut random, data) = (Random(0xdead_beef), gradients(4_000_000));
        let (mut transfers, end) = (0, Instant::now() + PATIENCE);
        loop {
            let inject = || {
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
            };
            thread::scope(|scope| {
                let injecting = scope.spawn(inject);
                while !injecting.is_finished() {
                    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
                    assert_within_bound(&data, &got);
                    transfers += 1;
                }
            });
            // Most frames of a flood are lost in full rings, on a busy machine nearly all.
            if shims[1].outcomes()[1].dropped.values().sum::<u64>() > FRAMES / 20 || Instant::now() > end {
                break;
            }
        }
        injector.finish();
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
