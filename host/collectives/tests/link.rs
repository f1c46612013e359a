//! Exchanges over TCP on loopback, each rank a thread: results, replays, agreement, and what a
//! stranger gets.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gradwire_codecs::{Codec, Raw, Registry};
use gradwire_collectives::coordinator::Limits;
use gradwire_collectives::graph::Format;
use gradwire_collectives::{
    Coding, CollectivePlan, GraphPlan, Layout, LinkError, Listening, Options, Order, Record, Residuals,
    Strategy, Token,
};
use support::{Random, options, ranks, rounding, sum};

fn graphs(strategy: Strategy, codec: &str) -> GraphPlan {
    GraphPlan { small: 40, ..GraphPlan::of(Coding::parse(codec, Registry::BUILT_IN).unwrap(), strategy) }
}

fn plan(strategy: Strategy, codec: &str) -> CollectivePlan {
    graphs(strategy, codec).into()
}

const TENSORS: [(&str, usize); 5] =
    [("fc1.weight", 3001), ("fc1.bias", 31), ("fc2.weight", 700), ("fc2.bias", 7), ("none", 0)];

/// A result, what was recorded, and the residual after it.
type Seen = (Vec<f32>, Record, Vec<f32>);

/// Some exchanges with this plan, at so many ranks; each is checked against sums in `f64` and
/// against its own messages.
fn exchange(count: usize, at: &str, plan: &CollectivePlan) {
    let layout = Layout::new(TENSORS).unwrap();
    let values = layout.values();
    let gradient = |rank: usize, round: u64| Random(rank as u64 * 1000 + round).values(values);
    let rounds = 3;
    let all = ranks(count, at, &Options { tagged: plan.tagged(), ..options(false) }, |mut link| {
        let mut residuals = Residuals::new();
        let mut seen = Vec::new();
        for round in 0..rounds {
            let mut buffer = gradient(link.rank(), round);
            let mut record = Record::default();
            link.exchange_recorded(&mut buffer, &layout, plan, &mut residuals, &mut record).unwrap();
            let after: Vec<f32> =
                TENSORS.iter().flat_map(|(name, _)| residuals.get(name).unwrap().to_vec()).collect();
            seen.push((buffer, record, after));
        }
        link.close();
        seen
    });
    for round in 0..rounds as usize {
        let result = &all[0][round].0;
        let of = |pick: &dyn Fn(&Seen) -> Vec<f32>| -> Vec<Vec<f32>> {
            all.iter().map(|rounds| pick(&rounds[round])).collect()
        };
        let (given, residuals) = (of(&|seen| seen.1.given.clone()), of(&|seen| seen.2.clone()));
        let dropped = of(&|seen| seen.1.dropped.clone());
        for rounds in &all {
            let (buffer, record, _) = &rounds[round];
            assert!(buffer.iter().zip(result).all(|(a, b)| a.to_bits() == b.to_bits()), "replicas differ");
            assert_eq!(
                replay(record, values),
                buffer.iter().map(|value| f64::from(*value)).collect::<Vec<_>>()
            );
        }
        for (at, &delivered) in result.iter().enumerate() {
            let [given, residuals, dropped] = [&given, &residuals, &dropped].map(|vectors| sum(vectors, at));
            let size = given.1 + residuals.1 + dropped.1 + f64::from(delivered).abs();
            let off = given.0 - f64::from(delivered) - residuals.0 - dropped.0;
            assert!(off.abs() <= 4.0 * rounding(count, size), "value {at}: off by {off} of {size}");
        }
    }
}

/// Sums of the messages, in `f64`; sums of them as `f32` adds, in the order of the record.
fn replay(record: &Record, values: usize) -> Vec<f64> {
    let mut result = vec![0.0f32; values];
    for decoded in &record.decoded {
        let codec: &dyn Codec =
            if decoded.message.format == Format::Raw { &Raw } else { decoded.coding.codec() };
        let mut part = vec![0.0; decoded.ranges.iter().map(ExactSizeIterator::len).sum()];
        codec.merge(&decoded.bytes, &mut part).unwrap();
        let to = decoded.ranges.iter().cloned().flatten();
        to.zip(part).for_each(|(at, value)| result[at] += value);
    }
    result.into_iter().map(f64::from).collect()
}

