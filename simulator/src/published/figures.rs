//! What the plots of docs/simulator.md show: the subjects of the figures of Chang et al.
//!
//! All with the calibrated backward times, the sizes of Table 2 and, unless said otherwise, 32 workers at
//! 25 Gbit/s.

use super::setting::{scenario, time, time_at, time_with_compute};
use crate::error::SimError;
use crate::scenario::{Assignment, Compression, Mechanism, Packets, Scenario, Wire};
use crate::workload::Model;

/// Points of one line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// (x, y), in the order they are joined.
    pub points: Vec<(f64, f64)>,
}

/// A chart of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What x is, with its unit.
    pub x: String,
    /// What y is, with its unit.
    pub y: String,
    /// Space x by its logarithm; x must be positive.
    pub log_x: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// Simulates one plot.
pub type Figure = fn() -> Result<Chart, SimError>;

/// File name, without its ending, and what draws it.
pub const ALL: [(&str, Figure); 11] = [
    ("servers", servers),
    ("in-network-workers", in_network_workers),
    ("bandwidth-vgg16", || bandwidth("vgg16")),
    ("bandwidth-resnet200", || bandwidth("resnet200")),
    ("compute-resnet200", compute),
    ("ring-by-workers", ring_by_workers),
    ("network-heavy-layers", || layers("Network-heavy layers added to Inception-v3", NETWORK_HEAVY)),
    ("compute-heavy-layers", || layers("Compute-heavy layers added to Inception-v3", COMPUTE_HEAVY)),
    ("message-size", message_size),
    ("barrier", barrier),
    ("compression", compression),
];

/// Values and forward FLOPs of an added layer: 4 MB that take next to no time.
const NETWORK_HEAVY: (u64, u64) = (1_000_000, 1_000_000);
/// A thirtieth of Inception-v3's compute in 4 kB.
const COMPUTE_HEAVY: (u64, u64) = (1_000, 400_000_000);

const COMPARED: [(&str, Mechanism); 5] = [
    ("aggregation", Mechanism::AGGREGATION),
    ("multicast", Mechanism::MULTICAST),
    ("both", Mechanism::BOTH),
    ("ring", Mechanism::RING),
    ("butterfly", Mechanism::Butterfly),
];

/// A line of `y` over `xs`.
fn series(name: &str, xs: &[f64], y: impl Fn(f64) -> Result<f64, SimError>) -> Result<Series, SimError> {
    let points: Result<_, SimError> = xs.iter().map(|&x| Ok((x, y(x)?))).collect();
    Ok(Series { name: name.to_owned(), points: points? })
}

fn chart(title: &str, x: &str, y: &str, log_x: bool, series: Vec<Series>) -> Chart {
    Chart { title: title.into(), x: x.into(), y: y.into(), log_x, series }
}

fn servers() -> Result<Chart, SimError> {
    let line = |model: &str| {
        let share = scenario(model, Mechanism::BASELINE)?;
        series(model, &[1.0, 2.0, 4.0, 8.0], |servers| {
            let mechanism = share.mechanism.with_servers(servers as u32, Assignment::RoundRobin);
            let mut scenario = Scenario { workers: 8, mechanism, ..share.clone() };
            scenario.links.bandwidth = 5_000_000_000;
            time(&scenario)
        })
    };
    let lines: Result<_, SimError> = Model::names().map(line).collect();
    Ok(chart(
        "Parameter servers, TensorFlow's assignment, 8 workers, 5 Gbit/s",
        "servers",
        "seconds",
        true,
        lines?,
    ))
}

fn in_network_workers() -> Result<Chart, SimError> {
    let line = |&(name, mechanism): &(&str, Mechanism)| {
        series(name, &[4.0, 8.0, 16.0, 32.0, 64.0, 128.0], |workers| {
            let with =
                |mechanism| time(&Scenario { workers: workers as u32, ..scenario("resnet200", mechanism)? });
            Ok(with(Mechanism::BASELINE)? / with(mechanism)?)
        })
    };
    let lines: Result<_, SimError> = COMPARED.iter().map(line).collect();
    Ok(chart("Gain over the baseline by workers, ResNet-200", "workers", "times", true, lines?))
}

fn bandwidth(model: &str) -> Result<Chart, SimError> {
    let line = |&(name, mechanism): &(&str, Mechanism)| {
        series(name, &[5.0, 10.0, 25.0, 50.0, 100.0], |gigabits| time_at(model, mechanism, gigabits as u64))
    };
    let lines: Result<_, SimError> = COMPARED.iter().map(line).collect();
    Ok(chart(&format!("Iteration time by bandwidth, {model}"), "Gbit/s", "seconds", true, lines?))
}

