//! Ranks that are killed, stopped, slow or gone: everybody else gets an error that names them, and
//! nobody waits for ever.
//!
//! A rank under attack is a process: this test program again, which runs [`rank`] alone.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use gradwire_collectives::{CollectivePlan, Layout, Link, LinkError, Listening, Options, Residuals, Token};
use rustix::process::{Pid, Signal, kill_process};

/// The variable that tells this program to be a rank: root, rank, ranks, token, milliseconds after
/// each exchange, strategy, and whether it then compares.
const JOB: &str = "GRADWIRE_TEST_RANK";
const VALUES: usize = 20_000;
/// An aggregator in the network that is not there.
const AGGREGATOR: &str = "in-network:127.0.0.1:9";

fn exchange(link: &mut Link, strategy: &str) -> Result<(), LinkError> {
    let layout = Layout::new([("a", VALUES)]).unwrap();
    let plan: CollectivePlan = match strategy {
        AGGREGATOR => format!("strategy = {AGGREGATOR:?}").parse().unwrap(),
        _ => format!("strategy = {strategy:?}\ncodec = \"f32\"").parse().unwrap(),
    };
    let mut values = vec![1.0; VALUES];
    link.exchange(&mut values, &layout, &plan, &mut Residuals::new())?;
    // An aggregator's codec is within 2^-10 of each rank's.
    let off = values.iter().map(|value| (value - link.ranks() as f32).abs()).fold(0.0, f32::max);
    assert!(if strategy == AGGREGATOR { off < 0.01 } else { off == 0.0 }, "{strategy}: off by {off}");
    Ok(())
}

fn options(token: Token, timeout: Duration) -> Options {
    Options { timeout, ..Options::new(token) }
}

/// Exchanges until something ends it.
#[test]
#[ignore = "this is a rank that another test starts"]
fn child_rank() {
    let job = std::env::var(JOB).unwrap();
    let words: Vec<&str> = job.split(' ').collect();
    let root: SocketAddr = words[0].parse().unwrap();
    let (rank, ranks) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let options = options(Token::from_hex(words[3]).unwrap(), Duration::from_secs(120));
    let pause = Duration::from_millis(words[4].parse().unwrap());
    let (strategy, compares) = (words[5], words[6] == "true");
    let at = if rank == 0 { root } else { "127.0.0.1:0".parse().unwrap() };
    let mut link = Listening::bind(at, options).unwrap().join(rank, ranks, root).unwrap();
    while exchange(&mut link, strategy).is_ok() {
        std::thread::sleep(pause);
        if compares && link.compare(1, "so what").is_err() {
            return;
        }
    }
}

struct Process(Child);

