//! `gradwire allreduce --aggregate` and `gradwire aggregate`, as a user calls them, and an
//! aggregator that is killed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use gradwire_collectives::{CollectivePlan, InNetwork, Layout, Listening, Options, Residuals, Token};
use serde_json::Value;

fn gradwire() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gradwire"))
}

/// An aggregator in a process of its own, which is killed when it is dropped.
struct RunningAggregator(Child, SocketAddr);

impl RunningAggregator {
    fn start(at: &str) -> Self {
        let mut child =
            gradwire().args(["aggregate", "--listen", at]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().parse().unwrap())
    }
}

impl Drop for RunningAggregator {
    fn drop(&mut self) {
        // SIGKILL.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn allreduce(args: &[&str]) -> (Option<i32>, Value) {
    let output = gradwire().args(["allreduce", "--json"]).args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{stderr}")))
}

/// Jobs, or rounds of one, until the aggregator has to have summed a round alone. On a busy machine
/// it may be silent for 200 ms now and then, and is then left alone for up to 64 rounds, so no test
/// wants that of a given round.
const ROUNDS: usize = 1000;

/// The number of rounds the aggregator summed alone: they say no reason why it did not.
fn by_aggregator(report: &Value) -> usize {
    report["in_network"]["reasons"].as_array().unwrap().iter().filter(|reason| reason.is_null()).count()
}

#[test]
fn a_local_aggregator_sums_exactly_for_threads_and_processes() {
    let processes = &["--processes"][..];
    for (more, codec) in
        [(&[][..], "wire:2:10"), (&[], "wire:1:10"), (processes, "wire:2:6"), (processes, "wire:1:6")]
    {
        let args =
            ["--local", "3", "--values", "30000", "--rounds", "6", "--aggregate", "local", "--codec", codec];
        let mut jobs = (0..ROUNDS).map(|_| {
            let (code, report) = allreduce(&[&args[..], more].concat());
            assert!(code == Some(0) && report["ok"] == true, "{report}");
            assert_eq!(
                (&report["checks"]["replicas"], &report["checks"]["sum"]),
                (&Value::Bool(true), &Value::Bool(true))
            );
            assert_eq!(
                (&report["codec"], &report["in_network"]["chunks"]),
                (&codec.into(), &(6 * 15).into())
            );
            assert!(
                report["in_network"]["from_aggregator"].as_u64().unwrap()
                    >= 15 * by_aggregator(&report) as u64
            );
            assert!(report["strategy"].as_str().unwrap().starts_with("in-network:127.0.0.1:"));
            by_aggregator(&report)
        });
        assert!(jobs.any(|rounds| rounds > 0), "the aggregator summed no round of {ROUNDS} jobs");
    }
}

#[test]
fn without_an_aggregator_the_sum_is_exact_too() {
    // No other socket of a test gets a port of this address, so nobody listens there when the
    // aggregator is gone.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let nobody = RunningAggregator::start(&format!("127.{}.{b}.{c}:9256", 128 | a)).1.to_string();
    let (code, report) =
        allreduce(&["--local", "2", "--values", "5000", "--rounds", "3", "--aggregate", &nobody]);
    assert!(code == Some(0) && report["checks"]["sum"] == true, "{report}");
    assert_eq!(report["in_network"]["reasons"], serde_json::json!(["silent", "not-tried", "silent"]));
    assert_eq!(report["in_network"]["summed"], report["in_network"]["chunks"]);
}

#[test]
fn codecs_that_no_aggregator_sums_are_refused() {
    for (args, says) in [
        (&["--local", "2", "--aggregate", "here"][..], "local, or an IP address"),
        (&["--local", "2", "--aggregate", "local", "--codec", "q8"], "wire:C:B"),
        (&["--local", "2", "--aggregate", "local", "--strategy", "ring"], "--strategy"),
        (&["--root", "127.0.0.1:1", "--rank", "0", "--world-size", "2", "--aggregate", "local"], "--local N"),
    ] {
        let output = gradwire().arg("allreduce").args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(says), "{stderr}");
    }
}

/// Ranks go on in step; before some rounds the aggregator's process is killed or started again,
/// then without memory.
#[test]
fn an_aggregator_that_is_killed_is_replaced_and_used_again_when_it_is_back() {
    const RANKS: usize = 4;
    const VALUES: usize = 200_000;
    // Nobody else binds a port of this address, so it is still free when the aggregator comes back.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let aggregator = Mutex::new(Some(RunningAggregator::start(&format!("127.{}.{b}.{c}:9255", 128 | a))));
    let at = aggregator.lock().unwrap().as_ref().unwrap().1;
    let plan: CollectivePlan = format!("strategy = \"in-network:{at}\"").parse().unwrap();
    let (layout, step) = (Layout::new([("all", VALUES)]).unwrap(), Barrier::new(RANKS));
    let options = Options { timeout: Duration::from_secs(120), ..Options::new(Token::random().unwrap()) };
    let bind = || Listening::bind("127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
    let listening: Vec<Listening> = (0..RANKS).map(|_| bind()).collect();
    let root = listening[0].address().unwrap();
    let before = |round: usize| match round {
        2 => drop(aggregator.lock().unwrap().take()),
        // The port is the same: ranks know no other.
        4 => *aggregator.lock().unwrap() = Some(RunningAggregator::start(&at.to_string())),
        _ => {}
    };
    let run_rank = |rank: usize, listening: Listening| {
        let mut link = listening.join(rank, RANKS, root).unwrap();
        let mut seen: Vec<InNetwork> = Vec::new();
        for round in 0..ROUNDS {
            if step.wait().is_leader() {
                before(round);
            }
            step.wait();
            // Odd numbers of units: the codec restores them as they are, and their sum is whole.
            let value =
                |at: usize| f64::from((2 * ((at * 31 + rank * 7 + round) % 400) + 1) as u32) / 1024.0 - 0.875;
            let own: Vec<f32> = (0..VALUES).map(|at| value(at) as f32).collect();
            let mut buffer = own.clone();
            let report = link.exchange(&mut buffer, &layout, &plan, &mut Residuals::new()).unwrap();
            let sum = |at: usize| {
                let value =
                    |rank: usize| i64::from((2 * ((at * 31 + rank * 7 + round) % 400) + 1) as u32) - 896;
                (0..RANKS).map(value).sum::<i64>()
            };
            let off = (0..VALUES).find(|&at| f64::from(buffer[at]) * 1024.0 != sum(at) as f64);
            assert_eq!(off, None, "rank {rank}, round {round}: {report:?}");
            seen.push(report.in_network.unwrap());
            // All ranks say the same reason, so all leave here.
            if round >= 4 && seen[round].reason.is_none() {
                break;
            }
        }
        link.close();
        seen
    };
    let all: Vec<Vec<InNetwork>> = std::thread::scope(|scope| {
        let run_rank = &run_rank;
        let start = |(rank, listening)| scope.spawn(move || run_rank(rank, listening));
        let threads: Vec<_> = listening.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for seen in all {
        assert!(seen[2..4].iter().all(|round| round.summed == round.chunks), "{seen:?}");
        let last = seen.last().unwrap();
        assert!(last.reason.is_none() && last.from_aggregator == last.chunks, "{last:?}");
    }
}
