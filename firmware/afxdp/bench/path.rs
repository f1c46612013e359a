//! Forwarding, compressing, and slow wires, in the laboratory of the tests. `bench/run` starts it.

use std::thread;
use std::time::Duration;

use aya::EbpfLoader;
use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;

#[path = "../tests/support/mod.rs"]
mod support;

use support::shim::Shim;
use support::traffic::{TAG, assert_within_bound, gradients, transfer};
use support::{Lab, Plan, Side};

const ADDRESS: &str = "10.77.0.2";
const ROUTED: &str = "[[rule]]\ntos = 0x28\n";
const IN_PLACE: &str = "[[rule]]\ntos = 0x28\nframing = \"in-place\"\n";
/// Bytes of one transfer if the wire is not limited: some seconds.
const LEN: usize = 200_000_000;
/// Rounds: each way has a turn in each.
const RUNS: usize = 9;

fn main() {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect::<Vec<_>>();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    if wanted("path") {
        path();
    }
    if wanted("wire") {
        wire();
    }
    if wanted("mixed") {
        mixed();
    }
    if wanted("cost") {
        cost();
    }
}

/// The path between host and wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Bridge,
    Redirect,
    Plain,
    Compressing { config: &'static str, name: &'static str },
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "kernel bridge",
            Self::Redirect => "XDP_REDIRECT",
            Self::Plain => "`AF_XDP`, plain",
            Self::Compressing { name, .. } => name,
        }
    }
}

struct Run {
    seconds: f64,
    frames: f64,
    /// Of each shim, in nanoseconds: all, and outside the kernel.
    cpu: [(f64, f64); 2],
    /// Of the whole machine.
    machine: f64,
}

fn path() {
    let ways = [
        Way::Bridge,
        Way::Redirect,
        Way::Plain,
        Way::Compressing { config: ROUTED, name: "compressing, routed" },
        Way::Compressing { config: IN_PLACE, name: "compressing, in-place" },
    ];
    let data = gradients(LEN);
    println!(
        "{} MB of recorded gradients over one TCP connection, MTU 1500, one queue, one thread a shim; medians of {RUNS} \
         runs, least and most in brackets. CPU time of a shim's process by frame that crossed the wire, either way; of the \
         machine: hosts, shims and wire.\n",
        LEN / 1_000_000
    );
    println!(
        "| | Gbit/s of gradient | frames/s | sending shim, ns a frame | of it in user space | receiving shim | of it in \
         user space | machine |\n|---|---|---|---|---|---|---|---|"
    );
    let mut runs = ways.map(|_| Vec::new());
    // Turn by turn, so that all see the same neighbours on the machine.
    for _ in 0..RUNS {
        for (way, runs) in ways.iter().zip(&mut runs) {
            runs.extend(one(*way, &data));
        }
    }
    for (way, runs) in ways.iter().zip(&runs) {
        if runs.is_empty() {
            println!("| {} | not measured: no clang |", way.name());
            continue;
        }
        let gbits = spread(runs, |run| LEN as f64 * 8.0 / run.seconds / 1e9, 2);
        let rate = spread(runs, |run| run.frames / run.seconds, 0);
        let shims = [0, 1].map(|side| {
            if matches!(way, Way::Bridge | Way::Redirect) {
                return "| |".to_owned();
            }
            let all = spread(runs, |run| run.cpu[side].0 / run.frames, 0);
            let user = spread(runs, |run| run.cpu[side].1 / run.frames, 0);
            format!("| {all} | {user}")
        });
        let machine = spread(runs, |run| run.machine / run.frames, 0);
        println!("| {} | {gbits} | {rate} {} {} | {machine} |", way.name(), shims[0], shims[1]);
    }
    // Of each round, since neighbours come and go.
    let cost = |place: usize, side: usize| {
        let of = |run: &Run| run.cpu[side].0 / run.frames;
        let ratios =
            runs[place].iter().zip(&runs[2]).map(|(run, plain)| of(run) / of(plain)).collect::<Vec<_>>();
        spread(&ratios, |ratio| *ratio, 2)
    };
    println!(
        "\nCPU of compressing to that of plain forwarding in the same round: {} (routed) and {} (in-place) at the \
         sender, {} and {} at the receiver.\n",
        cost(3, 0),
        cost(4, 0),
        cost(3, 1),
        cost(4, 1)
    );
}