#[test]
fn every_strategy_gets_the_sum_over_tcp() {
    for strategy in Strategy::EXAMPLES {
        for count in [2, 3, 4] {
            exchange(count, "127.0.0.1:0", &plan(strategy, "f32"));
        }
    }
}

#[test]
fn every_codec_delivers_all_but_the_residual() {
    for codec in [
        "f16",
        "q8:256",
        "q4:256",
        "3lc:1.5:64",
        "onebit",
        "tbq:0.05",
        "terngrad:4",
        "dgc:5",
        "graddrop:90",
        "low-rank:4",
        "bounded:8",
    ] {
        exchange(3, "127.0.0.1:0", &plan(Strategy::Servers(None), codec));
        exchange(3, "127.0.0.1:0", &plan(Strategy::AllGather, codec));
    }
    exchange(
        4,
        "127.0.0.1:0",
        &plan(Strategy::Hierarchy { group: 2, between: gradwire_collectives::Between::Rings }, "q8"),
    );
}

#[test]
fn one_rank_and_ipv6_and_tagged_rings_work_too() {
    exchange(1, "127.0.0.1:0", &plan(Strategy::Ring, "q8"));
    exchange(3, "[::1]:0", &plan(Strategy::Ring, "q8"));
    for (count, at) in [(2, "127.0.0.1:0"), (3, "[::1]:0"), (4, "127.0.0.1:0")] {
        exchange(count, at, &plan(Strategy::Ring, "wire:2:10"));
    }
    for (count, group) in [(4, 1), (4, 2), (6, 2), (6, 3), (3, 3)] {
        let strategy = Strategy::Hierarchy { group, between: gradwire_collectives::Between::Rings };
        exchange(count, "127.0.0.1:0", &plan(strategy, "wire:2:10"));
    }
}

#[test]
fn more_and_fewer_partitions_than_ranks_and_any_order_of_sends() {
    for (partitions, order) in [
        (1, Order::Turns),
        (7, Order::Turns),
        (7, Order::Free),
        (40, Order::Turns),
        (1, Order::Coordinated(Limits::default())),
        (7, Order::Coordinated(Limits { enough: 1, patience: Duration::ZERO })),
        (40, Order::Coordinated(Limits::default())),
    ] {
        for strategy in [Strategy::Ring, Strategy::Servers(None), Strategy::HalvingDoubling] {
            let mut plan = graphs(strategy, "q8");
            plan.others.partitions = Some(partitions);
            (plan.order, plan.bulk) = (order, 200);
            exchange(4, "127.0.0.1:0", &plan.into());
        }
    }
    // Tagged connections are others than those of host codecs, and wait for the same coordinator.
    exchange(
        3,
        "127.0.0.1:0",
        &GraphPlan {
            order: Order::Coordinated(Limits::default()),
            bulk: 0,
            ..graphs(Strategy::Ring, "wire:2:10")
        }
        .into(),
    );
}

/// A message may still wait for the coordinator when the next exchange begins, whose plan has
/// another order.
#[test]
fn orders_may_change_from_one_exchange_to_the_next() {
    let layout = Layout::new([("a", 20_000)]).unwrap();
    ranks(4, "127.0.0.1:0", &options(false), |mut link| {
        let rank = link.rank();
        for round in 0..60 {
            let order = [Order::Coordinated(Limits::default()), Order::Turns, Order::Free][round % 3];
            let mut plan = graphs(Strategy::Servers(Some(1 + round % 2)), "f32");
            plan.others.partitions = Some(5);
            (plan.order, plan.bulk) = (order, 0);
            let plan = plan.into();
            let mut values = vec![(rank + round) as f32; 20_000];
            link.exchange(&mut values, &layout, &plan, &mut Residuals::new()).unwrap();
            assert_eq!(values, vec![(6 + 4 * round) as f32; 20_000]);
        }
    });
}

