//! The start of values in a stream must be known, not believed: nothing is compressed from a start
//! that may be another connection's, and no byte is compressed twice.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use gradwire_testbench::input::Capture;

use support::frames::{seq, syns, with_seq};
use support::injector::Injector;
use support::shim::Shim;
use support::traffic::{
    Capturing, TAG, Transfer, assert_compressed_once, assert_within_bound, connect_tagged, gradients,
    set_tos, transfer,
};
use support::{Lab, PATIENCE, Plan, Side};

// The payload heuristic is off: values that are cut at wrong bytes do not look like values, and
// would go untouched.
const ROUTED: &str = "[[rule]]\ntos = 0x28\nhandshake = \"off\"\nheuristic = \"off\"\n";
const PAYLOAD: &str =
    "[[rule]]\ntos = 0x28\nhandshake = \"off\"\nheuristic = \"off\"\nalignment = \"payload\"\n";

/// The last segment of a stream has its FIN and payload. A peer without a shim refuses it, so it is
/// sent again, untouched; as is all that was sent compressed before.
#[test]
fn alignment_payload_and_a_peer_without_a_shim() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let _shim = Shim::start(&lab, Side::A, PAYLOAD);
    let data = gradients(8_000);
    for _ in 0..3 {
        let capturing = Capturing::start(&lab, "w");
        let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
        assert!(got == data, "nobody restores");
        assert_compressed_once(&capturing.finish());
    }
}

/// Shims that start within connections know no start of them. A rule that needs it, put in force
/// later, must not take what the first rule knew for one.
#[test]
fn reload_from_alignment_payload_to_alignment_connection() {
    const STEP: usize = 400_000;
    // What is sent before the shims, under the first rule and under the second. The first rule
    // meets the one stream where a value starts, and compresses it. The other one it meets within a
    // value, and has but two bytes of it.
    const CUTS: [[usize; 3]; 2] = [[STEP, 2 * STEP, 3 * STEP], [STEP - 2, STEP, 3 * STEP]];
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let data = gradients(3 * STEP);
    let streams = CUTS.map(|cuts| {
        let (sender, pieces) = channel();
        (cuts, sender, Transfer::start_in_pieces(&lab, "10.77.0.2", TAG, pieces))
    });
    let send = |step: usize| {
        for (cuts, sender, _) in &streams {
            let from = if step == 0 { 0 } else { cuts[step - 1] };
            sender.send(data[from..cuts[step]].to_vec()).unwrap();
        }
        streams.iter().for_each(|(cuts, _, transfer)| transfer.wait_for(cuts[step]));
    };
    send(0);
    let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, PAYLOAD));
    send(1);
    let counts = |shim: &Shim| {
        let status = shim.status();
        (status.queues[0].egress.changed["compressed"], status.queues[0].kept.host.unknown)
    };
    shims.iter_mut().for_each(|shim| shim.reload(ROUTED));
    let (compressed, unknown) = counts(&shims[0]);
    assert!(compressed > 0, "the first rule needs no start");
    send(2);
    let after = counts(&shims[0]);
    for (_, sender, transfer) in streams {
        drop(sender);
        assert_within_bound(&data, &transfer.finish().0);
    }
    assert_eq!(after.0, compressed, "compressed by the second rule");
    // Segments of 1460 bytes at most: the XDP program leaves them to the bridge.
    assert!(after.1 - unknown >= (3 * STEP / 1460) as u64, "{unknown}, then {after:?}");
}

/// A listener that answers with SYN cookies answers each SYN with another sequence number, and the
/// client acknowledges the first answer, though a forged SYN made the listener send another one
/// behind it.
#[test]
fn syn_cookies_and_a_forged_syn() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    lab.run_in("ha", "sysctl -q -w net.ipv4.tcp_syncookies=2");
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(400_000);
    let (tx, rx) = channel();
    let sent = data.clone();
    let server = lab.enter("ha", move || {
        let listener = TcpListener::bind("10.77.0.1:0").unwrap();
        set_tos(&listener, "10.77.0.1".parse().unwrap(), TAG).unwrap();
        tx.send(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        set_tos(&stream, "10.77.0.1".parse().unwrap(), TAG).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    let to = rx.recv().unwrap();
    // Until the forged SYN has had its answer, the client's acknowledgement does not arrive.
    lab.nft("add table bridge hold");
    lab.nft("add chain bridge hold wire { type filter hook forward priority 0 ; }");
    lab.nft("add rule bridge hold wire ip daddr 10.77.0.1 tcp flags & (syn | ack) == ack drop");
    let capturing = Capturing::start(&lab, "w");
    let client = lab.enter("hb", move || connect_tagged(to, TAG).unwrap());
    let mut client = client.join().unwrap();
    // It is sent again until it arrives.
    client.write_all(b"go").unwrap();
    let first = capturing.finish();
    let syn = only_syn(&first, lab.mac("hb"));
    let answer = only_syn(&first, lab.mac("ha"));
    let injector = Injector::start(&lab, Side::A);
    let end = Instant::now() + PATIENCE;
    loop {
        let capturing = Capturing::start(&lab, "w");
        // The cookie moves as the number does: values would start two bytes off, and not behind the
        // stream's first byte, which would raise doubt by itself.
        injector.send(with_seq(&syn, seq(&syn).wrapping_sub(2)));
        thread::sleep(Duration::from_millis(50));
        let capture = capturing.finish();
        let mut answers = syns(&capture, lab.mac("ha"));
        if answers.any(|other| seq(other) != seq(&answer)) {
            break;
        }
        assert!(Instant::now() < end, "no answer to the forged SYN");
    }
    injector.finish();
    lab.nft("delete table bridge hold");

    let mut got = Vec::new();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_to_end(&mut got).unwrap();
    drop(client);
    server.join().unwrap();
    assert_within_bound(&data, &got);
    let [egress, _] = shims[0].outcomes();
    assert_eq!(egress.changed["compressed"], 0, "{egress:?}");
    assert!(egress.untouched["alignment-doubtful"] > 0, "{egress:?}");
}

/// The one of which all are copies.
fn only_syn(capture: &Capture, source: [u8; 6]) -> Vec<u8> {
    syns(capture, source).next().expect("no SYN on the wire").to_vec()
}
