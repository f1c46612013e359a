//! `--baseline`: the same stream by the bridge and through the shim in turn, so that what
//! compression gains and costs shows on this path before anything depends on it.

use std::fmt::Write as _;
use std::fs;

use rustix::param::clock_ticks_per_second;
use serde::Serialize;

use super::report::TestReport;
use super::send::{Amount, Sending, Session, Stream};
use super::{SendArgs, TrafficError};
use crate::commands::status::{Table, number};
use crate::telemetry::Snapshot;

/// The way of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// Untagged.
    Bridge,
    /// Tagged.
    Shim,
}

/// The cost of a stream. None: it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cost {
    seconds: f64,
    mbit_per_second: f64,
    /// Bytes that the card sent meanwhile, whoever sent them.
    card_bytes: Option<f64>,
    /// Seconds that the processors of the sending and of the receiving machine worked, on whatever
    /// it was.
    cpu_here: Option<f64>,
    cpu_there: Option<f64>,
}

impl Cost {
    /// Of each figure what `of` makes of all of them; none if a cost lacks it.
    fn join<'a>(costs: impl Iterator<Item = &'a Self> + Clone, of: impl Fn(Vec<f64>) -> f64) -> Self {
        let all = |figure: fn(&Self) -> f64| of(costs.clone().map(figure).collect());
        let known = |figure: fn(&Self) -> Option<f64>| {
            let figures = costs.clone().map(figure).collect::<Option<Vec<_>>>();
            figures.map(&of)
        };
        Self {
            seconds: all(|cost| cost.seconds),
            mbit_per_second: all(|cost| cost.mbit_per_second),
            card_bytes: known(|cost| cost.card_bytes),
            cpu_here: known(|cost| cost.cpu_here),
            cpu_there: known(|cost| cost.cpu_there),
        }
    }

    /// The factor by which these exceed those of `other`. Of nothing, nothing is a multiple.
    fn times(&self, other: &Self) -> Self {
        let some = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
        Self {
            seconds: self.seconds / other.seconds,
            mbit_per_second: self.mbit_per_second / other.mbit_per_second,
            card_bytes: some(self.card_bytes, other.card_bytes),
            cpu_here: some(self.cpu_here, other.cpu_here),
            cpu_there: some(self.cpu_there, other.cpu_there),
        }
    }
}

/// A stream that has arrived.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Measured {
    round: u16,
    way: Way,
    #[serde(flatten)]
    cost: Cost,
    report: TestReport,
}

/// All streams, and what they come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// Whether every stream's values are right: exit code 0.
    pub(super) good: bool,
    /// Bytes of values in each stream.
    bytes: u64,
    rounds: u16,
    /// Medians over the rounds.
    bridge: Cost,
    shim: Cost,
    /// Medians of the rounds' own ratios, shim to bridge: neighbours in time share the machine's
    /// load.
    ratio: Cost,
    /// The lowest and the highest of the rounds' ratios of speed.
    speed_from: f64,
    speed_to: f64,
    streams: Vec<Measured>,
}

/// Sends all streams.
pub(super) fn compare(args: &SendArgs) -> Result<Comparison, TrafficError> {
    let mut session = Session::open(args)?;
    let bound = session.bound;
    // Both ways need as many bytes as the other.
    let bytes = match session.amount() {
        Amount::Bytes(bytes) => bytes,
        amount => {
            let first = session.send(Stream { tos: 0, bound: None, amount, more: true })?;
            first.report.bytes()
        }
    };
    let amount = Amount::Bytes(bytes);
    let mut sent = Vec::new();
    let mut before = super::shims::answering(&args.run_dir, args.timeout);
    for round in 1..=args.rounds {
        // In turn who is first: a machine that gets slower, or warms up, does not decide.
        let ways = if round % 2 == 1 { [Way::Bridge, Way::Shim] } else { [Way::Shim, Way::Bridge] };
        for (place, way) in ways.into_iter().enumerate() {
            let more = round != args.rounds || place == 0;
            let (tos, bound) = match way {
                Way::Bridge => (0, None),
                Way::Shim => (args.tos, bound),
            };
            let sending = session.send(Stream { tos, bound, amount, more })?;
            let after = sending.shims.clone();
            sent.push((round, way, sending, std::mem::replace(&mut before, after)));
        }
    }
    // The card is that of the shim which lists the tagged connections; of several, no one card has
    // it all.
    let mut shims = sent.iter().filter_map(|(_, _, sending, _)| sending.report.shims());
    let shim = shims.next().filter(|first| first.len() == 1 && shims.all(|other| other == *first));
    let shim = shim.map(|shims| shims[0].clone());
    let streams = sent.into_iter().map(|(round, way, sending, before)| {
        let card_bytes = shim.as_ref().and_then(|shim| {
            let sent = |shims: &[Snapshot]| sent_by_card(shims, shim);
            Some(sent(&sending.shims)?.wrapping_sub(sent(&before)?) as f64)
        });
        measured(round, way, sending, card_bytes)
    });
    Ok(Comparison::of(bytes, args.rounds, streams.collect()))
}

