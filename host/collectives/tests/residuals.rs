//! A residual is in units of the gradient of its tensor, whatever plan made it: any other plan
//! takes it over and delivers it.
//!
//! Each test compares with a sum in `f64`: residual before and gradient given are what is delivered
//! and the residual after.

mod support;

use std::net::{SocketAddr, UdpSocket};

use gradwire_collectives::{Coding, CollectivePlan, Layout, Link, Method, Residuals, Strategy};
use support::{Random, options, ranks, sum};

/// Name, rows, columns: a matrix, a large and a small vector, and a vector that fills no square.
const TENSORS: [(&str, usize, usize); 4] =
    [("fc", 40, 60), ("long", 1, 4096), ("bias", 1, 40), ("odd", 1, 1543)];
const RANKS: usize = 3;

/// Ways to exchange, and how far what they deliver may be from what they are given, as a part of
/// the tensor's largest value: they drop what they lose. All others lose nothing but roundings.
const PLANS: &[(&str, f64)] = &[
    ("f32", 0.0),
    ("f16", 0.0),
    ("trunc:16", 0.02),
    ("q8", 0.0),
    ("q8:256", 0.0),
    ("q4", 0.0),
    ("q4:255", 0.0),
    ("3lc:1", 0.0),
    ("3lc:1.5:1024", 0.0),
    ("onebit", 0.0),
    ("onebit:256", 0.0),
    ("tbq:0.5", 0.0),
    ("terngrad:8", 0.05),
    ("dgc:5", 0.0),
    ("graddrop:90", 0.0),
    ("low-rank:4", 0.0),
    ("low-rank:4:60", 0.0),
    ("bounded:6", 0.0),
    ("ring:2:10", 0.02),
    ("ring:1:8", 0.06),
    ("in-network", 0.02),
    ("hierarchy:2:q8", 0.0),
    ("hierarchy:2:servers:3lc:1:1024", 0.0),
    ("strategy = \"all-gather\"\ncodec = \"dgc:5\"\nsmall = 0\npartitions = 1", 0.0),
    ("strategy = \"servers\"\ncodec = \"q8\"\nsmall = 5000\nsmall_codec = \"onebit\"", 0.0),
    ("strategy = \"halving-doubling\"\ncodec = \"onebit\"\npartitions = 7", 0.0),
];

/// The plan of this name; an aggregator is none that ever answers, so ranks sum.
fn method(text: &str, silent: SocketAddr) -> Method {
    let at = format!("in-network:{silent}");
    if text == "in-network" { at.parse().unwrap() } else { text.parse().unwrap() }
}

fn layout() -> Layout {
    Layout::new(TENSORS.map(|(name, rows, cols)| (name, rows * cols))).unwrap()
}

const ROWS: [usize; 4] = [40, 1, 1, 1];

fn exchange(method: &Method, link: &mut Link, gradient: Vec<f32>, residuals: &mut Residuals) -> Vec<f32> {
    let mut buffer = gradient;
    method.exchange(link, &mut buffer, &layout(), &ROWS, residuals).unwrap();
    buffer
}

fn all_held(residuals: &Residuals) -> Vec<f32> {
    let of = |(name, rows, cols): (&str, usize, usize)| match residuals.get(name) {
        Some(values) if !values.is_empty() => values.to_vec(),
        _ => vec![0.0; rows * cols],
    };
    TENSORS.into_iter().flat_map(of).collect()
}

/// A socket that nobody answers at.
fn silent() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    socket.connect(at).unwrap();
    (socket, at)
}