#[test]
fn the_pair_of_calls_differs_only_in_the_tag() {
    let gradient = |rank: usize| Random(rank as u64).values(999);
    let wire = gradwire_collectives::Wire::new(2, 10, 0).unwrap();
    let all = ranks(3, "127.0.0.1:0", &options(true), |mut link| {
        let (mut exact, mut coded) = (gradient(link.rank()), gradient(link.rank()));
        link.all_reduce(&mut exact).unwrap();
        link.all_reduce_comp(&mut coded, wire).unwrap();
        (exact, coded)
    });
    assert!(all.iter().all(|other| *other == all[0]));
    let gradients: Vec<Vec<f32>> = (0..3).map(gradient).collect();
    for (at, (exact, coded)) in all[0].0.iter().zip(&all[0].1).enumerate() {
        let (sum, size) = sum(&gradients, at);
        assert!((f64::from(*exact) - sum).abs() <= rounding(3, size));
        // Nothing compresses on loopback, so only the owner's profile shows.
        assert!((exact - coded).abs() <= wire.profile().bound(), "{exact} {coded}");
    }
    assert_ne!(all[0].0, all[0].1);
}

/// Two ranks that exchange with different arguments; what each is told.
fn disagree(plans: [&CollectivePlan; 2], tensors: [&[(&str, usize)]; 2]) -> Vec<String> {
    ranks(2, "127.0.0.1:0", &options(false), |mut link| {
        let layout = Layout::new(tensors[link.rank()].iter().copied()).unwrap();
        let mut buffer = vec![1.0; layout.values()];
        let error =
            link.exchange(&mut buffer, &layout, plans[link.rank()], &mut Residuals::new()).unwrap_err();
        let again = link.exchange(&mut buffer, &layout, plans[link.rank()], &mut Residuals::new());
        assert!(matches!(again, Err(LinkError::Closed(Some(_)))), "{again:?}");
        error.to_string()
    })
}

#[test]
fn ranks_that_disagree_are_both_named() {
    let (ring, q8) = (plan(Strategy::Ring, "f32"), plan(Strategy::Ring, "q8"));
    let servers = plan(Strategy::Servers(None), "f32");
    let mut two = graphs(Strategy::Ring, "f32");
    two.others.partitions = Some(7);
    let two = two.into();
    let a: &[(&str, usize)] = &[("a", 100)];
    for (plans, tensors, says) in [
        ([&ring, &q8], [a, a], ["'ring f32'", "'ring q8'"]),
        ([&ring, &servers], [a, a], ["'ring f32'", "'servers f32'"]),
        ([&ring, &two], [a, a], ["in 2 partitions", "in 7 partitions"]),
        ([&ring, &ring], [a, &[("a", 101)]], ["100", "101"]),
        ([&ring, &ring], [a, &[("b", 100)]], ["ranks", "layout"]),
    ] {
        let told = disagree(plans, tensors);
        assert_eq!(told[0], told[1], "both are told the same");
        assert!(says.iter().all(|says| told[0].contains(says)), "{}", told[0]);
    }
}

#[test]
fn a_rank_that_exchanges_more_often_gets_an_answer() {
    let (layout, ring) = (Layout::new([("a", 100)]).unwrap(), plan(Strategy::Ring, "f32"));
    let told = ranks(3, "127.0.0.1:0", &options(false), |mut link| {
        let rank = link.rank();
        let mut exchange = || link.exchange(&mut vec![1.0; 100], &layout, &ring, &mut Residuals::new());
        if rank == 1 {
            exchange().unwrap();
            return None;
        }
        // Who is slow may hear of it in the first exchange: another one waits in the second.
        Some(exchange().and_then(|_| exchange()).unwrap_err().to_string())
    });
    for told in told.into_iter().flatten() {
        assert!(told.contains("rank 1 left"), "{told}");
    }
}