impl Process {
    fn start(
        root: SocketAddr,
        rank: usize,
        ranks: usize,
        token: &Token,
        pause: Duration,
        strategy: &str,
        compares: bool,
    ) -> Self {
        let job =
            format!("{root} {rank} {ranks} {} {} {strategy} {compares}", token.to_hex(), pause.as_millis());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_rank", "--ignored"]).env(JOB, job);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits until it ends by itself.
    fn ends(&mut self) {
        let until = Instant::now() + 2 * LONG;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the process does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Ranks here, all but `victim`, which is a process; after some exchanges `attack` does something
/// to it. What each is told.
fn attacked(
    ranks: usize,
    victim: usize,
    timeout: Duration,
    pause: Duration,
    strategy: &str,
    attack: impl FnOnce(&Process, SocketAddr, &Token),
) -> Vec<String> {
    attacked_in(ranks, victim, timeout, pause, strategy, false, attack).0
}

/// The same with the process as it is then. If the ranks compare, they do it after the first
/// exchange, and wait in it.
fn attacked_in(
    ranks: usize,
    victim: usize,
    timeout: Duration,
    pause: Duration,
    strategy: &str,
    compares: bool,
    attack: impl FnOnce(&Process, SocketAddr, &Token),
) -> (Vec<String>, Process) {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let token = Token::random().unwrap();
    let listen = |at| Listening::bind(at, options(token.clone(), timeout)).unwrap();
    let bind = || listen("127.0.0.1:0".parse().unwrap());
    // If rank 0 is the victim, its port has to be known before: any that is free now, and stays so,
    // since nobody else listens at this address.
    let [.., a, b] = std::process::id().to_be_bytes();
    let own = [127, 100 + NEXT.fetch_add(1, Ordering::Relaxed), a, b.max(1)];
    let root = listen((own, 0).into());
    let at = root.address().unwrap();
    let mut root = Some(root).filter(|_| victim != 0);
    let process = Process::start(at, victim, ranks, &token, pause, strategy, compares);
    let (sender, first) = std::sync::mpsc::channel();
    let told = std::thread::scope(|scope| {
        let others = (0..ranks).filter(|&rank| rank != victim);
        let threads: Vec<_> = others
            .map(|rank| {
                let (listening, sender) = (root.take_if(|_| rank == 0).unwrap_or_else(bind), sender.clone());
                scope.spawn(move || {
                    let mut link = listening.join(rank, ranks, at).unwrap();
                    exchange(&mut link, strategy).unwrap();
                    sender.send(()).unwrap();
                    loop {
                        let next = match compares {
                            true => link.compare(1, "so what"),
                            false => exchange(&mut link, strategy),
                        };
                        if let Err(error) = next {
                            assert!(matches!(error, LinkError::Failed(_)), "{error}");
                            return error.to_string();
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        (1..ranks).for_each(|_| first.recv().unwrap());
        attack(&process, at, &token);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (told, process)
}

/// Longer than any machine is away.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn a_rank_that_is_killed_is_named_to_all() {
    for (victim, strategy) in [(2, "ring"), (1, "servers"), (3, "halving-doubling")] {
        let told =
            attacked(4, victim, LONG, Duration::ZERO, strategy, |process, _, _| process.signal(Signal::KILL));
        for told in &told {
            assert!(told.contains(&format!("rank {victim} disconnected")), "{told}");
        }
        assert!(told.iter().all(|other| *other == told[0]), "{told:?}");
    }
}

#[test]
fn rank_0_that_is_killed_is_named_to_all() {
    for told in attacked(3, 0, LONG, Duration::ZERO, "ring", |process, _, _| process.signal(Signal::KILL)) {
        assert!(told.contains("rank 0 disconnected"), "{told}");
    }
}

/// In an exchange, and where ranks wait for each other's checksums. One that goes on later hears of
/// it, and ends too.
#[test]
fn a_rank_that_is_stopped_is_named_to_all() {
    // Half of it is what a rank may be silent, and no machine is away for that long.
    let timeout = Duration::from_secs(40);
    let stop = |victim: usize, strategy: &str, compares: bool| {
        // Before it compares, it sleeps for a day, and is stopped there.
        let pause = Duration::from_secs(if compares { 86_400 } else { 0 });
        let (told, mut process) =
            attacked_in(4, victim, timeout, pause, strategy, compares, |process, _, _| {
                process.signal(Signal::STOP);
            });
        for told in told {
            let says = format!("rank {victim} gave no sign of life for 20s");
            assert!(told.contains(&says), "{strategy}, compares: {compares}: {told}");
        }
        process.signal(Signal::CONT);
        if !compares {
            process.ends();
        }
    };
    // All of these jobs wait most of the time.
    std::thread::scope(|scope| {
        for (victim, strategy, compares) in [
            (0, "ring", false),
            (2, "ring", false),
            (1, "servers", false),
            (3, "all-gather", false),
            (1, AGGREGATOR, false),
            (0, AGGREGATOR, false),
            (0, "ring", true),
            (2, "ring", true),
        ] {
            let stop = &stop;
            scope.spawn(move || stop(victim, strategy, compares));
        }
    });
}

/// A rank that is stopped hears of nothing, and the others do not wait for it to hear.
#[test]
fn news_of_a_killed_rank_does_not_wait_for_a_stopped_one() {
    let (sender, told) = std::sync::mpsc::channel();
    let token = Token::random().unwrap();
    // Of this timeout, a tenth is longer than this test waits.
    let options = options(token.clone(), 300 * LONG);
    let root = Listening::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let at = root.address().unwrap();
    let [killed, stopped] =
        [1, 2].map(|rank| Process::start(at, rank, 3, &token, Duration::ZERO, "ring", false));
    std::thread::spawn(move || {
        let mut link = root.join(0, 3, at).unwrap();
        let mut exchanges = 0;
        let error = loop {
            if let Err(error) = exchange(&mut link, "ring") {
                break error.to_string();
            }
            exchanges += 1;
            if exchanges == 3 {
                sender.send(String::new()).unwrap();
            }
        };
        sender.send(error).unwrap();
    });
    assert_eq!(told.recv_timeout(3 * LONG).unwrap(), "");
    stopped.signal(Signal::STOP);
    killed.signal(Signal::KILL);
    let told = told.recv_timeout(3 * LONG).expect("news within minutes");
    assert!(told.contains("rank 1 disconnected"), "{told}");
}

#[test]
fn a_rank_that_is_alive_but_slow_is_named_to_all() {
    // It begins one exchange and then sleeps for a day.
    let pause = Duration::from_secs(86_400);
    for told in attacked(4, 2, Duration::from_secs(20), pause, "ring", |_, _, _| ()) {
        assert!(told.contains("rank 2 did not begin exchange 2 within 20s"), "{told}");
    }
}

#[test]
fn a_rank_that_starts_again_is_told_that_nobody_waits_and_a_new_job_gets_the_sum() {
    let mut again = None;
    let told = attacked(3, 1, LONG, Duration::ZERO, "ring", |process, at, token| {
        process.signal(Signal::KILL);
        // The job knows its ranks, and nobody can take the place of one.
        let own = "127.0.0.1:0".parse().unwrap();
        let listening = Listening::bind(own, options(token.clone(), Duration::from_secs(1))).unwrap();
        again = Some((at, token.clone(), listening.join(1, 3, at).unwrap_err().to_string()));
    });
    assert!(told.iter().all(|told| told.contains("rank 1 disconnected")), "{told:?}");
    let (at, token, alone) = again.unwrap();
    assert!(alone.contains(&at.to_string()), "{alone}");
    // All start again, at the same address and with the same token.
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let (token, own) = (token.clone(), if rank == 0 { at } else { "127.0.0.1:0".parse().unwrap() });
            scope.spawn(move || {
                let listening = Listening::bind(own, options(token, LONG)).unwrap();
                exchange(&mut listening.join(rank, 3, at).unwrap(), "ring").unwrap();
            });
        }
    });
}
