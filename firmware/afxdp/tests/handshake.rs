//! The handshake between shims: connections are compressed if both ends said on their SYNs that they restore, and cost
//! nothing if one did not.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::mpsc::channel;
use std::time::Instant;

use gradwire_testbench::judge::frame::repair_checksums;
use rustix::process::Signal;

use support::frames::{ACK, SYN, segment, syns};
use support::injector::Injector;
use support::shim::Shim;
use support::traffic::{Capturing, TAG, Transfer, assert_within_bound, connect_tagged, gradients, transfer};
use support::{Lab, PATIENCE, Plan, Side};

const ROUTED: &str = "[[rule]]\ntos = 0x28\n";
const IN_PLACE: &str = "[[rule]]\ntos = 0x28\nframing = \"in-place\"\n";
const ADDRESSES: [&str; 2] = ["10.77.0.2", "fd77::2"];
/// NOP, NOP, kind, length, ExID, version 1 and routed framing, codecs 1 and 2.
const OFFER: [u8; 12] = [1, 1, 253, 10, 0x67, 0x77, 0x11, 3, 0, 0, 0, 0];

fn lab() -> Option<Lab> {
    Lab::new(Plan::default())
}

fn compressed(shim: &Shim) -> u64 {
    shim.outcomes()[0].changed["compressed"]
}

#[test]
fn two_shims_agree() {
    for config in [ROUTED, IN_PLACE] {
        let Some(lab) = lab() else { return };
        let shims = Side::BOTH.map(|side| Shim::start(&lab, side, config));
        let hosts = ["ha", "hb"].map(|host| Capturing::start(&lab, host));
        for address in ADDRESSES {
            let data = gradients(2_000_000);
            let (got, _) = transfer(&lab, address, TAG, &data);
            assert_within_bound(&data, &got);
        }
        // One for each address, and those that a host sent again because the machine was busy.
        let sent = ["ha", "hb"].map(|host| 2 + lab.syns_again(host));
        for ((shim, host), [own, far]) in shims.iter().zip(hosts).zip([sent, [sent[1], sent[0]]]) {
            let [egress, ingress] = shim.outcomes();
            let (told, heard) = (egress.changed["told"], ingress.changed["heard"]);
            assert!((2..=own).contains(&told) && (2..=far).contains(&heard), "{egress:?} {ingress:?}");
            assert_eq!(egress.untouched["not-agreed"] + egress.untouched["parameters-differ"], 0);
            // No host sees what its shim added or took out.
            let capture = host.finish();
            for (from, sent) in ["ha", "hb"].into_iter().zip(sent) {
                let seen = syns(&capture, lab.mac(from)).count() as u64;
                assert!((1..sent).contains(&seen), "{seen} SYNs over IPv4 from {from}");
            }
            for frame in capture.frames.iter().map(|frame| &frame.bytes) {
                assert!(!frame[14..].windows(4).any(|four| four == &OFFER[2..6]), "{frame:02x?}");
            }
        }
        assert!(compressed(&shims[0]) > 1_000);
        let queue = &shims[0].status().queues[0];
        let listed = queue.flows.iter().filter(|flow| flow.handshake == "agreed").count();
        assert_eq!((queue.flows_known["agreed"], listed), (2, 2));
    }
}

/// Not one frame is compressed for nothing, and nothing is sent again for it.
#[test]
fn one_end_without_a_shim() {
    for (side, config) in [(Side::A, ROUTED), (Side::B, ROUTED), (Side::A, IN_PLACE)] {
        let Some(lab) = lab() else { return };
        let shim = Shim::start(&lab, side, config);
        for address in ADDRESSES {
            for len in [1_000_000, 20_000_000] {
                let data = gradients(len);
                let (got, plain) = transfer(&lab, address, 0, &data);
                assert!(got == data);
                let (got, time) = transfer(&lab, address, TAG, &data);
                assert!(got == data, "untouched");
                eprintln!("  shim {side:?}, {address}, {len} bytes: untagged {plain:?}, tagged {time:?}");
            }
        }
        let [egress, ingress] = shim.outcomes();
        assert_eq!((egress.changed["compressed"], ingress.changed["restored"]), (0, 0));
        if side == Side::A {
            assert!((4..=4 + lab.syns_again("ha")).contains(&egress.changed["told"]), "{egress:?}");
            assert!(egress.untouched["not-agreed"] > 1_000, "{egress:?}");
        }
    }
}