#[test]
fn checksums_that_differ_name_both() {
    let told = ranks(3, "127.0.0.1:0", &options(false), |mut link| {
        link.compare(7, "so what").unwrap();
        link.compare(if link.rank() == 2 { 8 } else { 7 }, "so what").unwrap_err().to_string()
    });
    for told in told {
        assert!(told.contains("rank 2 has 0000000000000008") && told.contains("so what"), "{told}");
    }
}

#[test]
fn wrong_arguments_leave_the_link_as_it_was() {
    let layout = Layout::new([("a", 100)]).unwrap();
    ranks(2, "127.0.0.1:0", &options(false), |mut link| {
        let mut residuals = Residuals::new();
        let wire = plan(Strategy::Ring, "wire:2:10");
        let short = link.exchange(&mut [0.0; 99], &layout, &wire, &mut residuals).unwrap_err();
        assert!(short.to_string().contains("99 values and the layout 100"), "{short}");
        let untagged = link.exchange(&mut [0.0; 100], &layout, &wire, &mut residuals).unwrap_err();
        assert!(untagged.to_string().contains("Options::tagged"), "{untagged}");
        let servers =
            link.exchange(&mut [0.0; 100], &layout, &plan(Strategy::Servers(Some(3)), "f32"), &mut residuals);
        assert!(servers.unwrap_err().to_string().contains("expected 1 to 2"));
        let mut values = [1.0; 100];
        link.exchange(&mut values, &layout, &plan(Strategy::Ring, "f32"), &mut residuals).unwrap();
        assert_eq!(values, [2.0; 100]);
        let other = Layout::new([("a", 101)]).unwrap();
        let residuals =
            link.exchange(&mut [0.0; 101], &other, &plan(Strategy::Ring, "f32"), &mut residuals).unwrap_err();
        assert!(residuals.to_string().contains("had 100 values and now has 101"), "{residuals}");
    });
}