/// Bytes that the card of the shim of this name has sent.
fn sent_by_card(shims: &[Snapshot], name: &str) -> Option<u64> {
    shims.iter().find(|shim| super::shims::name(shim) == name)?.sent_bytes.network
}

fn measured(round: u16, way: Way, sending: Sending, card_bytes: Option<f64>) -> Measured {
    let Sending { report, cpu_here, cpu_there, .. } = sending;
    let seconds = report.seconds().max(1e-9);
    let mbit_per_second = report.bytes() as f64 * 8.0 / seconds / 1e6;
    let cost = Cost { seconds, mbit_per_second, card_bytes, cpu_here, cpu_there };
    Measured { round, way, cost, report }
}

impl Comparison {
    fn of(bytes: u64, rounds: u16, streams: Vec<Measured>) -> Self {
        let costs = |way: Way| {
            let mut of_way = streams.iter().filter(|stream| stream.way == way).collect::<Vec<_>>();
            of_way.sort_by_key(|stream| stream.round);
            of_way.into_iter().map(|stream| stream.cost).collect::<Vec<_>>()
        };
        let [bridge, shim] = [costs(Way::Bridge), costs(Way::Shim)];
        let ratios = shim.iter().zip(&bridge).map(|(shim, bridge)| shim.times(bridge)).collect::<Vec<_>>();
        let speeds = ratios.iter().map(|ratio| ratio.mbit_per_second);
        Self {
            good: streams.iter().all(|stream| stream.report.good),
            bytes,
            rounds,
            bridge: Cost::join(bridge.iter(), median),
            shim: Cost::join(shim.iter(), median),
            ratio: Cost::join(ratios.iter(), median),
            speed_from: speeds.clone().fold(f64::INFINITY, f64::min),
            speed_to: speeds.fold(0.0, f64::max),
            streams,
        }
    }

    /// The table, and what it comes to.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&[
            "way",
            ">seconds",
            ">Mbit/s",
            ">bytes on the card",
            ">CPU seconds here",
            ">CPU seconds there",
        ]);
        for (way, cost) in [("bridge", &self.bridge), ("shim", &self.shim)] {
            let known = |figure: Option<f64>, show: fn(f64) -> String| figure.map(show).unwrap_or_default();
            let seconds = |seconds: f64| format!("{seconds:.2}");
            table.row([
                way.to_owned(),
                format!("{:.3}", cost.seconds),
                format!("{:.1}", cost.mbit_per_second),
                known(cost.card_bytes, |bytes| number(bytes.round() as u64)),
                known(cost.cpu_here, seconds),
                known(cost.cpu_there, seconds),
            ]);
        }
        let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        table.row([
            "shim / bridge".to_owned(),
            ratio(Some(self.ratio.seconds)),
            ratio(Some(self.ratio.mbit_per_second)),
            ratio(self.ratio.card_bytes),
            ratio(self.ratio.cpu_here),
            ratio(self.ratio.cpu_there),
        ]);
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "{} bytes of values in each stream, {} rounds; medians\n",
            number(self.bytes),
            self.rounds
        );
        text + &table.render() + &self.verdict() + "\n"
    }

    /// The verdict.
    fn verdict(&self) -> String {
        if let Some(bad) = self.streams.iter().find(|stream| !stream.report.good) {
            let way = match bad.way {
                Way::Bridge => "by the bridge",
                Way::Shim => "through the shim",
            };
            return format!("round {}, {way}: {}", bad.round, bad.report.verdict());
        }
        let last = self.streams.iter().rev().find(|stream| stream.way == Way::Shim);
        if let Some(untouched) = last.filter(|stream| !stream.report.is_compressed()) {
            return untouched.report.verdict();
        }
        let times = |ratio: Option<f64>, what: &str| {
            ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2} times {what}"))
        };
        let range = format!("from {:.2} to {:.2} in {} rounds", self.speed_from, self.speed_to, self.rounds);
        let costs = times(self.ratio.card_bytes, "the bytes on the card")
            + &times(self.ratio.cpu_here, "the CPU here")
            + &times(self.ratio.cpu_there, "the CPU there");
        let speed = format!("{:.2} times the bridge's speed ({range}){costs}", self.ratio.mbit_per_second);
        // One round shows nothing of what differs by chance.
        if self.rounds > 1 && self.speed_from > 1.0 {
            format!("FASTER through the shim: {speed}")
        } else if self.rounds > 1 && self.speed_to < 1.0 {
            format!(
                "SLOWER through the shim: {speed}. Compression is faster only where the link is what limits the bridge"
            )
        } else {
            format!("NO CLEAR DIFFERENCE: {speed}. More --rounds or more --bytes may show one")
        }
    }
}

