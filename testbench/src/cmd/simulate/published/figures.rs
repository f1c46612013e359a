//! The plots of docs/simulator.md: the subjects of the figures of Chang et al.
//!
//! All with the calibrated backward times, the sizes of Table 2 and, unless said otherwise, 32
//! workers at 25 Gbit/s.

use gradwire_simulator::{Assignment, Compression, Mechanism, Model, Packets, Scenario, SimError, Wire};

use super::setting::{scenario, time, time_at, time_with_compute};
use crate::report::plot::{Chart, Series};

/// Simulates one plot.
pub type Figure = fn() -> Result<Chart, SimError>;

/// File name, without its ending, and what draws it. Figures of the paper have its number.
pub const ALL: [(&str, Figure); 15] = [
    ("servers", servers),
    ("fig3-bandwidth-inceptionv3", || bandwidth(3, "inceptionv3")),
    ("fig4-bandwidth-resnet200", || bandwidth(4, "resnet200")),
    ("fig5-bandwidth-vgg16", || bandwidth(5, "vgg16")),
    ("fig6-workers-inceptionv3", || workers(6, "inceptionv3")),
    ("fig7-workers-resnet200", || workers(7, "resnet200")),
    ("fig8-workers-vgg16", || workers(8, "vgg16")),
    ("fig9-network-heavy", || modules(9, "network-heavy", NETWORK_HEAVY)),
    ("fig10-compute-heavy", || modules(10, "compute-heavy", COMPUTE_HEAVY)),
    ("fig11-compute-inceptionv3", || compute(11, "inceptionv3")),
    ("fig12-compute-resnet200", || compute(12, "resnet200")),
    ("ring-by-workers", ring_by_workers),
    ("message-size", message_size),
    ("barrier", barrier),
    ("compression", compression),
];

/// The module of Inception-v3 that the paper adds where the network is to have more to do: the last
/// of 17x17x768.
pub(super) const NETWORK_HEAVY: &str = "mixed_17x17x768e/";
/// The row of a model whose processors are to have more to do: the last of 35x35x288.
pub(super) const COMPUTE_HEAVY: &str = "mixed_35x35x288b/";

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

fn workers(figure: u8, model: &str) -> Result<Chart, SimError> {
    let line = |&(name, mechanism): &(&str, Mechanism)| {
        series(name, &[4.0, 8.0, 16.0, 32.0, 64.0, 128.0], |workers| {
            let with = |mechanism| time(&Scenario { workers: workers as u32, ..scenario(model, mechanism)? });
            Ok(with(Mechanism::BASELINE)? / with(mechanism)?)
        })
    };
    let lines: Result<_, SimError> = COMPARED.iter().map(line).collect();
    let title = format!("Fig. {figure}: gain over the baseline by workers, {model}, 25 Gbit/s");
    Ok(chart(&title, "workers", "times", true, lines?))
}

fn bandwidth(figure: u8, model: &str) -> Result<Chart, SimError> {
    let line = |&(name, mechanism): &(&str, Mechanism)| {
        series(name, &[5.0, 10.0, 25.0, 50.0, 100.0], |gigabits| time_at(model, mechanism, gigabits as u64))
    };
    let lines: Result<_, SimError> = COMPARED.iter().map(line).collect();
    let title = format!("Fig. {figure}: iteration time by bandwidth, {model}, 32 workers");
    Ok(chart(&title, "Gbit/s", "seconds", true, lines?))
}

fn compute(figure: u8, model: &str) -> Result<Chart, SimError> {
    let line = |&(name, mechanism): &(&str, Mechanism)| {
        series(name, &[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0], |speed| {
            let with = |mechanism| time_with_compute(model, mechanism, speed);
            Ok(with(Mechanism::BASELINE)? / with(mechanism)?)
        })
    };
    let lines: Result<_, SimError> = COMPARED.iter().map(line).collect();
    let title =
        format!("Fig. {figure}: gain over the baseline by compute speed, {model}, 32 workers, 25 Gbit/s");
    Ok(chart(&title, "times as fast", "times", false, lines?))
}

fn ring_by_workers() -> Result<Chart, SimError> {
    let line = |model: &str| {
        series(model, &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0], |workers| {
            let with = |mechanism| time(&Scenario { workers: workers as u32, ..scenario(model, mechanism)? });
            Ok(with(Mechanism::BOTH)? / with(Mechanism::RING)?)
        })
    };
    let lines: Result<_, SimError> = Model::names().map(line).collect();
    Ok(chart("Multicast and aggregation over ring, by workers, 25 Gbit/s", "workers", "times", true, lines?))
}

fn modules(figure: u8, what: &str, module: &str) -> Result<Chart, SimError> {
    let line = |&(name, mechanism): &(&str, Mechanism)| {
        series(name, &[1.0, 5.0, 25.0, 50.0, 75.0, 100.0, 125.0], |copies| {
            gain_with_copies(mechanism, copies as u32, module)
        })
    };
    let lines: Result<_, SimError> = COMPARED.iter().map(line).collect();
    let title = format!(
        "Fig. {figure}: gain over the baseline by {what} modules added, inceptionv3, 32 workers, 25 Gbit/s"
    );
    Ok(chart(&title, "modules added", "times", false, lines?))
}

/// The gain of `mechanism` over the baseline with so many more of a module of Inception-v3.
pub(super) fn gain_with_copies(mechanism: Mechanism, copies: u32, module: &str) -> Result<f64, SimError> {
    let model = Model::published("inceptionv3")?.calibrated().with_copies(copies, module);
    let with = |mechanism| time(&Scenario::new(model.clone(), mechanism));
    Ok(with(Mechanism::BASELINE)? / with(mechanism)?)
}

fn message_size() -> Result<Chart, SimError> {
    let line = |model: &str| {
        let whole = scenario(model, Mechanism::BOTH)?;
        series(model, &[0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 100.0, 700.0], |megabytes| {
            time(&Scenario { message: Some((megabytes * 8e6) as u64), ..whole.clone() })
        })
    };
    let lines: Result<_, SimError> = Model::names().map(line).collect();
    Ok(chart(
        "Largest message, multicast and aggregation, 32 workers, 25 Gbit/s",
        "MB",
        "seconds",
        true,
        lines?,
    ))
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
    Ok(chart("Global barrier, none, and a pipeline: vgg16, 32 workers", "Gbit/s", "seconds", true, lines))
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
        "Gain by compression at a bound of 2^-10, vgg16, 32 workers, MTU 1500",
        "Gbit/s",
        "times as fast as f32",
        true,
        lines,
    ))
}