/// A stranger's connection, and what the ranks make of it.
fn stranger(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    // Whoever refuses the first bytes may have closed already, and reset the connection for what it
    // did not read.
    _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn strangers_cannot_take_a_ranks_place() {
    let options = options(false);
    let listening = Listening::bind("127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
    let root = listening.address().unwrap();
    std::thread::scope(|scope| {
        let zero = scope.spawn(|| listening.join(0, 2, root).unwrap());
        // Nothing, something else, and a greeting without a proof.
        assert!(stranger(root, b"").is_empty());
        assert!(stranger(root, &[b'x'; 200]).is_empty());
        let hello = [&b"gradwire\x01\x01"[..], &[1, 0, 0, 0, 2, 0, 0, 0], &[7; 32], &[9; 32]].concat();
        assert_eq!(stranger(root, &hello).len(), 64, "a nonce and a proof, but no welcome");
        let bind = |options| Listening::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let wrong = bind(Options { token: Token::random().unwrap(), ..options.clone() })
            .join(1, 2, root)
            .unwrap_err();
        assert!(matches!(wrong, LinkError::Token { .. }), "{wrong}");
        let three = bind(options.clone()).join(1, 3, root).unwrap_err().to_string();
        assert!(three.contains("it expects 2 ranks, this rank 3"), "{three}");
        let one = bind(options.clone()).join(1, 2, root).unwrap();
        drop((zero.join().unwrap(), one));
    });
}

#[test]
fn ranks_that_do_not_come_are_named_with_who_was_refused() {
    // On a busy machine a stranger may not have been heard when the time is over: then ranks wait
    // longer.
    for seconds in [1, 2, 4, 8, 16, 32, 64] {
        let options = Options { timeout: Duration::from_secs(seconds), ..options(false) };
        let listening = Listening::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let root = listening.address().unwrap();
        // It is there before the time begins to run.
        let mut stranger = TcpStream::connect(root).unwrap();
        stranger.write_all(&[b'x'; 50]).unwrap();
        let told = listening.join(0, 3, root).unwrap_err().to_string();
        let missing = format!(
            "ranks 1, 2 did not connect within {seconds}s to {root}, the address that they were told"
        );
        assert!(told.starts_with(&missing), "{told}");
        if let Some(refused) = told.strip_prefix(&format!("{missing}; refused: 127.0.0.1:")) {
            assert!(refused.contains("bad magic"), "{told}");
            return;
        }
    }
    panic!("a stranger was not refused within 64 s");
}

/// A stranger that says nothing holds up no start: if a rank waited for it, the others would take
/// that rank for stopped.
#[test]
fn a_strangers_silent_connection_holds_up_nobody() {
    (0..2).for_each(a_stranger_at);
}

fn a_stranger_at(visited: usize) {
    let layout = Layout::new([("a", 100)]).unwrap();
    // On a busy machine a rank may be away for longer than this allows: then all have more time.
    // From 20 s on, nobody would be missed for the 10 s that a handshake may take.
    for seconds in [8, 12, 16, 19] {
        let options = Options { timeout: Duration::from_secs(seconds), ..options(false) };
        let bind = || Listening::bind("127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
        let (zero, one) = (bind(), bind());
        let root = zero.address().unwrap();
        let stranger = TcpStream::connect([&zero, &one][visited].address().unwrap()).unwrap();
        let exchanged = std::thread::scope(|scope| {
            let join = |rank: usize, listening: Listening| {
                let mut link = listening.join(rank, 2, root)?;
                link.exchange(&mut [1.0; 100], &layout, &plan(Strategy::Ring, "f32"), &mut Residuals::new())
            };
            let one = scope.spawn(move || join(1, one));
            [join(0, zero), one.join().unwrap()].map(|result| result.map_err(|error| error.to_string()))
        });
        drop(stranger);
        if exchanged.iter().all(Result::is_ok) {
            return;
        }
        eprintln!("a stranger at rank {visited}, {seconds} s: {exchanged:?}");
    }
    panic!("a silent connection to rank {visited} ends the job");
}

#[test]
fn residuals_survive_a_checkpoint_and_another_number_of_ranks() {
    let layout = Layout::new([("a", 500)]).unwrap();
    let plan = plan(Strategy::Servers(None), "3lc:1.75");
    let gradient = |rank: usize, round: u64| Random(rank as u64 * 100 + round).values(500);
    let round = |count: usize, before: Vec<Residuals>, round: u64| -> (Vec<f32>, Vec<Residuals>) {
        let after = ranks(count, "127.0.0.1:0", &options(false), |mut link| {
            let mut residuals = Residuals::share(before.clone(), link.rank(), count).unwrap();
            let mut buffer = gradient(link.rank(), round);
            link.exchange(&mut buffer, &layout, &plan, &mut residuals).unwrap();
            (buffer, Residuals::load(&residuals.save()).unwrap())
        });
        (after[0].0.clone(), after.into_iter().map(|(_, residuals)| residuals).collect())
    };
    let (first, residuals) = round(4, Vec::new(), 0);
    let (second, residuals) = round(3, residuals, 1);
    let (third, residuals) = round(2, residuals, 2);
    for at in 0..500 {
        let given = (0..4)
            .map(|rank| gradient(rank, 0))
            .chain((0..3).map(|rank| gradient(rank, 1)))
            .chain((0..2).map(|rank| gradient(rank, 2)));
        let given = sum(&given.collect::<Vec<_>>(), at);
        let residuals: Vec<Vec<f32>> =
            residuals.iter().map(|residuals| residuals.get("a").unwrap().to_vec()).collect();
        let got = sum(&[first.clone(), second.clone(), third.clone()], at);
        let kept = sum(&residuals, at);
        let off = given.0 - got.0 - kept.0;
        assert!(off.abs() <= 16.0 * rounding(4, given.1 + got.1 + kept.1), "value {at}: off by {off}");
    }
}