/// The middle one; of an even number, the mean of the two in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => (figures[middle - 1] + figures[middle]) / 2.0,
        _ => figures[middle],
    }
}

/// Seconds that all processors of this machine have worked since its start, on whatever it was;
/// none if it does not tell.
pub(super) fn busy_seconds() -> Option<f64> {
    Some(busy_ticks(&fs::read_to_string("/proc/stat").ok()?)? as f64 / clock_ticks_per_second() as f64)
}

/// proc_stat(5): user, nice, system, idle, iowait, irq, softirq; what follows is other machines',
/// or in these already.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks = line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    let [user, nice, system, _, _, irq, softirq, ..] = ticks[..] else { return None };
    Some(user + nice + system + irq + softirq)
}

/// The growth of a figure.
pub(super) fn grown(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(after? - before?)
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Arrived, Plan, VERSION};
    use super::super::verify::StreamTally;
    use super::*;

    /// A stream of 4000 bytes.
    fn stream(round: u16, way: Way, seconds: f64, card: Option<f64>, changed: u64) -> Measured {
        let bound = (way == Way::Shim).then_some(1.0 / 1024.0);
        let tos = if way == Way::Shim { 0x28 } else { 0 };
        let plan = Plan {
            gradwire_test: VERSION,
            seed: 1,
            connections: 1,
            tos,
            bound,
            file_bytes: None,
            more: false,
        };
        let tally = StreamTally { values: 1000, bytes: 4000, changed, ..StreamTally::default() };
        let arrived = Arrived { tally, missing: 0, seconds, cpu_seconds: Some(seconds / 2.0) };
        let report = TestReport::new("10.0.0.2:5281".to_owned(), &plan, &arrived, None);
        let (cpu_here, cpu_there) = (Some(2.0 * seconds), arrived.cpu_seconds);
        measured(round, way, Sending { report, shims: Vec::new(), cpu_here, cpu_there }, card)
    }

    /// Three rounds of these seconds by the bridge and through the shim.
    fn compared(bridge: [f64; 3], shim: [f64; 3]) -> Comparison {
        let mut streams = Vec::new();
        for (round, (bridge, shim)) in (1..).zip(bridge.into_iter().zip(shim)) {
            streams.push(stream(round, Way::Shim, shim, Some(1000.0), 900));
            streams.push(stream(round, Way::Bridge, bridge, Some(4000.0), 0));
        }
        Comparison::of(4000, 3, streams)
    }

    fn cells<'a>(text: &'a str, way: &str) -> Vec<&'a str> {
        let line = text.lines().find(|line| line.starts_with(way));
        line.unwrap_or_else(|| panic!("no {way} in\n{text}"))[way.len()..].split_whitespace().collect()
    }

    #[test]
    fn the_table_has_medians_and_the_ratios_of_rounds() {
        let text = compared([2.0, 8.0, 4.0], [1.0, 2.0, 4.0]).text();
        assert_eq!(cells(&text, "bridge "), ["4.000", "0.0", "4,000", "8.00", "2.00"], "{text}");
        assert_eq!(cells(&text, "shim "), ["2.000", "0.0", "1,000", "4.00", "1.00"], "{text}");
        // Of 1/2, 1/4 and 1: not the ratio of the medians, which is the same by chance here, nor
        // that of the sums.
        assert_eq!(cells(&text, "shim / bridge "), ["0.50", "2.00", "0.25", "0.50", "0.50"], "{text}");
        let text = compared([2.0, 8.0, 4.0], [1.0, 6.0, 4.0]).text();
        assert_eq!(cells(&text, "shim / bridge ")[0], "0.75", "of 1/2, 3/4 and 1, and 4/4 of the medians");
        assert!(text.starts_with("4,000 bytes of values in each stream, 3 rounds; medians\n"), "{text}");
    }

    #[test]
    fn the_verdict_goes_by_the_rounds_not_by_the_middle() {
        for (bridge, shim, words) in [
            (
                [2.0, 4.0, 8.0],
                [1.0, 1.0, 4.0],
                "FASTER through the shim: 2.00 times the bridge's speed (from 2.00 to 4.00",
            ),
            (
                [1.0, 1.0, 2.0],
                [2.0, 4.0, 4.0],
                "SLOWER through the shim: 0.50 times the bridge's speed (from 0.25 to 0.50",
            ),
            (
                [1.0, 2.0, 4.0],
                [2.0, 1.0, 1.0],
                "NO CLEAR DIFFERENCE: 2.00 times the bridge's speed (from 0.50 to 4.00",
            ),
        ] {
            let compared = compared(bridge, shim);
            let text = compared.text();
            assert!(compared.good && text.contains(words), "{words}\n{text}");
            assert!(text.contains("0.25 times the bytes on the card"), "{text}");
        }
    }

    #[test]
    fn wrong_or_untouched_values_come_before_any_speed() {
        let mut streams = vec![stream(1, Way::Bridge, 1.0, None, 0), stream(1, Way::Shim, 1.0, None, 0)];
        let untouched = Comparison::of(4000, 1, streams.clone());
        assert!(
            untouched.good && untouched.text().contains("nothing was compressed"),
            "{}",
            untouched.text()
        );
        // What cannot be read has no column.
        assert!(!untouched.text().contains("bytes on the card"), "{}", untouched.text());
        streams[0].report.good = false;
        let bad = Comparison::of(4000, 1, streams);
        assert!(!bad.good && bad.text().contains("\nround 1, by the bridge: "), "{}", bad.text());
        // One round says nothing of speed.
        let one = Comparison::of(4000, 1, compared([2.0; 3], [1.0; 3]).streams[..2].to_vec());
        assert!(one.text().contains("NO CLEAR DIFFERENCE: 2.00 times"), "{}", one.text());
    }

    #[test]
    fn a_program_gets_every_stream_and_the_ratios() {
        let json = serde_json::to_value(compared([2.0, 8.0, 4.0], [1.0, 2.0, 4.0])).unwrap();
        assert_eq!((&json["rounds"], &json["bytes"]), (&3.into(), &4000.into()));
        assert_eq!((&json["bridge"]["seconds"], &json["shim"]["seconds"]), (&4.0.into(), &2.0.into()));
        assert_eq!((&json["ratio"]["card_bytes"], &json["speed_to"]), (&0.25.into(), &4.0.into()));
        let streams = json["streams"].as_array().unwrap();
        assert_eq!(streams.len(), 6);
        assert_eq!((&streams[0]["way"], &streams[0]["report"]["changed"]), (&"shim".into(), &900.into()));
    }

    #[test]
    fn no_figure_is_made_of_what_is_not_known() {
        let known = Cost {
            seconds: 1.0,
            mbit_per_second: 1.0,
            card_bytes: Some(2.0),
            cpu_here: None,
            cpu_there: Some(0.0),
        };
        let times = known.times(&known);
        assert_eq!((times.card_bytes, times.cpu_here, times.cpu_there), (Some(1.0), None, None));
        let unknown = Cost { card_bytes: None, ..known };
        let joined = Cost::join([known, unknown].iter(), median);
        assert_eq!((joined.seconds, joined.card_bytes), (1.0, None));
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])), (2.0, 2.5));
    }

    #[test]
    fn busy_time_is_what_no_processor_idled() {
        let stat = "cpu  10 1 20 500 7 2 3 90 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(36));
        assert_eq!((busy_ticks("cpu  1 2"), busy_ticks("intr 5")), (None, None));
        let before = busy_seconds();
        assert!(grown(before, busy_seconds()).unwrap() >= 0.0);
    }

    #[test]
    fn the_card_is_that_of_the_named_shim() {
        let mut shim = crate::telemetry::tests::example();
        shim.sent_bytes.network = Some(7);
        assert_eq!(sent_by_card(&[shim.clone()], "veth0/eth0"), Some(7));
        assert_eq!(sent_by_card(&[shim], "veth1/eth0"), None);
    }
}