/// Every plan holds something back; every other plan goes on from the checkpoint.
#[test]
fn every_plan_takes_over_the_residual_of_every_other() {
    let (_socket, silent) = silent();
    // Far from 1, since a scale that is lost shows there. Thresholds and halves need values of a
    // common size.
    for size in [1.0, 700.0, 0.002] {
        let plans: Vec<_> =
            PLANS.iter().filter(|(text, _)| size == 1.0 || !text.starts_with("tbq")).collect();
        let gradient = |rank: usize, round: u64| -> Vec<f32> {
            Random(1000 * rank as u64 + round)
                .values(layout().values())
                .iter()
                .map(|value| value * size)
                .collect()
        };
        // By rank, then by pair: residual before, given, delivered, residual after.
        let all = ranks(RANKS, "127.0.0.1:0", &options(true), |mut link| {
            let rank = link.rank();
            let mut seen = Vec::new();
            for (before, _) in &plans {
                let (before, mut residuals) = (method(before, silent), Residuals::new());
                for round in 0..2 {
                    exchange(&before, &mut link, gradient(rank, round), &mut residuals);
                }
                let checkpoint = residuals.save();
                for (after, _) in &plans {
                    let mut residuals = Residuals::load(&checkpoint).unwrap();
                    let (before, given) = (all_held(&residuals), gradient(rank, 9));
                    let delivered =
                        exchange(&method(after, silent), &mut link, given.clone(), &mut residuals);
                    seen.push([before, given, delivered, all_held(&residuals)]);
                }
            }
            seen
        });
        let pairs =
            plans.iter().flat_map(|before| plans.iter().map(move |after| (before.0, after.0, after.1)));
        for (pair, (before, after, drops)) in pairs.enumerate() {
            let of = |what: usize| all.iter().map(|seen| seen[pair][what].clone()).collect::<Vec<_>>();
            let (was, given, residuals) = (of(0), of(1), of(3));
            let delivered = &all[0][pair][2];
            for seen in &all {
                assert!(seen[pair][2] == *delivered, "from '{before}' to '{after}': replicas differ");
            }
            for ((name, ..), (_, range)) in TENSORS.iter().zip(layout().tensors()) {
                let sums = range.clone().map(|at| (sum(&was, at), sum(&given, at), sum(&residuals, at), at));
                let sums: Vec<_> = sums.collect();
                let most = sums.iter().fold(0.0, |most: f64, (was, given, ..)| most.max(was.1 + given.1));
                for (was, given, residuals, at) in sums {
                    let off = was.0 + given.0 - f64::from(delivered[at]) - residuals.0;
                    assert!(
                        off.abs() <= (drops + 2e-5) * most,
                        "from '{before}' to '{after}', {name}, value {at}: residual {} and given {}, of at most {most}; delivered {} \
                         and residual {}, which is off by {off}",
                        was.0,
                        given.0,
                        delivered[at],
                        residuals.0
                    );
                }
            }
        }
    }
}

/// DDP gives zeros for a parameter that a rank did not use, and discards the result if no rank used
/// it. So no residual may be in such a result; a checkpoint's waits as well, also that of a tensor
/// which another plan sends together with others.
#[test]
fn residuals_wait_for_a_gradient() {
    let (_socket, silent) = silent();
    const ROUNDS: u64 = 6;
    let used = |tensor: usize, rank: usize, round: u64| match round {
        0 | 1 => tensor as u64 % 2 == round,
        2 => rank == 1,
        3 => rank != 1,
        4 => false,
        _ => true,
    };
    let gradient = |rank: usize, round: u64| -> Vec<f32> {
        let mut values = Random(1000 * rank as u64 + round).values(layout().values());
        for (tensor, (_, range)) in layout().tensors().iter().enumerate() {
            if !used(tensor, rank, round) {
                values[range.clone()].fill(0.0);
            }
        }
        values
    };
    let before = "strategy = \"servers\"\ncodec = \"onebit\"\nsmall = 0".parse::<Method>().unwrap();
    // By rank, then by plan: residual before, delivered by round, residual after.
    let all = ranks(RANKS, "127.0.0.1:0", &options(true), |mut link| {
        let rank = link.rank();
        let mut seen = Vec::new();
        for (after, _) in PLANS {
            let mut residuals = Residuals::new();
            exchange(&before, &mut link, gradient(rank, 9), &mut residuals);
            let (mut seen_now, after) = (vec![all_held(&residuals)], method(after, silent));
            for round in 0..ROUNDS {
                seen_now.push(exchange(&after, &mut link, gradient(rank, round), &mut residuals));
            }
            seen_now.push(all_held(&residuals));
            seen.push(seen_now);
        }
        seen
    });
    let given: Vec<Vec<_>> =
        (0..ROUNDS).map(|round| (0..RANKS).map(|rank| gradient(rank, round)).collect()).collect();
    for (plan, (after, drops)) in PLANS.iter().enumerate() {
        let of = |what: usize| all.iter().map(|seen| seen[plan][what].clone()).collect::<Vec<_>>();
        let (was, residuals) = (of(0), of(ROUNDS as usize + 1));
        for (tensor, (name, range)) in layout().tensors().iter().enumerate() {
            let (mut most, mut off, mut waits) = (0.0f64, 0.0f64, false);
            for at in range.clone() {
                let (before, size) = sum(&was, at);
                most = most.max(size);
                waits |= size > 0.0;
                let mut missing = before - sum(&residuals, at).0;
                for (round, given) in (0..ROUNDS).zip(&given) {
                    let delivered = all[0][plan][round as usize + 1][at];
                    let (given, size) = sum(given, at);
                    if (0..RANKS).any(|rank| used(tensor, rank, round)) {
                        most = most.max(size);
                        missing += given - f64::from(delivered);
                    } else {
                        assert_eq!(delivered, 0.0, "'{after}', round {round}, {name}, value {at}");
                    }
                }
                off = off.max(missing.abs());
            }
            assert!(waits, "{name}: no residual");
            assert!(off <= (4.0 * drops + 1e-4) * most, "'{after}', {name}: off by {off}, of at most {most}");
        }
    }
}

