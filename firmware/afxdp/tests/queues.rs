//! Several queues, a thread for each; and connections that move between them.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use support::frames::{ACK, FIN, SYN, segment};
use support::injector::Injector;
use support::shim::Shim;
use support::traffic::{
    Capturing, TAG, Transfer, assert_compressed_once, assert_within_bound, connect_tagged, gradients,
    set_tos, transfer,
};
use support::{Lab, PATIENCE, Plan, Side, skip};

const ROUTED: &str = "[[rule]]\ntos = 0x28\n";

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
    assert!(compressed.iter().sum::<u64>() > 1_000);
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
    assert!(status.queues[0].egress.changed["compressed"] > 1_000);
}

/// A sender that moves from core to core, and with it from queue to queue: what it sends on another
/// queue than the first goes untouched, and no byte of its stream is ever compressed twice.
#[test]
fn a_connection_that_moves_is_left_alone_elsewhere() {
    let cpus = sched_getaffinity(None).unwrap();
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).take(4).collect::<Vec<_>>();
    if cpus.len() < 2 {
        skip("one core has one queue to send on");
        return;
    }
    let Some(lab) = Lab::new(Plan { queues: 4, ..Plan::default() }) else { return };
    // Each core sends on its own queue (XPS), and loss makes TCP send again, wherever it is by
    // then.
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
    let kept = || shims[0].status().queues.iter().map(|queue| queue.kept.host.unknown).sum::<u64>();
    // A busy machine and loss make TCP send much again, and then a shim compresses nothing for a
    // second. Another connection starts anew.
    let end = Instant::now() + PATIENCE;
    loop {
        let before = kept();
        let segments = send_from_core_to_core(&lab, &cpus);
        let kept = kept() - before;
        eprintln!("  {segments} segments compressed, {kept} left alone on other queues");
        assert!(kept > 100, "it did not move");
        if segments > 100 {
            return;
        }
        assert!(Instant::now() < end, "nothing was compressed at all");
    }
}

/// Sends values with one connection from each of these cores in turn, and says how many segments of
/// it were compressed. Values are within the bound, and no byte was compressed twice.
fn send_from_core_to_core(lab: &Lab, cpus: &[usize]) -> usize {
    let data = gradients(6_000_000);
    let (tx, rx) = std::sync::mpsc::channel();
    let receiver = lab.enter("hb", move || {
        let listener = TcpListener::bind("10.77.0.2:0").unwrap();
        set_tos(&listener, "10.77.0.2".parse().unwrap(), TAG).unwrap();
        tx.send(listener.local_addr().unwrap()).unwrap();
        let mut got = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
        got
    });
    let to = rx.recv().unwrap();
    let capturing = Capturing::start(lab, "w");
    let (sent, cpus) = (data.clone(), cpus.to_vec());
    let sender = lab.enter("ha", move || {
        let move_to = |cpu| {
            let mut here = CpuSet::new();
            here.set(cpu);
            sched_setaffinity(None, &here).unwrap();
        };
        // The engine has to see the first word of the stream: it leaves the queue that the SYN has
        // left.
        move_to(cpus[0]);
        let mut stream = connect_tagged(to, TAG).unwrap();
        for (part, bytes) in sent.chunks(200_000).enumerate() {
            move_to(cpus[part % cpus.len()]);
            stream.write_all(bytes).unwrap();
            // TCP changes its queue only when nothing is under way.
            let end = Instant::now() + PATIENCE;
            while bytes_under_way(to.port()) > 0 {
                assert!(Instant::now() < end, "the transfer stands still");
                thread::sleep(Duration::from_millis(1));
            }
        }
        stream.shutdown(Shutdown::Write).unwrap();
    });
    sender.join().unwrap();
    assert_within_bound(&data, &receiver.join().unwrap());
    assert_compressed_once(&capturing.finish())
}