/// A connection from A, to a listener at B without a tag: Linux answers without a tag, too.
fn to_an_untagged_listener(lab: &Lab, data: &[u8]) -> Vec<u8> {
    let (tell, told) = channel();
    let receiver = lab.enter("hb", move || {
        let listener = TcpListener::bind("10.77.0.2:0").unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        let mut got = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
        got
    });
    let (to, data) = (told.recv().unwrap(), data.to_vec());
    let sender = lab.enter("ha", move || {
        let mut stream = connect_tagged(to, TAG).unwrap();
        stream.write_all(&data).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    sender.join().unwrap();
    receiver.join().unwrap()
}

#[test]
fn an_untagged_listener_answers_too() {
    let Some(lab) = lab() else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(2_000_000);
    assert_within_bound(&data, &to_an_untagged_listener(&lab, &data));
    assert!(compressed(&shims[0]) > 500, "{:?}", shims[0].outcomes());
    assert!((1..=1 + lab.syns_again("hb")).contains(&shims[1].outcomes()[0].changed["told"]));
}

/// A box that takes out what it does not know, and one that drops SYNs for it.
#[test]
fn boxes_that_do_not_like_the_option() {
    for rule in ["reset tcp option 253", "tcp flags & syn == syn @th,160,32 0x0101fd0a drop"] {
        let Some(lab) = lab() else { return };
        let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
        lab.nft("add table bridge box");
        lab.nft("add chain bridge box wire { type filter hook forward priority 0 ; }");
        lab.nft(&format!("add rule bridge box wire {rule}"));
        let data = gradients(500_000);
        let (got, time) = transfer(&lab, ADDRESSES[0], TAG, &data);
        assert!(got == data, "{rule}: untouched");
        let [egress, _] = shims[0].outcomes();
        eprintln!("  {rule}: {time:?}, {egress:?}");
        assert_eq!(egress.changed["compressed"], 0);
        // The third transmission goes without.
        assert!(egress.changed["told"] >= 1 && egress.changed["told"] <= 2);
        assert!(egress.untouched["not-agreed"] > 0);
    }
}

/// Its flow table is gone, so what began before goes untouched to the end; what begins then is compressed.
#[test]
fn a_restarted_shim_leaves_old_connections_alone() {
    for config in [ROUTED, "[[rule]]\ntos = 0x28\ngrid = \"payload\"\n"] {
        let Some(lab) = lab() else { return };
        let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, config));
        let data = gradients(8_000_000);
        let running = Transfer::start_held(&lab, ADDRESSES[0], TAG, &data, 2_000_000);
        running.wait_for(1_000_000);
        assert!(compressed(&shims[0]) > 100);
        shims[0].signal(Signal::KILL);
        shims[0].wait();
        shims[0] = Shim::start(&lab, Side::A, config);
        let (got, _) = running.finish();
        assert_within_bound(&data, &got);
        assert_eq!(compressed(&shims[0]), 0);
        let (got, _) = transfer(&lab, ADDRESSES[0], TAG, &data);
        assert_within_bound(&data, &got);
        assert!(compressed(&shims[0]) > 1_000);
    }
}

/// In-place frames carry no parameters: while a connection lives that was told some, they stay.
#[test]
fn a_reload_that_would_break_a_connection_is_refused() {
    let Some(lab) = lab() else { return };
    let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, IN_PLACE));
    let other = format!("{IN_PLACE}bound = 8\n");
    let data = gradients(4_000_000);
    let running = Transfer::start_held(&lab, ADDRESSES[0], TAG, &data, 1_000_000);
    running.wait_for(500_000);
    for shim in &mut shims {
        shim.reload_refused(&other);
        assert!(shim.log().contains("the in-place rule of 1 connections changed"), "{}", shim.log());
        // What keeps the rule is taken over.
        shim.reload(&format!("{IN_PLACE}[[rule]]\ntos = 0x50\n"));
    }
    let (got, _) = running.finish();
    assert_within_bound(&data, &got);
}

/// A SYN leaves on one queue, and its answer comes up on another: another thread hears it, before the host can.
#[test]
fn an_answer_on_another_queue_is_heard() {
    let Some(lab) = Lab::new(Plan { queues: 4, ..Plan::default() }) else { return };
    // The kernel of host A knows nothing of these connections, and would refuse them.
    for command in [
        "add table ip quiet",
        "add chain ip quiet out { type filter hook output priority 0 ; }",
        "add rule ip quiet out tcp flags & rst == rst drop",
    ] {
        assert!(lab.command_in("ha", "nft").arg(command).status().unwrap().success());
    }
    let shim = Shim::start(&lab, Side::A, ROUTED);
    let data = gradients(1_400);
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let end = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < end, "{what}: {:?}", shim.status());
        }
    };
    // Each is bound once: the kernel takes a moment to let go of a queue.
    let host = Injector::on(&lab, "ha", "eth0", 0);
    let wires = [0, 1, 2, 3].map(|queue| Injector::on(&lab, "w", "a", queue));
    for (connection, queue) in [(0u16, 1), (1, 2), (2, 3), (3, 0)] {
        let ports = |frame: &mut Vec<u8>, from_b: bool| {
            let ports = [40_000 + connection, 5400].map(u16::to_be_bytes);
            let ports = if from_b { [ports[1], ports[0]] } else { ports };
            frame[34..38].copy_from_slice(&ports.concat());
            repair_checksums(frame, 0);
        };
        let from_host = |flags: u8, seq: u32, payload: &[u8]| {
            let mut frame = segment(&lab, flags, seq, payload);
            ports(&mut frame, false);
            frame
        };
        let told = shim.outcomes()[0].changed["told"];
        host.send(from_host(SYN, 0, &[]));
        until("the SYN tells", &|| shim.outcomes()[0].changed["told"] > told);

        // Untagged, as listeners answer; it acknowledges sequence number 0.
        let mut answer = segment(&lab, SYN | ACK, 7, &[]);
        answer[..12].rotate_left(6);
        answer[26..34].rotate_left(4);
        answer[15] = 0;
        answer.extend(OFFER);
        answer[17] += 12;
        answer[46] += 3 << 4;
        ports(&mut answer, true);
        let heard =
            || shim.status().queues.iter().map(|queue| queue.ingress.changed["heard"]).collect::<Vec<_>>();
        let before = heard();
        wires[queue].send(answer);
        until("the answer is heard", &|| heard() != before);
        assert_eq!(heard()[queue], before[queue] + 1);

        let before = compressed(&shim);
        host.send(from_host(ACK, 1, &data));
        until("compressed", &|| compressed(&shim) > before);
    }
    host.finish();
    wires.into_iter().for_each(Injector::finish);
    let untouched = &shim.outcomes()[0].untouched;
    assert_eq!(untouched["not-agreed"], 0, "{untouched:?}");
}