/// If a plan sends all of a tensor at once, nothing of it stays behind.
#[test]
fn tensors_that_are_sent_whole_leave_no_residual() {
    let (_socket, silent) = silent();
    let whole: [(&str, &[&str]); 6] = [
        ("f32", &["fc", "long", "bias", "odd"]),
        ("ring:2:10", &["fc", "long", "bias", "odd"]),
        ("in-network", &["fc", "long", "bias", "odd"]),
        ("low-rank:4", &["long", "bias", "odd"]),
        ("q8", &["bias"]),
        ("strategy = \"butterfly\"\ncodec = \"f32\"", &["fc", "long", "bias", "odd"]),
    ];
    ranks(RANKS, "127.0.0.1:0", &options(true), |mut link| {
        let gradient = Random(link.rank() as u64).values(layout().values());
        let mut first = Residuals::new();
        let all = "strategy = \"servers\"\ncodec = \"3lc:1\"\nsmall = 0".parse().unwrap();
        exchange(&all, &mut link, gradient, &mut first);
        assert!(first.tensors().all(|(_, values)| values.iter().any(|value| *value != 0.0)));
        for (plan, tensors) in whole {
            let mut residuals = Residuals::load(&first.save()).unwrap();
            exchange(&method(plan, silent), &mut link, vec![0.001; layout().values()], &mut residuals);
            for name in tensors {
                let left = residuals.get(name).unwrap_or_default().iter().find(|value| **value != 0.0);
                assert_eq!(left, None, "'{plan}' keeps a residual of {name}");
            }
        }
    });
}

/// A plan that a library user gives to a link, not by way of a method.
#[test]
fn an_aggregator_is_sent_the_residual() {
    const GIVEN: f32 = 0.125;
    let (_socket, silent) = silent();
    let all = ranks(RANKS, "127.0.0.1:0", &options(false), |mut link| {
        let mut residuals = Residuals::new();
        let q8 = CollectivePlan::of("q8".parse::<Method>().map(coding).unwrap(), Strategy::Servers(None));
        let mut buffer = Random(link.rank() as u64).values(layout().values());
        link.exchange(&mut buffer, &layout(), &q8, &mut residuals).unwrap();
        let before = all_held(&residuals);
        let aggregator: CollectivePlan =
            format!("strategy = \"in-network:{silent}\"\ncodec = \"wire:2:20\"").parse().unwrap();
        let mut buffer = vec![GIVEN; layout().values()];
        link.exchange(&mut buffer, &layout(), &aggregator, &mut residuals).unwrap();
        (before, buffer, all_held(&residuals))
    });
    let before: Vec<_> = all.iter().map(|rank| rank.0.clone()).collect();
    for at in 0..layout().values() {
        let (was, size) = sum(&before, at);
        let off = was + (RANKS as f64) * f64::from(GIVEN) - f64::from(all[0].1[at]);
        assert!(off.abs() <= 3.0 * 2f64.powi(-20) + 1e-5 * size, "value {at}: {was} became {}", all[0].1[at]);
        assert!(all.iter().all(|rank| rank.2[at] == 0.0), "value {at} is in a residual still");
    }
}

fn coding(method: Method) -> Coding {
    let Method::Plan(plan) = method else { panic!("{method}") };
    plan.coding()
}