fn one(way: Way, data: &[u8]) -> Option<Run> {
    let lab = Lab::new(Plan::default())?;
    let mut redirecting = Vec::new();
    let shims = match way {
        Way::Bridge => vec![],
        Way::Redirect => {
            let object = std::fs::read(std::env::var_os("GRADWIRE_REDIRECT")?).ok()?;
            // Frames are lost on a veth whose peer does not poll, and no checksum is left to
            // offload behind a redirect.
            for side in Side::BOTH {
                for (place, name) in [(format!("h{}", side.name()), "eth0"), ("w".into(), side.name())] {
                    lab.run_in(&place, &format!("ethtool -K {name} gro on tx off"));
                }
            }
            redirecting.extend(Side::BOTH.map(|side| attach(&lab, side, &object, "redirect")));
            vec![]
        }
        Way::Plain => Side::BOTH.map(|side| Shim::start_with(&lab, side, ROUTED, "--plain")).into(),
        Way::Compressing { config, .. } => {
            Side::BOTH.map(|side| Shim::start_prompt(&lab, side, config)).into()
        }
    };
    let frames = || lab.wire_count(Side::A).1 + lab.wire_count(Side::B).1;
    let cpu = || shims.iter().map(Shim::cpu).collect::<Vec<_>>();
    let before = (frames(), cpu(), machine_ns());
    let (got, time) = transfer(&lab, ADDRESS, TAG, data);
    let after = (frames(), cpu(), machine_ns());
    if shims.is_empty() || way == Way::Plain {
        assert!(got == data);
    } else {
        assert_within_bound(data, &got);
    }
    let used = |side: usize| match (before.1.get(side), after.1.get(side)) {
        (Some(before), Some(after)) => ((after.0 - before.0) as f64, (after.1 - before.1) as f64 * 1e7),
        _ => (0.0, 0.0),
    };
    Some(Run {
        seconds: time.as_secs_f64(),
        frames: (after.0 - before.0) as f64,
        cpu: [used(0), used(1)],
        machine: after.2 - before.2,
    })
}

/// CPU time that the machine used, by all its processes and in interrupts, in nanoseconds.
fn machine_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let fields = stat.lines().next().unwrap().split_whitespace().skip(1);
    let ticks = fields.map(|field| field.parse::<u64>().unwrap()).collect::<Vec<_>>();
    // user, nice, system, idle, iowait, irq, softirq
    (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) as f64 * 1e7
}

/// `program` of `redirect.c` at both ports of one side, in native mode.
fn attach(lab: &Lab, side: Side, object: &[u8], program: &'static str) -> Vec<aya::Ebpf> {
    let place = format!("s{}", side.name());
    let ports = [lab.host_port(side), lab.network_port(side)];
    let index = ports.each_ref().map(|port| lab.link(&place, port)["ifindex"].as_u64().unwrap() as u32);
    let object = object.to_vec();
    let attach = move || {
        [(index[0], index[1]), (index[1], index[0])]
            .into_iter()
            .map(|(from, to)| {
                let mut ebpf = EbpfLoader::new().override_global("other", &to, true).load(&object).unwrap();
                let program: &mut Xdp = ebpf.program_mut(program).unwrap().try_into().unwrap();
                program.load().unwrap();
                program.attach_to_if_index(from, XdpMode::Driver).unwrap();
                ebpf
            })
            .collect()
    };
    lab.enter(&place, attach).join().unwrap()
}

fn wire() {
    println!(
        "Time to move recorded gradients over one TCP connection on a limited wire (tbf), medians of {RUNS} runs. \
         `possible`: the bytes on the wire of the untagged transfer to those of the tagged one.\n"
    );
    println!(
        "| wire | gradients | untagged | tagged | faster by | possible | part of it |\n|---|---|---|---|---|---|---|"
    );
    for (rate, len) in [("1gbit", 200_000_000), ("200mbit", 50_000_000), ("50mbit", 12_000_000)] {
        let lab = Lab::new(Plan::default()).unwrap();
        limit(&lab, rate);
        let _shims = Side::BOTH.map(|side| Shim::start_prompt(&lab, side, ROUTED));
        let data = gradients(len);
        let measure = |tos| {
            let before = lab.wire_count(Side::A).0;
            let seconds = through_shims(&lab, tos, &data);
            // The wire is idle again.
            thread::sleep(Duration::from_millis(200));
            (seconds, (lab.wire_count(Side::A).0 - before) as f64)
        };
        let runs = (0..RUNS).map(|_| (measure(0), measure(TAG))).collect::<Vec<_>>();
        let untagged = median(&runs, |run| run.0.0);
        let tagged = median(&runs, |run| run.1.0);
        let possible = median(&runs, |run| run.0.1 / run.1.1);
        println!(
            "| {rate}/s | {} MB | {untagged:.2} s | {tagged:.2} s | {:.2} | {possible:.2} | {:.2} |",
            len / 1_000_000,
            untagged / tagged,
            untagged / tagged / possible
        );
    }
}

