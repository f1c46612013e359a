//! A server and its workers on loopback, each a thread.

mod support;

use gradwire_collectives::{Held, Layout, Link, LinkError, Method, Options, Round, Served, Server};
use support::{Random, members, options, rounding, sum};

const TENSORS: [(&str, usize); 3] = [("fc.weight", 3000), ("fc.bias", 30), ("out", 1500)];
const ROWS: [usize; 3] = [50, 1, 30];

fn served() -> Options {
    Options { served: true, ..options(false) }
}

/// What a worker got, by round.
type Got = Result<Vec<Vec<f32>>, LinkError>;

/// What the server did and workers got.
fn work(workers: usize, work: impl Fn(&mut Link) -> Got + Sync) -> (Result<Served, LinkError>, Vec<Got>) {
    let mut all = members(workers + 1, "127.0.0.1:0", &served(), |mut link| match link.rank() {
        0 => (Some(Server::new(link).run()), None),
        _ => (None, Some(work(&mut link))),
    });
    let server = all.remove(0).0.unwrap();
    (server, all.into_iter().map(|(_, worker)| worker.unwrap()).collect())
}

fn gradient(worker: usize, round: usize) -> Vec<f32> {
    Random((1000 * worker + round) as u64).values(4530)
}

#[test]
fn every_codec_sums_at_the_server() {
    for text in [
        "f32",
        "q8",
        "3lc:1:1024",
        "low-rank:4",
        "bounded:8",
        "dgc:5",
        "strategy = \"ring\"\ncodec = \"f16\"",
    ] {
        let method: Method = text.parse().unwrap();
        let layout = Layout::new(TENSORS).unwrap();
        let (workers, rounds) = (3, 6);
        let (server, results) = work(workers, |link| {
            let mut held = Held::new();
            let round = Round { method: &method, layout: &layout, rows: &ROWS, compare: true };
            let results = (0..rounds).map(|number| {
                let mut buffer = gradient(link.rank(), number);
                round.sum(link, &mut buffer, &mut held)?;
                Ok(buffer)
            });
            results.collect()
        });
        let server = server.unwrap();
        assert_eq!((server.exchanges, server.values), (6, 6 * 4530), "{text}");
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        // Over the rounds, what was given is what was delivered and what is held back: of the order of one round.
        for at in 0..4530 {
            let given: Vec<Vec<f32>> = (1..=workers)
                .flat_map(|worker| (0..rounds).map(move |number| gradient(worker, number)))
                .collect();
            let delivered = results[0].iter().map(|round| f64::from(round[at])).sum::<f64>();
            let (given, size) = sum(&given, at);
            let most = if text == "f32" { rounding(workers * rounds, size) } else { 100.0 };
            assert!((given - delivered).abs() <= most, "{text}, value {at}: {delivered} of {given}");
        }
        for worker in &results {
            assert!(worker == &results[0], "{text}: replicas differ");
        }
    }
}

#[test]
fn what_a_server_cannot_sum_is_an_error_before_anything_is_exchanged() {
    let layout = Layout::new(TENSORS).unwrap();
    for text in ["ring:2:10", "in-network:127.0.0.1"] {
        let method: Method = text.parse().unwrap();
        assert!(method.check_served().unwrap_err().to_string().contains("with a server"), "{text}");
        let (server, results) = work(2, |link| {
            let round = Round { method: &method, layout: &layout, rows: &ROWS, compare: false };
            round.sum(link, &mut gradient(1, 0), &mut Held::new()).map(|_| Vec::new())
        });
        assert_eq!(server.unwrap().exchanges, 0, "{text}");
        for result in results {
            assert!(matches!(result, Err(LinkError::Plan(_))), "{text}: {result:?}");
        }
    }
}