/// A residual of another shape is an error before anything is exchanged: the link, the gradient and
/// the residual are as before.
#[test]
fn a_residual_of_another_shape_is_refused_and_changes_nothing() {
    let (_socket, silent) = silent();
    ranks(RANKS, "127.0.0.1:0", &options(true), |mut link| {
        let mut residuals = Residuals::new();
        let gradient = Random(link.rank() as u64).values(layout().values());
        exchange(&"3lc:1".parse().unwrap(), &mut link, gradient.clone(), &mut residuals);
        let saved = residuals.save();
        // The last one has another length, so the others could have been taken.
        let other = TENSORS.map(|(name, rows, cols)| (name, rows * cols - usize::from(name == "odd")));
        let other = Layout::new(other).unwrap();
        for plan in ["f32", "q8", "low-rank:4", "ring:2:10", "in-network"] {
            let mut buffer = gradient[..other.values()].to_vec();
            let error = method(plan, silent).exchange(&mut link, &mut buffer, &other, &ROWS, &mut residuals);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("had 1543 values and now has 1542"), "{plan}: {error}");
            assert!(buffer == gradient[..other.values()], "{plan}");
            assert!(residuals.save() == saved, "{plan}");
        }
        exchange(&"f32".parse().unwrap(), &mut link, gradient, &mut residuals);
    });
}

/// A link that cannot exchange by a plan says so, and keeps the residual.
#[test]
fn a_plan_that_the_link_refuses_changes_nothing() {
    ranks(RANKS, "127.0.0.1:0", &options(false), |mut link| {
        let mut residuals = Residuals::new();
        let gradient = Random(link.rank() as u64).values(layout().values());
        exchange(&"3lc:1".parse().unwrap(), &mut link, gradient.clone(), &mut residuals);
        let saved = residuals.save();
        let mut buffer = gradient.clone();
        let ring: Method = "ring:2:10".parse().unwrap();
        let error =
            ring.exchange(&mut link, &mut buffer, &layout(), &ROWS, &mut residuals).unwrap_err().to_string();
        assert!(error.contains("Options::tagged"), "{error}");
        assert!(buffer == gradient && residuals.save() == saved);
    });
}

/// `dgc` with a momentum is for an optimizer without one, and small tensors are none of the
/// codec's: they get it all the same, as SGD with a momentum has it, also after a checkpoint and
/// with fewer ranks.
#[test]
fn small_tensors_get_the_momentum_that_the_optimizer_has_not() {
    let layout = Layout::new([("fc", 2400), ("bias", 40), ("scale", 7)]).unwrap();
    for (small, off) in [("", 1e-5), ("\nsmall_codec = \"f16\"", 0.01)] {
        let plan = format!("strategy = \"servers\"\ncodec = \"dgc:10:0.9\"{small}");
        small_tensors_get_a_momentum(&layout, &plan.parse().unwrap(), off);
    }
}

fn small_tensors_get_a_momentum(layout: &Layout, plan: &CollectivePlan, off: f64) {
    let gradient = |rank: usize, round: u64| Random(1000 * rank as u64 + round).values(layout.values());
    let mut velocity = vec![0.0f64; layout.values()];
    let mut before: Vec<Residuals> = Vec::new();
    for (count, rounds) in [(3, 0..4), (2, 4..8), (3, 8..10), (1, 10..12)] {
        let all = ranks(count, "127.0.0.1:0", &options(false), |mut link| {
            let mut residuals = Residuals::share(before.clone(), link.rank(), count).unwrap();
            let rounds = rounds.clone().map(|round| {
                let mut buffer = gradient(link.rank(), round);
                link.exchange(&mut buffer, layout, plan, &mut residuals).unwrap();
                buffer
            });
            (rounds.collect::<Vec<_>>(), Residuals::load(&residuals.save()).unwrap())
        });
        for (at, round) in rounds.enumerate() {
            for (i, velocity) in velocity.iter_mut().enumerate().skip(2400) {
                let given: f64 = (0..count).map(|rank| f64::from(gradient(rank, round)[i])).sum();
                *velocity = 0.9 * *velocity + given;
                let delivered = f64::from(all[0].0[at][i]);
                assert!(
                    (delivered - *velocity).abs() < off * velocity.abs().max(1.0),
                    "round {round}, value {i}: {delivered} for {velocity}"
                );
            }
        }
        before = all.into_iter().map(|(_, residuals)| residuals).collect();
    }
}
