//! The handshake between shims: connections are compressed if both ends said on their SYNs that
//! they restore, and cost nothing if one did not.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use gradwire_testbench::verify::frame::repair_checksums;
use gradwire_xdp::telemetry::KeptStats;
use rustix::process::Signal;

use support::frames::{ACK, FIN, L4_AT, SYN, segment, syns};
use support::injector::Injector;
use support::shim::Shim;
use support::traffic::{
    Capturing, TAG, Transfer, assert_within_bound, connect_tagged, gradients, set_tos, transfer,
};
use support::{Lab, PATIENCE, Plan, Side};

const ROUTED: &str = "[[rule]]\ntos = 0x28\n";
const IN_PLACE: &str = "[[rule]]\ntos = 0x28\nframing = \"in-place\"\n";
const ADDRESSES: [&str; 2] = ["10.77.0.2", "fd77::2"];
/// NOP, NOP, kind, length, ExID, version 1 and routed framing, codecs 1 and 2.
const OPTION: [u8; 12] = [1, 1, 253, 10, 0x67, 0x77, 0x11, 3, 0, 0, 0, 0];

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
            let (added, stripped) = (egress.changed["option-added"], ingress.changed["option-stripped"]);
            assert!((2..=own).contains(&added) && (2..=far).contains(&stripped), "{egress:?} {ingress:?}");
            assert_eq!(egress.untouched["not-negotiated"] + egress.untouched["parameters-differ"], 0);
            // No host sees what its shim added or took out.
            let capture = host.finish();
            for (from, sent) in ["ha", "hb"].into_iter().zip(sent) {
                let seen = syns(&capture, lab.mac(from)).count() as u64;
                assert!((1..sent).contains(&seen), "{seen} SYNs over IPv4 from {from}");
            }
            for frame in capture.frames.iter().map(|frame| &frame.bytes) {
                assert!(!frame[14..].windows(4).any(|four| four == &OPTION[2..6]), "{frame:02x?}");
            }
        }
        assert!(compressed(&shims[0]) > 1_000);
        let queue = &shims[0].status().queues[0];
        let listed = queue.flows.iter().filter(|flow| flow.handshake == "negotiated").count();
        assert_eq!((queue.flows_known["negotiated"], listed), (2, 2));
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
        let kept = shim.status().queues[0].kept;
        // By the bridge, as untagged frames: neither a frame with payload nor an acknowledgement of
        // one goes through the engines. With in-place framing, they do.
        let (by_engine, by_bridge) = (egress.untouched["not-negotiated"], kept.host.not_negotiated);
        let (acknowledgements, received) =
            (egress.untouched["no-payload"], ingress.untouched["not-compressed"]);
        let seen = match (side, config) {
            (Side::A, ROUTED) => by_engine == 0 && by_bridge > 1_000 && received < 100,
            (Side::A, _) => by_engine > 1_000 && by_bridge == 0,
            (Side::B, _) => acknowledgements == 0 && received < 100 && kept.network.not_negotiated > 1_000,
        };
        assert!(seen, "{egress:?} {ingress:?} {kept:?}");
        if side == Side::A {
            assert!((4..=4 + lab.syns_again("ha")).contains(&egress.changed["option-added"]), "{egress:?}");
        }
    }
}

/// A connection from A, to a listener at B without a tag: Linux answers without a tag, too.
fn to_an_untagged_listener(lab: &Lab, data: &[u8]) -> Vec<u8> {
    let (tx, rx) = channel();
    let receiver = lab.enter("hb", move || {
        let listener = TcpListener::bind("10.77.0.2:0").unwrap();
        tx.send(listener.local_addr().unwrap()).unwrap();
        let mut got = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
        got
    });
    let (to, data) = (rx.recv().unwrap(), data.to_vec());
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
    assert!((1..=1 + lab.syns_again("hb")).contains(&shims[1].outcomes()[0].changed["option-added"]));
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
        assert!(egress.changed["option-added"] >= 1 && egress.changed["option-added"] <= 2);
        assert!(shims[0].status().queues[0].kept.host.not_negotiated > 0);
    }
}