/// Bytes to a port that this thread's namespace has not sent, or of which it has no acknowledgement
/// (`proc_pid_net(5)`).
fn bytes_under_way(port: u16) -> u64 {
    let connections = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let far = format!(":{port:04X}");
    let to = connections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let queues = to.filter(|words| words[2].ends_with(&far)).map(|words| words[4].to_owned());
    queues.map(|queues| u64::from_str_radix(&queues[..8], 16).unwrap()).sum()
}

/// Queues are added while it runs: the log tells and says what fixes it, and what passes by there
/// is counted.
#[test]
fn queues_are_added_while_it_runs() {
    let Some(lab) = Lab::new(Plan { queues: 4, ..Plan::default() }) else { return };
    let port = lab.host_port(Side::A);
    lab.run_in("sa", &format!("ethtool -L {port} rx 1"));
    // The peer of a veth must not send on more queues than there are to receive.
    let mut shim = Shim::start(&lab, Side::A, ROUTED);
    lab.run_in("sa", &format!("ethtool -L {port} rx 4"));
    shim.wait_for("4 receive queues, 1 at start");
    // No thread is behind the queues added. The one behind the first queue is not stale: it may
    // take its time.
    let stale = |shim: &Shim| shim.status().queues.iter().map(|queue| queue.kept.host.stale).sum::<u64>();
    assert_eq!(stale(&shim), 0);
    // By chance each connection is on one of four queues, and one of them has a socket.
    let data = gradients(100_000);
    for attempt in 1.. {
        let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
        assert!(got == data, "nobody restores");
        if stale(&shim) > 0 {
            break;
        }
        assert!(attempt < 50, "no connection passed by: {:?}", shim.status());
    }
}

/// Two starts on two queues: each engine has seen one of them, and neither knows which one the
/// values count from. A listener with SYN cookies answers so, from whichever processor a SYN came
/// to.
#[test]
fn starts_on_two_queues_are_in_doubt_until_the_connection_ends() {
    let Some(lab) = Lab::new(Plan { queues: 2, ..Plan::default() }) else { return };
    let shim = Shim::start(&lab, Side::A, &format!("{ROUTED}handshake = \"off\"\n"));
    let queues = [0, 1].map(|queue| Injector::on(&lab, "ha", "eth0", queue));
    let data = gradients(1_400);
    let kept = || shim.status().queues.iter().map(|queue| queue.kept.host.unknown).sum::<u64>();
    let compressed = || shim.outcomes()[0].changed["compressed"];
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let end = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < end, "{what}: {:?}", shim.status());
        }
    };
    // Each queue is a path of its own: the next frame waits for the one before.
    let seen = || shim.outcomes()[0].untouched.values().sum::<u64>() + compressed() + kept();
    let send = |queue: usize, frame: Vec<u8>| {
        let before = seen();
        queues[queue].send(frame);
        until("a frame was seen", &|| seen() > before);
    };
    send(0, segment(&lab, SYN | ACK, 1_000, &[]));
    send(1, segment(&lab, SYN | ACK, 2_002, &[]));
    let before = kept();
    for queue in [0, 1] {
        send(queue, segment(&lab, ACK, 1_001, &data));
        send(queue, segment(&lab, ACK, 2_003, &data));
    }
    assert_eq!((kept() - before, compressed()), (4, 0));

    // Its end ends the doubt, and one that is sent again behind it does not come back.
    send(0, segment(&lab, FIN | ACK, 2_403, &[]));
    send(1, segment(&lab, SYN | ACK, 3_003, &[]));
    send(1, segment(&lab, ACK, 3_004, &data));
    assert_eq!(compressed(), 1, "{:?}", shim.outcomes()[0]);
    send(1, segment(&lab, FIN | ACK, 4_404, &[]));
    let before = kept();
    send(1, segment(&lab, ACK, 3_004, &data));
    assert_eq!((kept() - before, compressed()), (1, 1));
    queues.into_iter().for_each(Injector::finish);
}
