//! Several queues, a thread for each; and connections that move between them.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;
use std::time::Duration;

use gradwire::rules::DEFAULT_MARK;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use support::shim::Shim;
use support::traffic::{Capturing, TAG, Transfer, assert_within_bound, connect_tagged, gradients, set_tos};
use support::{Lab, Plan, Side};

const ROUTED: &str = "[[rule]]\ntos = 0x28\n";

/// The raw stream bytes in a compressed TCP segment over IPv4: where they start and how many (FORMAT.md section 5).
fn stream_range(frame: &[u8]) -> Option<(u32, u32)> {
    let ip = frame.get(14..)?;
    if frame[12..14] != [8, 0] || ip[1] & 0xfc != DEFAULT_MARK || ip[9] != 6 {
        return None;
    }
    let tcp = ip.get(4 * usize::from(ip[0] & 15)..)?;
    let seq = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
    let payload = tcp.get(4 * usize::from(tcp[12] >> 4)..)?;
    Some((seq, raw_len(payload)))
}

/// The original payload's length in a segment header.
fn raw_len(payload: &[u8]) -> u32 {
    let segment = gradwire::wire::segment::Segment::parse(payload).unwrap().0;
    segment.raw_len.into()
}

#[test]
fn connections_spread_over_threads() {
    let Some(lab) = Lab::new(Plan { queues: 4, ..Plan::default() }) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(4_000_000);
    let running = (0..12)
        .map(|number| {
            let address = ["10.77.0.2", "fd77::2"][number % 2];
            Transfer::start(&lab, address, TAG, data.clone(), usize::MAX)
        })
        .collect::<Vec<_>>();
    for transfer in running {
        assert_within_bound(&data, &transfer.finish().0);
    }
    let status = shims[0].status();
    assert_eq!(status.queues.len(), 4);
    let compressed = status.queues.iter().map(|queue| queue.egress.changed["compressed"]).collect::<Vec<_>>();
    let restored = shims[1].outcomes()[1].changed["restored"];
    eprintln!("  compressed by thread: {compressed:?}; restored: {restored}");
    assert!(compressed.iter().filter(|count| **count > 0).count() >= 2, "{compressed:?}");
    assert!(compressed.iter().sum::<u64>() > 12 * 2_000);
}

/// Fewer threads than queues: every queue is served all the same.
#[test]
fn one_thread_serves_all_queues() {
    let Some(lab) = Lab::new(Plan { queues: 4, ..Plan::default() }) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, &format!("{ROUTED}[path]\nthreads = 1\n")));
    let data = gradients(2_000_000);
    let start = |_| Transfer::start(&lab, "10.77.0.2", TAG, data.clone(), usize::MAX);
    for transfer in (0..8).map(start).collect::<Vec<_>>() {
        assert_within_bound(&data, &transfer.finish().0);
    }
    let status = shims[0].status();
    assert_eq!(status.queues.len(), 1);
    assert!(status.queues[0].egress.changed["compressed"] > 8 * 1_000);
}

/// A sender that moves from core to core, and with it from queue to queue: what it sends on another queue than the
/// first goes untouched, and no byte of its stream is ever compressed twice.
#[test]
fn a_connection_that_moves_is_left_alone_elsewhere() {
    let cpus = sched_getaffinity(None).unwrap();
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).take(4).collect::<Vec<_>>();
    if cpus.len() < 2 {
        eprintln!("SKIPPED: one core has one queue to send on");
        return;
    }
    let Some(lab) = Lab::new(Plan { queues: 4, ..Plan::default() }) else { return };
    // Each core sends on its own queue (XPS), and loss makes TCP send again, wherever it is by then.
    for (queue, cpu) in cpus.iter().enumerate() {
        let file = format!("/sys/class/net/eth0/queues/tx-{queue}/xps_cpus");
        let mask = format!("{:x}", 1u32 << cpu);
        let mut command = lab.command_in("ha", "tee");
        let mut child = command
            .arg(file)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(mask.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    lab.lose(1);
    let data = gradients(6_000_000);
    let (tell, told) = std::sync::mpsc::channel();
    let receiver = lab.enter("hb", move || {
        let listener = TcpListener::bind("10.77.0.2:0").unwrap();
        set_tos(&listener, "10.77.0.2".parse().unwrap(), TAG).unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        let mut got = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
        got
    });
    let to = told.recv().unwrap();
    let capturing = Capturing::start(&lab, "w");
    let sent = data.clone();
    let sender = lab.enter("ha", move || {
        let mut stream = connect_tagged(to, TAG).unwrap();
        for (part, bytes) in sent.chunks(200_000).enumerate() {
            let mut here = CpuSet::new();
            here.set(cpus[part % cpus.len()]);
            sched_setaffinity(None, &here).unwrap();
            stream.write_all(bytes).unwrap();
            // TCP changes its queue only when nothing is under way.
            thread::sleep(Duration::from_millis(15));
        }
        stream.shutdown(Shutdown::Write).unwrap();
    });
    sender.join().unwrap();
    let got = receiver.join().unwrap();
    assert_within_bound(&data, &got);

    let (capture, source) = (capturing.finish(), lab.mac("ha"));
    let mut ranges = BTreeMap::new();
    for frame in capture.frames.iter().filter(|frame| frame.bytes[6..12] == source) {
        if let Some((seq, len)) = stream_range(&frame.bytes) {
            // The wire's ends and its bridge all show a frame: as one and the same range.
            let known = ranges.insert(seq, len);
            assert!(known.is_none_or(|known| known == len), "compressed twice, in pieces of two lengths");
        }
    }
    let mut end = None;
    for (seq, len) in &ranges {
        assert!(
            end.is_none_or(|end: u32| end.wrapping_sub(*seq) as i32 <= 0),
            "bytes at {seq} compressed twice"
        );
        end = Some(seq.wrapping_add(*len));
    }
    let kept = shims[0].status().queues.iter().map(|queue| queue.kept.host.unknown).sum::<u64>();
    eprintln!("  {} segments compressed, {kept} left alone on other queues", ranges.len());
    assert!(kept > 100, "it did not move");
    assert!(ranges.len() > 100, "nothing was compressed at all");
}