/// Its flow table is gone, so what began before goes untouched to the end; what begins then is
/// compressed.
#[test]
fn a_restarted_shim_leaves_old_connections_alone() {
    for config in [ROUTED, "[[rule]]\ntos = 0x28\nalignment = \"payload\"\n"] {
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

/// In-place frames carry no parameters: while a connection lives to which some were advertised,
/// they stay.
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

/// Each of several threads is asked, and each one's answer counts, however they meet: the
/// connection is known to one of them. Idle threads are woken together, and busy ones meet at any
/// moment.
#[test]
fn a_reload_that_would_break_a_connection_is_refused_by_every_thread() {
    const ROUNDS: usize = 200;
    for path in ["", "[path]\nbusy-poll-us = 20\n"] {
        let Some(lab) = Lab::new(Plan { queues: 4, ..Plan::default() }) else { return };
        let _sender = Shim::start(&lab, Side::A, IN_PLACE);
        let mut receiver = Shim::start(&lab, Side::B, &format!("{IN_PLACE}{path}"));
        assert_eq!(receiver.status().queues.len(), 4, "threads");
        let data = gradients(4_000_000);
        let running = Transfer::start_held(&lab, ADDRESSES[0], TAG, &data, 1_000_000);
        running.wait_for(500_000);
        for _ in 0..ROUNDS {
            receiver.reload_refused(&format!("{IN_PLACE}bound = 8\n{path}"));
        }
        let checked = receiver.log().matches("the in-place rule of 1 connections changed").count();
        assert_eq!(checked, ROUNDS, "{}", receiver.log());
        // Taken over, the other bound would make wrong values of what follows, with a right
        // checksum.
        let (got, _) = running.finish();
        assert_within_bound(&data, &got);
        assert!(receiver.outcomes()[1].changed["restored"] > 500);
    }
}

/// A listener answered a SYN that nobody sent, and has given up long since. Its shim cannot know
/// that at once, but it does not wait for ever.
#[test]
#[ignore = "takes four minutes: cargo test -p gradwire-xdp --test handshake -- --ignored"]
fn one_forged_syn_does_not_forbid_reloads() {
    let Some(lab) = lab() else { return };
    let mut shim = Shim::start(&lab, Side::B, IN_PLACE);
    let (tx, listens) = channel();
    let (stop, stopped) = channel::<()>();
    let listener = lab.enter("hb", move || {
        let listener = TcpListener::bind("10.77.0.2:5400").unwrap();
        set_tos(&listener, ADDRESSES[0].parse().unwrap(), TAG).unwrap();
        tx.send(()).unwrap();
        let _ = stopped.recv();
    });
    listens.recv().unwrap();
    // Host A knows of no connection, and resets what the listener answers.
    let host = Injector::on(&lab, "ha", "eth0", 0);
    let end = Instant::now() + PATIENCE;
    for port in 40_000.. {
        assert!(Instant::now() < end, "{:?}", shim.outcomes());
        let mut syn = from_host(&lab, port, SYN, 1000, &[]);
        syn[17] += OPTION.len() as u8;
        syn[L4_AT + 12] += (OPTION.len() as u8 / 4) << 4;
        syn.extend(OPTION);
        repair_checksums(&mut syn, 0);
        host.send(syn);
        thread::sleep(Duration::from_millis(500));
        if shim.outcomes()[0].changed["option-added"] > 0 {
            break;
        }
    }
    shim.reload_refused(&format!("{IN_PLACE}bound = 8\n"));
    assert!(shim.log().contains("connections changed"), "{}", shim.log());
    let end = Instant::now() + 5 * PATIENCE;
    while !shim.log().contains("reloaded") {
        assert!(Instant::now() < end, "{}", shim.log());
        shim.signal(Signal::HUP);
        thread::sleep(Duration::from_secs(5));
    }
    drop(stop);
    listener.join().unwrap();
    host.finish();
}

/// A lab whose host A knows nothing of the connections that a test makes up, and does not refuse
/// them.
fn quiet_lab(queues: u32) -> Option<Lab> {
    let lab = Lab::new(Plan { queues, ..Plan::default() })?;
    for command in [
        "add table ip quiet",
        "add chain ip quiet out { type filter hook output priority 0 ; }",
        "add rule ip quiet out tcp flags & rst == rst drop",
    ] {
        assert!(lab.command_in("ha", "nft").arg(command).status().unwrap().success());
    }
    Some(lab)
}

/// A segment of host A's connection from this port.
fn from_host(lab: &Lab, port: u16, flags: u8, seq: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = segment(lab, flags, seq, payload);
    frame[L4_AT..L4_AT + 2].copy_from_slice(&port.to_be_bytes());
    repair_checksums(&mut frame, 0);
    frame
}

/// A segment of the far end of that connection, with `options`. It has sequence number 7 and
/// acknowledges number 0.
fn from_far_end(lab: &Lab, port: u16, flags: u8, tos: u8, options: &[u8]) -> Vec<u8> {
    let mut frame = segment(lab, flags, 7, &[]);
    frame[..12].rotate_left(6);
    frame[26..34].rotate_left(4);
    frame[L4_AT..L4_AT + 4].rotate_left(2);
    frame[L4_AT + 2..L4_AT + 4].copy_from_slice(&port.to_be_bytes());
    frame[15] = tos;
    frame[17] += options.len() as u8;
    frame[L4_AT + 12] += (options.len() as u8 / 4) << 4;
    frame.extend(options);
    repair_checksums(&mut frame, 0);
    frame
}

/// Nothing of a connection goes through the engines before its far end has said that it restores,
/// whoever began it, and whatever the same ports were before.
#[test]
fn the_far_ends_capability_decides_who_forwards() {
    let Some(lab) = quiet_lab(1) else { return };
    // The bridge has the start of a stream here, so no engine could say that it is no length.
    let shim = Shim::start(&lab, Side::A, &format!("{ROUTED}heuristic = \"off\"\n"));
    let host = Injector::on(&lab, "ha", "eth0", 0);
    let wire = Injector::on(&lab, "w", "a", 0);
    let data = gradients(1_400);
    // By the bridge: host's, tagged late, network's; by the engines: compressed, option added,
    // option stripped.
    let counts = || {
        let queue = &shim.status().queues[0];
        let KeptStats { not_negotiated, tagged_late, .. } = queue.kept.host;
        let [egress, ingress] = [&queue.egress.changed, &queue.ingress.changed];
        let by_bridge = [not_negotiated, tagged_late, queue.kept.network.not_negotiated];
        (by_bridge, [egress["compressed"], egress["option-added"], ingress["option-stripped"]])
    };
    let expect = |what: &str, by_bridge: [u64; 3], by_engines: [u64; 3]| {
        let expected = (by_bridge, by_engines);
        let end = Instant::now() + PATIENCE;
        while counts() != expected {
            assert!(Instant::now() < end, "{what}: {:?} and not {expected:?}", counts());
        }
    };
    let first = 40_000;
    let send = |port, flags, seq, payload: &[u8]| host.send(from_host(&lab, port, flags, seq, payload));

    send(first, SYN, 0, &[]);
    expect("the SYN tells", [0, 0, 0], [0, 1, 0]);
    wire.send(from_far_end(&lab, first, SYN | ACK, 0, &[]));
    send(first, ACK, 1, &data);
    expect("no answer", [1, 0, 0], [0, 1, 0]);
    let tagged_data_from_far_end = |port| {
        let mut frame = from_far_end(&lab, port, ACK, TAG, &[]);
        frame.extend([0; 400]);
        frame[16..18].copy_from_slice(&440u16.to_be_bytes());
        repair_checksums(&mut frame, 0);
        frame
    };
    wire.send(tagged_data_from_far_end(first));
    expect("nor are its own frames restored", [1, 0, 1], [0, 1, 0]);
    // Of a connection that began before this shim, too: its host's frames go by the bridge.
    let unchanged = || shim.status().queues[0].ingress.untouched["not-compressed"];
    let (by_engine, by_bridge) = (unchanged(), shim.status().queues[0].kept.network.unknown);
    wire.send(tagged_data_from_far_end(first + 9));
    let end = Instant::now() + PATIENCE;
    while shim.status().queues[0].kept.network.unknown == by_bridge {
        assert!(Instant::now() < end, "a frame of an unknown connection is not left to the bridge");
    }
    assert_eq!(unchanged(), by_engine);

    // It is late: what is sent from now on is compressed.
    wire.send(from_far_end(&lab, first, SYN | ACK, 0, &OPTION));
    expect("an answer", [1, 0, 1], [0, 1, 1]);
    send(first, ACK, 1_401, &data);
    expect("it restores", [1, 0, 1], [1, 1, 1]);

    // The next connection of these ports has to receive it again.
    send(first, FIN | ACK, 2_801, &[]);
    send(first, SYN, 10_000, &[]);
    expect("another SYN tells", [1, 0, 1], [1, 2, 1]);
    send(first, ACK, 10_001, &data);
    expect("another connection", [2, 0, 1], [1, 2, 1]);

    // The far end begins.
    wire.send(from_far_end(&lab, first + 1, SYN, TAG, &OPTION));
    expect("its SYN", [2, 0, 1], [1, 2, 2]);
    let mut answer = from_host(&lab, first + 1, SYN | ACK, 20_000, &[]);
    answer[L4_AT + 8..L4_AT + 12].copy_from_slice(&8u32.to_be_bytes());
    repair_checksums(&mut answer, 0);
    host.send(answer);
    expect("the SYN-ACK tells", [2, 0, 1], [1, 3, 2]);
    send(first + 1, ACK, 20_001, &data);
    expect("both restore", [2, 0, 1], [2, 3, 2]);

    // A tag that comes after the SYN.
    let mut untagged = from_host(&lab, first + 2, SYN, 0, &[]);
    untagged[15] = 0;
    repair_checksums(&mut untagged, 0);
    host.send(untagged);
    send(first + 2, ACK, 1, &data);
    expect("tagged late", [2, 1, 1], [2, 3, 2]);
    [host, wire].into_iter().for_each(Injector::finish);
}

/// A SYN leaves on one queue, and its answer comes up on another: another thread receives it,
/// before the host does.
#[test]
fn an_answer_on_another_queue_counts() {
    let Some(lab) = quiet_lab(4) else { return };
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
    for (port, queue) in [(40_000, 1), (40_001, 2), (40_002, 3), (40_003, 0)] {
        let added = shim.outcomes()[0].changed["option-added"];
        host.send(from_host(&lab, port, SYN, 0, &[]));
        until("the SYN gets the option", &|| shim.outcomes()[0].changed["option-added"] > added);

        // Untagged, as listeners answer.
        let stripped = || {
            shim.status()
                .queues
                .iter()
                .map(|queue| queue.ingress.changed["option-stripped"])
                .collect::<Vec<_>>()
        };
        let before = stripped();
        wires[queue].send(from_far_end(&lab, port, SYN | ACK, 0, &OPTION));
        until("the answer loses the option", &|| stripped() != before);
        assert_eq!(stripped()[queue], before[queue] + 1);

        let before = compressed(&shim);
        host.send(from_host(&lab, port, ACK, 1, &data));
        until("compressed", &|| compressed(&shim) > before);
    }
    host.finish();
    wires.into_iter().for_each(Injector::finish);
    let status = shim.status();
    assert!(
        status.queues.iter().all(|queue| queue.from_host().untouched["not-negotiated"] == 0),
        "{status:?}"
    );
}