/// The cost of a tag while the other end has no shim.
fn mixed() {
    println!(
        "Time to move recorded gradients over a new TCP connection, a shim at one end alone; medians of {RUNS} runs, \
         least and most in brackets, tagged to untagged within each run. No frame is compressed.\n"
    );
    println!(
        "| wire | shim at | gradients | untagged, ms | tagged, ms | tagged to untagged |\n|---|---|---|---|---|---|"
    );
    for rate in [Some("1gbit"), None] {
        for (side, end) in [(Side::A, "the sender"), (Side::B, "the receiver")] {
            let lab = Lab::new(Plan::default()).unwrap();
            if let Some(rate) = rate {
                limit(&lab, rate);
            }
            let shim = Shim::start_prompt(&lab, side, ROUTED);
            for len in [1_000_000, 50_000_000] {
                let runs = both(&lab, &gradients(len));
                println!(
                    "| {} | {end} | {} MB | {} | {} | {} |",
                    rate.unwrap_or("not limited"),
                    len / 1_000_000,
                    spread(&runs, |run| run.0, 1),
                    spread(&runs, |run| run.1, 1),
                    spread(&runs, |run| run.1 / run.0, 2)
                );
            }
            let [egress, ingress] = shim.outcomes();
            assert_eq!((egress.changed["compressed"], ingress.changed["restored"]), (0, 0));
        }
    }
}

/// Speed through shims, untagged and tagged, as ratios to the bridge that the same hosts had before
/// the shims started.
fn cost() {
    println!(
        "Speed of {} MB of recorded gradients over one TCP connection through shims at both ends, as a part of the bridge's speed \
         without shims in the same round; medians of {RUNS} rounds, least and most in brackets.\n",
        LEN / 1_000_000
    );
    println!(
        "| mode | bridge, Gbit/s | a program that only passes | untagged | tagged |\n|---|---|---|---|---|"
    );
    let data = gradients(LEN);
    let object = std::env::var_os("GRADWIRE_REDIRECT").map(|path| std::fs::read(path).unwrap());
    for mode in ["native", "generic"] {
        let config = format!("{ROUTED}[path]\nmode = \"{mode}\"\n");
        let round = |_| {
            let lab = Lab::new(Plan::default()).unwrap();
            let speed = |tos| LEN as f64 * 8.0 / through_shims(&lab, tos, &data) / 1e9;
            // The first transfer of a lab is slower: the bridge has yet to learn where hosts are.
            speed(0);
            let bridge = speed(0);
            // What a program costs that does nothing. Generic mode shares its cause, so it is
            // measured in native mode.
            let passing = object.as_ref().filter(|_| mode == "native").map(|object| {
                let _programs = Side::BOTH.map(|side| attach(&lab, side, object, "pass"));
                speed(0) / bridge
            });
            let _shims = Side::BOTH.map(|side| Shim::start_prompt(&lab, side, &config));
            (bridge, passing, speed(0) / bridge, speed(TAG) / bridge)
        };
        let runs = (0..RUNS).map(round).collect::<Vec<_>>();
        let passing = match runs[0].1 {
            Some(_) => spread(&runs, |run| run.1.unwrap(), 2),
            None => "not measured".to_owned(),
        };
        println!(
            "| {mode} | {} | {passing} | {} | {} |",
            spread(&runs, |run| run.0, 2),
            spread(&runs, |run| run.2, 2),
            spread(&runs, |run| run.3, 2)
        );
    }
}

/// Milliseconds untagged and tagged, of each round; either goes first in turn.
fn both(lab: &Lab, data: &[u8]) -> Vec<(f64, f64)> {
    let measure = |tos| {
        let (got, time) = transfer(lab, ADDRESS, tos, data);
        assert!(got == data);
        time.as_secs_f64() * 1e3
    };
    let round = |run| match run % 2 {
        0 => (measure(0), measure(TAG)),
        _ => {
            let tagged = measure(TAG);
            (measure(0), tagged)
        }
    };
    (0..RUNS).map(round).collect()
}

/// Seconds of a transfer that shims may compress if it is tagged, and that arrives as it was sent
/// otherwise.
fn through_shims(lab: &Lab, tos: u8, data: &[u8]) -> f64 {
    let (got, time) = transfer(lab, ADDRESS, tos, data);
    if tos == TAG {
        assert_within_bound(data, &got);
    } else {
        assert!(got == data);
    }
    time.as_secs_f64()
}

/// Limits the wire, either way.
fn limit(lab: &Lab, rate: &str) {
    for end in ["a", "b"] {
        lab.run_in("w", &format!("tc qdisc add dev {end} root tbf rate {rate} burst 64kb latency 50ms"));
    }
}

fn sorted<T>(runs: &[T], of: impl Fn(&T) -> f64) -> Vec<f64> {
    let mut values = runs.iter().map(of).collect::<Vec<_>>();
    values.sort_by(f64::total_cmp);
    values
}

fn median<T>(runs: &[T], of: impl Fn(&T) -> f64) -> f64 {
    sorted(runs, of).get(runs.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Median, least and most.
fn spread<T>(runs: &[T], of: impl Fn(&T) -> f64, digits: usize) -> String {
    let values = sorted(runs, of);
    let [least, .., most] = values[..] else { return format!("{:.digits$}", values[0]) };
    format!("{:.digits$} ({least:.digits$}-{most:.digits$})", values[values.len() / 2])
}
