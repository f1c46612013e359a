//! A server and its workers on loopback, each a thread.

mod support;

use gradwire_collectives::{
    Layout, Link, LinkError, Method, Optimizer, Options, Residuals, Round, Rule, Served, Server, Updates,
};
use support::{Random, options, ranks, rounding, sum};

const TENSORS: [(&str, usize); 3] = [("fc.weight", 3000), ("fc.bias", 30), ("out", 1500)];
const ROWS: [usize; 3] = [50, 1, 30];

fn served() -> Options {
    Options { served: true, ..options(false) }
}

/// A worker's results, by round.
type Got = Result<Vec<Vec<f32>>, LinkError>;

/// The server's work and the workers' results.
fn work(
    workers: usize,
    updates: Option<Updates>,
    work: impl Fn(&mut Link) -> Got + Sync,
) -> (Result<Served, LinkError>, Vec<Got>) {
    let mut all = ranks(workers + 1, "127.0.0.1:0", &served(), |mut link| match link.rank() {
        0 => (Some(Server::new(link, updates).run()), None),
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
        let (server, results) = work(workers, None, |link| {
            let mut residuals = Residuals::new();
            let round = Round { method: &method, layout: &layout, rows: &ROWS, compare: true };
            let results = (0..rounds).map(|number| {
                let mut buffer = gradient(link.rank(), number);
                round.sum(link, &mut buffer, &mut residuals)?;
                Ok(buffer)
            });
            results.collect()
        });
        let server = server.unwrap();
        assert_eq!((server.exchanges, server.values), (6, 6 * 4530), "{text}");
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        // Over the rounds, what was given is what was delivered and the residual: of the order of
        // one round.
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
fn plans_that_a_server_cannot_sum_are_errors_before_anything_is_exchanged() {
    let layout = Layout::new(TENSORS).unwrap();
    for text in ["ring:2:10", "in-network:127.0.0.1"] {
        let method: Method = text.parse().unwrap();
        assert!(method.check_served().unwrap_err().to_string().contains("with a server"), "{text}");
        let (server, results) = work(2, None, |link| {
            let round = Round { method: &method, layout: &layout, rows: &ROWS, compare: false };
            round.sum(link, &mut gradient(1, 0), &mut Residuals::new()).map(|_| Vec::new())
        });
        assert_eq!(server.unwrap().exchanges, 0, "{text}");
        for result in results {
            assert!(matches!(result, Err(LinkError::Plan(_))), "{text}: {result:?}");
        }
    }
}

fn updates(returns: &str) -> Updates {
    let optimizer = Optimizer { lr: 0.1, weight_decay: 0.0, rule: Rule::Sgd { momentum: 0.9 } };
    Updates { optimizer, returns: returns.parse().unwrap() }
}

fn start(rank: usize) -> Vec<f32> {
    Random(77 + rank as u64).values(4530)
}

#[test]
fn a_server_steps_and_returns_weights_or_deltas() {
    let layout = Layout::new(TENSORS).unwrap();
    let rounds = 30;
    // SGD with momentum 0.9 on the mean of both workers' gradients, in f64, from rank 1's weights.
    let mut expected: Vec<f64> = start(1).into_iter().map(f64::from).collect();
    let mut steps = vec![0.0; expected.len()];
    for number in 0..rounds {
        let pairs = gradient(1, number).into_iter().zip(gradient(2, number));
        for ((weight, step), (one, other)) in expected.iter_mut().zip(&mut steps).zip(pairs) {
            *step = 0.9 * *step + (f64::from(one) + f64::from(other)) / 2.0;
            *weight -= 0.1 * *step;
        }
    }
    for (push, returns) in
        [("f32", "weights"), ("f32", "f32"), ("f32", "q8"), ("f32", "3lc:1:1024"), ("q8", "weights")]
    {
        let method: Method = push.parse().unwrap();
        let (server, results) = work(2, Some(updates(returns)), |link| {
            let round = Round { method: &method, layout: &layout, rows: &ROWS, compare: true };
            let (mut weights, mut residuals) = (start(link.rank()), Residuals::new());
            let answers = round.begin(link, &mut weights)?;
            assert_eq!(answers.to_string(), format!("{}", updates(returns).returns));
            for number in 0..rounds {
                let mut buffer = gradient(link.rank(), number);
                round.step(link, &mut buffer, answers, &mut residuals)?;
                match returns {
                    "weights" => weights = buffer,
                    _ => weights.iter_mut().zip(buffer).for_each(|(weight, delta)| *weight += delta),
                }
            }
            Ok(vec![weights])
        });
        let served = server.unwrap();
        assert_eq!((served.exchanges, served.values), (rounds as u64, rounds as u64 * 4530));
        let results: Vec<_> = results.into_iter().map(|worker| worker.unwrap().remove(0)).collect();
        assert_eq!(results[0], results[1], "{push}, {returns}: replicas differ");
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let off =
            norm(&mut results[0].iter().zip(&expected).map(|(got, expected)| f64::from(*got) - expected));
        let way = norm(&mut start(1).iter().zip(&expected).map(|(start, end)| f64::from(*start) - end));
        // What the last messages lost is still to come; without feedback, the loss of all rounds
        // would be.
        let most = match (push, returns) {
            ("f32", "weights" | "f32") => 1e-5,
            ("f32", "3lc:1:1024") => 0.5,
            _ => 0.05,
        };
        assert!(off < most * way, "{push}, {returns}: off by {off} after a way of {way}");
    }
}

#[test]
fn a_server_says_what_it_cannot_do() {
    let layout = Layout::new(TENSORS).unwrap();
    let method: Method = "f32".parse().unwrap();
    let round = Round { method: &method, layout: &layout, rows: &ROWS, compare: false };
    let all_say = |(server, results): (Result<Served, LinkError>, Vec<Got>), says: &str| {
        let all = results.into_iter().map(Result::unwrap_err).chain([server.unwrap_err()]);
        all.for_each(|error| assert!(error.to_string().contains(says), "{error}"));
    };
    let begin = |link: &mut Link| round.begin(link, &mut start(1)).map(|_| Vec::new());
    all_say(work(2, None, begin), "this server has no optimizer");
    let sum = |link: &mut Link| round.sum(link, &mut start(1), &mut Residuals::new()).map(|_| Vec::new());
    all_say(work(2, Some(updates("weights")), sum), "this server has an optimizer");
    // A gradient that would spoil the weights, and one of a tensor without weights.
    for (names, value, says) in
        [(["a", "b"], f32::NAN, "'b' is not finite"), (["a", "c"], 0.0, "'c' has 5 values")]
    {
        let step = |link: &mut Link| {
            let known = Layout::new([("a", 5), ("b", 5)])?;
            let round = Round { method: &method, layout: &known, rows: &[1, 1], compare: false };
            let answers = round.begin(link, &mut [0.0; 10])?;
            let other = Layout::new(names.map(|name| (name, 5)))?;
            let mut buffer = [0.0; 10];
            buffer[7] = value;
            let round = Round { layout: &other, ..round };
            round.step(link, &mut buffer, answers, &mut Residuals::new()).map(|_| Vec::new())
        };
        all_say(work(2, Some(updates("weights")), step), says);
    }
}
