//! Links of which only rank 0 can be reached.

mod support;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use gradwire_collectives::{CollectivePlan, Layout, Link, Listening, Options, Residuals};
use support::{in_time, options};

const VALUES: usize = 20_000;

/// A rank's value, which no other rank has, and no sum.
fn value(rank: usize, at: usize) -> f32 {
    (at * 8 + rank) as f32 + 0.125
}

fn exchange(link: &mut Link, plan: &CollectivePlan) -> Vec<u32> {
    let layout = Layout::new([("a", VALUES)]).unwrap();
    let mut buffer: Vec<f32> = (0..VALUES).map(|at| value(link.rank(), at)).collect();
    link.exchange(&mut buffer, &layout, plan, &mut Residuals::new()).unwrap();
    buffer.into_iter().map(f32::to_bits).collect()
}

/// TCP ports of this machine's established connections that were accepted, or opened, there.
fn established() -> Vec<u16> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        (state == "01").then(|| u16::from_str_radix(local.split(':').nth(1)?, 16).ok()).flatten()
    };
    table.lines().skip(1).filter_map(port).collect()
}

/// The bits that each of four ranks gets of two plans, and for how many of them but rank 0 somebody
/// was connected to its port. Others reach rank 0 by way of `through`.
fn run(options: &Options, through: impl Fn(SocketAddr) -> SocketAddr) -> (Vec<[Vec<u32>; 2]>, usize) {
    let plans = ["strategy = \"ring\"\ncodec = \"f32\"", "strategy = \"all-gather\"\ncodec = \"q8:256\""]
        .map(|plan| plan.parse::<CollectivePlan>().unwrap());
    let bind = |_| Listening::bind("127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
    let listening: Vec<Listening> = (0..4).map(bind).collect();
    let ports: Vec<u16> = listening.iter().map(|rank| rank.address().unwrap().port()).collect();
    let root = through(listening[0].address().unwrap());
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let plans = &plans;
        let join = |(rank, listening): (usize, Listening)| {
            scope.spawn(move || {
                let mut link = listening.join(rank, 4, root).unwrap();
                let bits = plans.each_ref().map(|plan| exchange(&mut link, plan));
                // All are still connected.
                let established = established();
                link.compare(1, "so what").unwrap();
                (bits, established)
            })
        };
        let threads: Vec<_> = listening.into_iter().enumerate().map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let direct = ports[1..].iter().filter(|port| results[0].1.contains(port)).count();
    (results.drain(..).map(|(bits, _)| bits).collect(), direct)
}

#[test]
fn results_are_those_without_a_relay_and_nobody_connects_to_others() {
    let clear = options(false);
    let (expected, direct) = run(&clear, |root| root);
    // The last rank is connected to by nobody.
    assert_eq!(direct, 2);
    for (tls, streams) in [(false, 1), (false, 3), (true, 2)] {
        let (got, direct) = run(&Options { relay: true, tls, streams, ..clear.clone() }, |root| root);
        assert!(got == expected, "TLS: {tls}, {streams} streams");
        assert_eq!(direct, 0);
    }
}

/// Forwards connections to `to`, and keeps what whoever connects says.
fn stranger(to: SocketAddr, seen: &Arc<Mutex<Vec<Vec<u8>>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let seen = seen.clone();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(to) else { return };
            let back = [far.try_clone().unwrap(), near.try_clone().unwrap()];
            std::thread::spawn(move || {
                _ = io::copy(&mut &back[0], &mut &back[1]);
                _ = back[1].shutdown(Shutdown::Write);
            });
            let seen = seen.clone();
            std::thread::spawn(move || {
                let (mut said, mut piece) = (Vec::new(), vec![0; 1 << 16]);
                while let Ok(len @ 1..) = (&near).read(&mut piece) {
                    said.extend(&piece[..len]);
                    // Before it arrives, so that who has a result has been seen.
                    seen.lock().unwrap().push(piece[..len].to_vec());
                    _ = (&far).write_all(&piece[..len]);
                }
                _ = far.shutdown(Shutdown::Write);
                seen.lock().unwrap().push(said);
            });
        }
    });
    at
}

#[test]
fn with_tls_a_stranger_on_the_path_sees_no_value() {
    let clear = Options { relay: true, ..options(false) };
    for tls in [false, true] {
        let seen = Arc::default();
        run(&Options { tls, ..clear.clone() }, |root| stranger(root, &seen));
        let seen = seen.lock().unwrap();
        // Somewhere within a part that a rank sends as it is.
        let known = |rank: usize, at: usize| -> Vec<u8> {
            (at..at + 4).flat_map(|at| value(rank, at).to_le_bytes()).collect()
        };
        let count = (1..4)
            .flat_map(|rank| (100..VALUES).step_by(2000).map(move |at| known(rank, at)))
            .filter(|known| seen.iter().any(|said| said.windows(known.len()).any(|bytes| bytes == known)))
            .count();
        assert_eq!(count > 0, !tls, "{count} of {} pieces", seen.len());
    }
}

#[test]
fn ranks_hear_that_rank_0_relays_or_does_not() {
    for (relays, cause) in
        [(false, "it relays nothing, and this rank wants"), (true, "it relays data, which this rank")]
    {
        heard(relays, cause);
    }
}

fn heard(relays: bool, cause: &str) {
    let own = options(false);
    in_time(|timeout| {
        let bind = |relay| {
            let options = Options { relay, timeout, ..own.clone() };
            Listening::bind("127.0.0.1:0".parse().unwrap(), options).unwrap()
        };
        let listening = [bind(relays), bind(!relays), bind(!relays)];
        let root = listening[0].address().unwrap();
        let told = std::thread::scope(|scope| {
            let join = |(rank, listening): (usize, Listening)| {
                scope.spawn(move || listening.join(rank, 3, root).err().map(|error| error.to_string()))
            };
            let threads: Vec<_> = listening.into_iter().enumerate().map(join).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap_or_default()).collect::<Vec<_>>()
        });
        let heard = |told: &String| told.contains(cause) && told.contains("give all ranks the same options");
        if told[1..].iter().all(heard) { Ok(()) } else { Err(told.join("; ")) }
    });
}