fn compute() -> Result<Chart, SimError> {
    let line = |&(name, mechanism): &(&str, Mechanism)| {
        series(name, &[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0], |speed| {
            let with = |mechanism| time_with_compute("resnet200", mechanism, speed);
            Ok(with(Mechanism::BASELINE)? / with(mechanism)?)
        })
    };
    let lines: Result<_, SimError> = COMPARED.iter().map(line).collect();
    Ok(chart("Gain over the baseline by compute speed, ResNet-200", "times as fast", "times", false, lines?))
}

fn ring_by_workers() -> Result<Chart, SimError> {
    let line = |model: &str| {
        series(model, &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0], |workers| {
            let with = |mechanism| time(&Scenario { workers: workers as u32, ..scenario(model, mechanism)? });
            Ok(with(Mechanism::BOTH)? / with(Mechanism::RING)?)
        })
    };
    let lines: Result<_, SimError> = Model::names().map(line).collect();
    Ok(chart("Multicast and aggregation over ring, by workers", "workers", "times", true, lines?))
}

fn layers(title: &str, (values, flops): (u64, u64)) -> Result<Chart, SimError> {
    let line = |&(name, mechanism): &(&str, Mechanism)| {
        series(name, &[0.0, 25.0, 50.0, 75.0, 100.0, 125.0], |layers| {
            let model =
                Model::published("inceptionv3")?.calibrated().with_layers(layers as u32, values, flops);
            let with = |mechanism| time(&Scenario::new(model.clone(), mechanism));
            Ok(with(Mechanism::BASELINE)? / with(mechanism)?)
        })
    };
    let lines: Result<_, SimError> = COMPARED.iter().map(line).collect();
    Ok(chart(&format!("{title}, gain over the baseline"), "layers", "times", false, lines?))
}

fn message_size() -> Result<Chart, SimError> {
    let line = |model: &str| {
        let whole = scenario(model, Mechanism::BOTH)?;
        series(model, &[0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 100.0, 700.0], |megabytes| {
            time(&Scenario { message: Some((megabytes * 8e6) as u64), ..whole.clone() })
        })
    };
    let lines: Result<_, SimError> = Model::names().map(line).collect();
    Ok(chart("Largest message, multicast and aggregation", "MB", "seconds", true, lines?))
}

fn barrier() -> Result<Chart, SimError> {
    let gigabits = [5.0, 10.0, 25.0, 50.0, 100.0];
    let line = |name: &str, mechanism, barrier, staleness| {
        series(name, &gigabits, |gigabits| {
            let mut scenario = Scenario { barrier, staleness, ..scenario("vgg16", mechanism)? };
            scenario.links.bandwidth = (gigabits * 1e9) as u64;
            time(&scenario)
        })
    };
    let lines = vec![
        line("both", Mechanism::BOTH, true, 0)?,
        line("both, no barrier", Mechanism::BOTH, false, 0)?,
        line("ring", Mechanism::RING, true, 0)?,
        line("ring, pipelined", Mechanism::RING, false, 1)?,
    ];
    Ok(chart("Global barrier, none, and a pipeline: VGG-16", "Gbit/s", "seconds", true, lines))
}

fn compression() -> Result<Chart, SimError> {
    let line = |name: &str, mechanism, compression: Option<Compression>| {
        series(name, &[1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0], |gigabits| {
            let wire = Wire { compression, packets: Some(Packets::of_mtu(1500)) };
            let mut scenario = Scenario { wire, ..scenario("vgg16", mechanism)? };
            scenario.links.bandwidth = (gigabits * 1e9) as u64;
            let plain = Scenario { wire: Wire { compression: None, ..wire }, ..scenario.clone() };
            Ok(time(&plain)? / time(&scenario)?)
        })
    };
    let truncation = Some(Compression::TRUNCATION_16);
    let (nic, host) = (Some("in-nic:b10".parse()?), Some("on-host:b10@2,2".parse()?));
    let lines = vec![
        line("ring, 16 bits", Mechanism::RING, truncation)?,
        line("ring, in the NIC", Mechanism::RING, nic)?,
        line("ring, host at 2 GB/s", Mechanism::RING, host)?,
        line("servers, 16 bits", Mechanism::BASELINE, truncation)?,
        line("servers, in the NIC", Mechanism::BASELINE, nic)?,
        line("servers, host at 2 GB/s", Mechanism::BASELINE, host)?,
    ];
    Ok(chart(
        "Gain by compression at a bound of 2^-10, VGG-16",
        "Gbit/s",
        "times as fast as f32",
        true,
        lines,
    ))
}
