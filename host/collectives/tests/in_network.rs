//! Sums in the network: ranks on loopback, an aggregator that fails in every way, and sums that
//! stay exact.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use gradwire::Millis;
use gradwire::aggregate::{Aggregator as Engine, Emitted, Settings, To};
use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::wire::chunk::{Body, Limits, Packet, Refusal};
use gradwire_collectives::{
    Aggregator, CollectivePlan, InNetwork, Layout, Link, LinkError, Method, Residuals,
};
use support::{Random, options, ranks};

const ANYWHERE: &str = "127.0.0.1:0";

/// Faults of an aggregator.
#[derive(Default)]
struct Faults {
    /// It answers nothing.
    dead: AtomicBool,
    /// It loses one packet in so many, each way; none if 0.
    lossy: AtomicU64,
    /// Ranks that get no results.
    deaf: Mutex<Vec<u8>>,
    /// It dies when it has sent so many packets.
    dies_after: AtomicU64,
    /// Packets sent.
    sent: AtomicU64,
    /// When this worker contributes, somebody else refuses it in the aggregator's name: the
    /// aggregator's epoch were so far ahead.
    forged: Mutex<Option<(u8, u32)>>,
}

/// Runs `work` with the address of an aggregator with such faults.
fn with_aggregator<T>(faults: &Faults, work: impl FnOnce(SocketAddr) -> T) -> T {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&socket, faults, &stop));
        let result = catch_unwind(AssertUnwindSafe(|| work(at)));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn serve(socket: &UdpSocket, faults: &Faults, stop: &AtomicBool) {
    let settings = Settings {
        kernel: Kernel::detect(),
        limits: Limits::MOST,
        group: None,
        parent: None,
        secret: [3, 5],
    };
    let new = || Box::new(Engine::<SocketAddr, 1, 32, 16>::new(settings));
    let (mut engine, mut random, began) = (new(), Random(1), Instant::now());
    let (mut packet, mut out) = ([0; 2048], [0; 2048]);
    let mut workers: Vec<(SocketAddr, u8)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut packet) else { continue };
        if faults.dead.load(Ordering::Relaxed) {
            // It comes back without any memory.
            engine = new();
            continue;
        }
        let lossy = faults.lossy.load(Ordering::Relaxed) as usize;
        let mut lost = || lossy > 0 && random.below(lossy) == 0;
        if lost() {
            continue;
        }
        if let Ok(Packet { body: Body::Hello { child, .. }, .. }) = Packet::parse(&packet[..len]) {
            workers.push((from, child));
        }
        if let Ok(Packet { head, body: Body::Contribute { child, .. } }) = Packet::parse(&packet[..len])
            && let Some((_, ahead)) = faults.forged.lock().unwrap().take_if(|(of, _)| *of == child)
        {
            let epoch = head.epoch.wrapping_add(ahead);
            let body = Body::Refuse { reason: Refusal::OldEpoch, epoch };
            let len = Packet { head, body }.write(&mut out).unwrap();
            socket.send_to(&out[..len], from).unwrap();
        }
        engine.process(&packet[..len], from, Millis(began.elapsed().as_millis() as u64));
        while let Some(Emitted { to, len }) = engine.emit(&mut out) {
            let to: Vec<SocketAddr> = match to {
                To::One(address) => vec![address],
                To::Each { job } => engine.children(job).collect(),
                To::Group(_) => unreachable!("the aggregator has no groups"),
            };
            let is_result =
                matches!(Packet::parse(&out[..len]), Ok(Packet { body: Body::Result { .. }, .. }));
            for to in to {
                let worker = workers.iter().rev().find(|known| known.0 == to).map(|known| known.1);
                let deaf = is_result && faults.deaf.lock().unwrap().iter().any(|deaf| Some(*deaf) == worker);
                if !lost() && !deaf && !faults.dead.load(Ordering::Relaxed) {
                    socket.send_to(&out[..len], to).unwrap();
                }
                let sent = faults.sent.fetch_add(1, Ordering::Relaxed) + 1;
                if sent == faults.dies_after.load(Ordering::Relaxed) {
                    faults.dead.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// A codec within 2^-10.
fn profile(codec: u8) -> Profile {
    match codec {
        1 => Params::new(10, Split::Dense, 0).unwrap().into(),
        _ => Bound::from_exponents(-10, 0).unwrap().into(),
    }
}

fn plan(at: SocketAddr, codec: u8) -> CollectivePlan {
    format!("strategy = \"in-network:{at}\"\ncodec = \"wire:{codec}:10\"").parse().unwrap()
}

fn gradient(rank: usize, round: usize, values: usize) -> Vec<f32> {
    Random((rank * 1000 + round) as u64).values(values).into_iter().map(|value| value / 8.0).collect()
}

/// Values as a codec's definition restores them.
fn restored(values: &[f32], profile: Profile) -> Vec<f32> {
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (mut coded, mut restored) = (vec![0; profile.max_encoded_len(raw.len())], vec![0; raw.len()]);
    let len = profile.encode_payload(&raw, &mut coded).unwrap();
    profile.decode_payload(&coded[..len], &mut restored).unwrap();
    restored.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The sums of all ranks' gradients as the codec's definition restores them, in `f64`, which has
/// room for them; of codec 1, what it restores of the sums.
fn exact(gradients: &[Vec<f32>], profile: Profile) -> Vec<f32> {
    let mut sums = vec![0f64; gradients[0].len()];
    let unit = 2f64.powi(if profile.codec() == 1 { -15 } else { -10 });
    for gradient in gradients {
        for (sum, value) in sums.iter_mut().zip(restored(gradient, profile)) {
            let value = f64::from(value);
            // A value that the codec leaves raw counts as the nearest whole number of units.
            *sum += if value.is_finite() && value.abs() < 1e4 {
                (value / unit).round_ties_even() * unit
            } else {
                value
            };
        }
    }
    let sums: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
    if profile.codec() == 1 { restored(&sums, profile) } else { sums }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// After so many rounds a test gives up. Between two tries of the aggregator are at most 64
/// (`LONGEST_PAUSE`).
const MAX_ROUNDS: usize = 1000;

/// Rounds of `work` at each rank: `least` of them, and then more until what all ranks have is
/// `enough`. On a busy machine the aggregator may seem silent at any time, and is left alone for
/// some rounds; so no test wants anything of a given round. `before` a round somebody may break the
/// aggregator or repair it.
fn rounds<T: Send>(
    count: usize,
    least: usize,
    enough: impl Fn(&[Vec<T>]) -> bool + Sync,
    before: impl Fn(usize) + Sync,
    work: impl Fn(&mut Link, usize) -> T + Sync,
) -> Vec<Vec<T>> {
    let all = Mutex::new((0..count).map(|_| Vec::new()).collect::<Vec<_>>());
    let (together, ends) = (Barrier::new(count), AtomicBool::new(false));
    ranks(count, ANYWHERE, &options(false), |mut link| {
        for round in 0.. {
            together.wait();
            if link.rank() == 0 {
                let is_enough = round >= least && enough(&all.lock().unwrap());
                ends.fetch_or(is_enough || round == MAX_ROUNDS, Ordering::Relaxed);
                before(round);
            }
            together.wait();
            if ends.load(Ordering::Relaxed) {
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| work(&mut link, round))) {
                Ok(result) => all.lock().unwrap()[link.rank()].push(result),
                // The others would wait here for ever. Too few results tell the test.
                Err(_) => ends.store(true, Ordering::Relaxed),
            }
        }
        link.close();
    });
    let all = all.into_inner().unwrap();
    assert!(all.iter().all(|results| results.len() == all[0].len()), "a rank failed");
    assert!(enough(&all), "not in {MAX_ROUNDS} rounds");
    all
}

/// Exchanges, by [`rounds`]. Every result is checked at every rank.
fn exchange(
    codec: u8,
    count: usize,
    values: usize,
    at: SocketAddr,
    least: usize,
    enough: impl Fn(&[Vec<InNetwork>]) -> bool + Sync,
    before: impl Fn(usize) + Sync,
) -> Vec<Vec<InNetwork>> {
    let layout = Layout::new([("all", values)]).unwrap();
    let expected = Mutex::new((usize::MAX, Vec::new()));
    rounds(count, least, enough, before, |link, round| {
        let mut buffer = gradient(link.rank(), round, values);
        let report = link.exchange(&mut buffer, &layout, &plan(at, codec), &mut Residuals::new()).unwrap();
        let report = report.in_network.unwrap();
        let mut expected = expected.lock().unwrap();
        if expected.0 != round {
            let given: Vec<_> = (0..count).map(|rank| gradient(rank, round, values)).collect();
            *expected = (round, bits(&exact(&given, profile(codec))));
        }
        assert!(bits(&buffer) == expected.1, "rank {}, round {round}: {report:?}", link.rank());
        report
    })
}

/// Did the aggregator sum all of a round, at all ranks?
fn by_aggregator(reports: &[Vec<InNetwork>], round: usize) -> bool {
    reports
        .iter()
        .all(|report| report[round].from_aggregator == report[round].chunks && report[round].reason.is_none())
}

/// Did it do so in a round from `first` on?
fn by_aggregator_since(first: usize) -> impl Fn(&[Vec<InNetwork>]) -> bool {
    move |reports| (first..reports[0].len()).any(|round| by_aggregator(reports, round))
}

const VALUES: usize = 100_003;

#[test]
fn an_aggregator_sums_everything_exactly() {
    for (codec, count, values) in
        [(2, 1, 300), (2, 2, 1), (2, 3, 2048), (2, 4, VALUES), (1, 1, 300), (1, 4, VALUES)]
    {
        let reports = with_aggregator(&Faults::default(), |at| {
            exchange(codec, count, values, at, 6, by_aggregator_since(0), |_| ())
        });
        assert!(reports[0].iter().all(|report| report.chunks == values.div_ceil(2048)));
    }
    // Of no values there is nothing to sum.
    with_aggregator(&Faults::default(), |at| exchange(2, 2, 0, at, 2, |_| true, |_| ()));
}

#[test]
fn without_an_aggregator_ranks_sum_to_the_same_bits() {
    // Nobody listens there: the socket has the port, but takes only what comes from itself.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    socket.connect(at).unwrap();
    for (codec, count) in [(2, 1), (2, 2), (2, 3), (2, 5), (1, 1), (1, 4)] {
        let reports = exchange(codec, count, VALUES, at, 4, |_| true, |_| ());
        for report in &reports {
            assert!(
                report.iter().all(|report| report.summed == report.chunks && report.from_aggregator == 0)
            );
            let reasons: Vec<_> = report.iter().map(|report| report.reason.unwrap()).collect();
            // After the first failure one exchange leaves the aggregator alone, after the second
            // two.
            assert_eq!(reasons, ["silent", "not-tried", "silent", "not-tried"]);
        }
    }
}

#[test]
fn a_lossy_aggregator_sums_everything() {
    let faults = Faults { lossy: AtomicU64::new(20), ..Faults::default() };
    with_aggregator(&faults, |at| exchange(2, 4, VALUES, at, 6, by_aggregator_since(0), |_| ()));
}

#[test]
fn an_aggregator_that_dies_is_replaced_by_the_ranks_and_used_again() {
    for (codec, after) in [(2, 0), (2, 1), (2, 37), (2, 150), (1, 37), (1, 150)] {
        let faults = Faults { dies_after: AtomicU64::new(u64::MAX), ..Faults::default() };
        let reports = with_aggregator(&faults, |at| {
            exchange(codec, 4, VALUES, at, 16, by_aggregator_since(4), |round| match round {
                1 if after == 0 => faults.dead.store(true, Ordering::Relaxed),
                1 => faults.dies_after.store(faults.sent.load(Ordering::Relaxed) + after, Ordering::Relaxed),
                4 => {
                    faults.dies_after.store(u64::MAX, Ordering::Relaxed);
                    faults.dead.store(false, Ordering::Relaxed);
                }
                _ => {}
            })
        });
        for report in &reports {
            for round in report {
                assert_eq!(
                    round.from_aggregator + round.copied + round.summed,
                    round.chunks,
                    "{after}: {report:?}"
                );
            }
            assert!(report[1..4].iter().any(|round| round.summed > 0), "{after}: {report:?}");
        }
    }
}

/// Whoever reads one packet, and sends one, ends no more than the exchange, whatever the packet
/// says.
#[test]
fn a_forged_refusal_costs_a_fallback() {
    for (worker, ahead) in [(0, 5), (1, (1 << 31) - 1), (0, 1 << 31), (2, (1 << 31) + 1), (1, u32::MAX)] {
        let faults = Faults::default();
        // After the round that it ended, the aggregator sums again.
        let again = |reports: &[Vec<InNetwork>]| {
            let ended = reports[0].iter().position(|round| round.reason == Some("refused"));
            ended.is_some_and(|round| by_aggregator_since(round + 1)(reports))
        };
        with_aggregator(&faults, |at| {
            exchange(2, 3, VALUES, at, 6, again, |round| {
                if round == 3 {
                    *faults.forged.lock().unwrap() = Some((worker, ahead));
                }
            })
        });
    }
}

/// Whoever does not read the path has to guess an epoch to contribute in a rank's name. The clock's
/// second would be no guess.
#[test]
fn first_epochs_are_drawn_by_chance() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut epochs = Vec::new();
    for _ in 0..8 {
        exchange(2, 1, 300, at, 1, |_| true, |_| ());
        let mut packet = [0; 2048];
        while let Ok(len) = socket.recv(&mut packet) {
            let Ok(Packet { head, body: Body::Hello { .. } }) = Packet::parse(&packet[..len]) else {
                panic!()
            };
            epochs.push(head.epoch);
        }
    }
    let (least, most) = (epochs.iter().min().unwrap(), epochs.iter().max().unwrap());
    assert!(most - least > 1 << 24, "{epochs:?}");
}

/// A rank that gets no results asks, and is answered with results, which are lost again: others
/// have what it lacks.
#[test]
fn a_chunk_that_one_rank_lacks_another_sends_it() {
    let faults = Faults { deaf: Mutex::new(vec![1]), ..Faults::default() };
    let copied = |reports: &[Vec<InNetwork>]| {
        reports[1].iter().any(|round| round.copied > 0)
            && reports[0].iter().any(|round| round.from_aggregator > 0)
    };
    let reports = with_aggregator(&faults, |at| exchange(1, 3, VALUES, at, 8, copied, |_| ()));
    assert!(reports[1].iter().all(|round| round.from_aggregator == 0), "{reports:?}");
}

/// Two jobs, with tokens and codecs of their own, at one aggregator at a time.
#[test]
fn jobs_share_an_aggregator() {
    let mut aggregator = Aggregator::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (at, stop) = (aggregator.address().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| aggregator.run(&stop).unwrap());
        let jobs = [(2, 2), (1, 3)].map(|(codec, count)| {
            scope.spawn(move || exchange(codec, count, VALUES, at, 6, by_aggregator_since(0), |_| ()))
        });
        let reports = jobs.map(std::thread::ScopedJoinHandle::join);
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap();
        reports.into_iter().for_each(|reports| drop(reports.unwrap()));
    });
}

/// NaN makes its own lane a NaN. A value beyond what integers hold is summed as a float, by the
/// ranks.
#[test]
fn values_that_are_no_numbers_or_too_large_are_summed_too() {
    [1, 2].into_iter().for_each(odd_values_are_summed);
}

fn odd_values_are_summed(codec: u8) {
    let layout = Layout::new([("all", 5000)]).unwrap();
    // Of three chunks the aggregator sums two, and it is not to blame.
    let too_large = |(_, report): &&(Vec<f32>, InNetwork)| {
        (report.reason, report.from_aggregator, report.summed) == (Some("too-large"), 2, 1)
    };
    let twice = |results: &[Vec<(Vec<f32>, InNetwork)>]| {
        results.iter().all(|results| results.iter().filter(too_large).count() > 1)
    };
    let results = with_aggregator(&Faults::default(), |at| {
        let work = |link: &mut Link, _| {
            let mut buffer = vec![0.25; 5000];
            if link.rank() == 1 {
                (buffer[7], buffer[4000], buffer[4001]) = (f32::NAN, 1e30, f32::INFINITY);
            }
            let report =
                link.exchange(&mut buffer, &layout, &plan(at, codec), &mut Residuals::new()).unwrap();
            (buffer, report.in_network.unwrap())
        };
        rounds(3, 8, twice, |_| (), work)
    });
    for rounds in &results {
        for (round, (buffer, report)) in rounds.iter().enumerate() {
            assert!(bits(buffer) == bits(&results[0][round].0), "{report:?}");
            assert!(buffer[7].is_nan() && buffer[4001].is_nan() && buffer[4000] == 1e30);
            let rest = buffer.iter().enumerate().filter(|(at, _)| ![7, 4000, 4001].contains(at));
            assert!(
                rest.clone().count() == 4997
                    && rest.clone().all(|(_, value)| (value - 0.75).abs() <= 4.0 / 1024.0)
            );
        }
    }
}

/// Gradients of any size are scaled first, as for the wire.
#[test]
fn a_method_scales_what_an_aggregator_sums() {
    let layout = Layout::new([("small", 3000), ("large", 3000)]).unwrap();
    let results = with_aggregator(&Faults::default(), |at| {
        ranks(3, ANYWHERE, &options(false), |mut link| {
            let method: Method = format!("in-network:{at}").parse().unwrap();
            assert_eq!(method.to_string(), format!("in-network:{at}"));
            let rank = link.rank();
            let mut buffer: Vec<f32> = [1e-6, 1e6]
                .iter()
                .flat_map(|scale| gradient(rank, 0, 3000).into_iter().map(move |value| value * scale))
                .collect();
            let report =
                method.exchange(&mut link, &mut buffer, &layout, &[1, 1], &mut Residuals::new()).unwrap();
            (buffer, report.in_network.unwrap())
        })
    });
    let sum = |at: usize, scale: f64| -> f64 {
        (0..3).map(|rank| f64::from(gradient(rank, 0, 3000)[at]) * scale).sum()
    };
    for (buffer, report) in &results {
        assert!(bits(buffer) == bits(&results[0].0), "{report:?}");
        for at in 0..3000 {
            // Values are below 2: with room for three, units are 2^-10 of 8.
            assert!((f64::from(buffer[at]) - sum(at, 1e-6)).abs() < 1e-6 * 3.0 * 8.0 / 1024.0);
            assert!((f64::from(buffer[3000 + at]) - sum(at, 1e6)).abs() < 1e6 * 3.0 * 8.0 / 1024.0);
        }
    }
}

/// A rank that leaves ends the exchange at all others, as in every other exchange, though the
/// aggregator would wait for it.
#[test]
fn a_rank_that_leaves_ends_the_exchange() {
    let layout = Layout::new([("all", 5000)]).unwrap();
    let results = with_aggregator(&Faults::default(), |at| {
        ranks(3, ANYWHERE, &options(false), |mut link| {
            let exchange = |link: &mut Link| {
                link.exchange(&mut vec![1.0; 5000], &layout, &plan(at, 2), &mut Residuals::new()).map(|_| ())
            };
            exchange(&mut link).unwrap();
            if link.rank() == 2 {
                link.close();
                return Ok(());
            }
            exchange(&mut link)
        })
    });
    for result in &results[..2] {
        assert!(
            matches!(result, Err(LinkError::Failed(failure)) if failure.to_string().contains("rank 2 left")),
            "{result:?}"
        );
    }
}
