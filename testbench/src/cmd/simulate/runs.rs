//! Runs of `gradwire simulate`: their options, sweeps over them, and what each is compared with.

use std::path::PathBuf;

use gradwire_simulator::{
    AggregatorRate, Assignment, Compression, ComputeTimes, Excess, Jitter, Links, MAX_WIDTH, MOST_VALUES,
    Mechanism, Model, Packets, Racks, Scenario, SimError, Wire, picos, seconds,
};
use rayon::prelude::*;
use serde::Serialize;

use crate::bench::costs;
use crate::cmd::args::model::{TimesArgs, model, traced};
use crate::cmd::args::quantity::{pair, plain, rate, scaled, time};
use crate::error::Error;
use crate::input::recordings;
use crate::report::ProgressBar;
use crate::report::{page, plot};

/// Runs to do: every model, mechanism, compression and value of the sweep.
#[derive(Clone, Debug, clap::Args)]
pub struct Runs {
    /// Models: vgg16, resnet101, resnet200, inceptionv3; gpt2, llama2-7b, vgg19, resnet50, ugatit,
    /// ugatit-light, bert-base, bert-large, lstm, transformer, whose times you give; or CSV files
    /// of name,values and perhaps forward_flops.
    #[arg(long, value_delimiter = ',', default_value = "vgg16", value_name = "MODEL,..")]
    pub model: Vec<String>,
    /// The number of ranks that train.
    #[arg(long, default_value_t = 32, help_heading = "Cluster")]
    pub ranks: u32,
    /// Bit/s of every link, each way.
    #[arg(long, default_value = "25G", value_parser = rate, help_heading = "Cluster")]
    pub bandwidth: u64,
    /// Ways to exchange gradients.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ps,agg,mc,mc+agg,ring,butterfly",
        value_name = "NAME,.."
    )]
    pub mechanism: Vec<Mechanism>,
    /// Compression to compare with f32 and 16 bits; may be given several times.
    #[arg(long, value_name = "CODEC", default_value = "in-nic:b10")]
    pub compress: Vec<String>,
    /// Values to run through: ranks, bandwidth, compute, layers, message, latency, servers,
    /// pipeline or aggregator-cores; A..B doubles.
    #[arg(long, value_name = "WHAT=A..B|A,B,..")]
    pub sweep: Option<String>,
    /// Parameter servers.
    #[arg(long, default_value_t = 1, help_heading = "Exchange")]
    pub servers: u32,
    /// Which server holds a parameter: TensorFlow's round robin of variables, or a piece of each on
    /// every one.
    #[arg(long, default_value = "even", value_parser = assignment, help_heading = "Exchange")]
    pub assign: Assignment,
    /// Do not wait for all gradients before parameters are sent out again.
    #[arg(long, help_heading = "Exchange")]
    pub no_barrier: bool,
    /// Pipe-SGD of this width: 2 lets a forward pass miss the last update, 3 the last two.
    #[arg(long, value_name = "WIDTH", value_parser = width, help_heading = "Exchange")]
    pub pipeline: Option<u32>,
    /// Cut what a server exchanges into messages of at most this many bytes.
    #[arg(long, value_parser = scaled, value_name = "BYTES", help_heading = "Exchange")]
    pub message: Option<u64>,
    /// Aggregate in the switch from the first bits on.
    #[arg(long, help_heading = "Exchange")]
    pub cut_through: bool,
    /// Values that a core of an aggregator in the network (ina) takes in a second, from all ranks
    /// together.
    #[arg(long, value_name = "VALUES", default_value = "500M", value_parser = scaled, help_heading = "Cluster")]
    pub aggregator_rate: u64,
    /// Cores of such an aggregator.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Cluster")]
    pub aggregator_cores: u32,
    /// Latency of a host's link.
    #[arg(long, default_value = "0s", value_parser = time, help_heading = "Cluster")]
    pub latency: f64,
    /// Count headers of packets of this MTU; without it, values only.
    #[arg(long, value_parser = clap::value_parser!(u64).range(576..=65_535), help_heading = "Cluster")]
    pub mtu: Option<u64>,
    /// Another rate for one rank's link; may be given several times.
    #[arg(long, value_name = "WORKER=RATE", value_parser = |text: &str| pair(text, '=', plain::<u32>, rate), help_heading = "Cluster")]
    pub link: Vec<(u32, u64)>,
    /// Racks of this many ranks, whose uplink is oversubscribed by this factor.
    #[arg(long, value_name = "SIZE:FACTOR", value_parser = |text: &str| pair(text, ':', plain::<u32>, plain::<f64>), help_heading = "Cluster")]
    pub racks: Option<(u32, f64)>,
    /// A pass takes up to this part longer, drawn for each worker and iteration.
    #[arg(long, default_value_t = 0.0, help_heading = "Compute and model")]
    pub jitter: f64,
    /// Seed of the jitter.
    #[arg(long, default_value_t = 0, requires = "jitter", help_heading = "Compute and model")]
    pub seed: u64,
    /// A worker that begins late; may be given several times.
    #[arg(long, value_name = "WORKER=TIME", value_parser = |text: &str| pair(text, '=', plain::<u32>, time), help_heading = "Compute and model")]
    pub late: Vec<(u32, f64)>,
    /// The factor by which ranks compute faster than the model's times.
    #[arg(long, default_value_t = 1.0, help_heading = "Compute and model")]
    pub compute: f64,
    /// Layers to add behind the last.
    #[arg(long, default_value_t = 0, help_heading = "Compute and model")]
    pub layers: u32,
    /// The values and operations of an added layer: values and forward FLOPs of an image [default:
    /// 1M,100M].
    #[arg(long, value_name = "VALUES,FLOPS", value_parser = |text: &str| pair(text, ',', scaled, scaled), help_heading = "Compute and model")]
    pub layer: Option<(u64, u64)>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub times: TimesArgs,
    /// Backward times with which the published Table 8 fits, not those of Table 3.
    #[arg(long, help_heading = "Compute and model")]
    pub calibrated: bool,
    /// A recorded trace, for sizes and compute times; replaces --model. Of several ranks in one
    /// file, or if it is given several times, each has its own times; more ranks have the same ones
    /// in turn.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "forward", "backward", "calibrated"], help_heading = "Compute and model")]
    pub trace: Vec<PathBuf>,
    /// Simulate every worker, even if one can stand for all.
    #[arg(long, help_heading = "Output")]
    pub full: bool,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write one self-contained page with the runs and the plot.
    #[arg(long, value_name = "FILE.html", value_parser = page::path, help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Draw the iteration times: .svg or .png.
    #[arg(long, value_name = "FILE", value_parser = plot::path, help_heading = "Output")]
    pub plot: Option<PathBuf>,
}

/// The width of a pipeline.
fn width(text: &str) -> Result<u32, String> {
    match plain(text)? {
        width @ 2..=MAX_WIDTH => Ok(width),
        1 => Err("expected 2 or more; 1 is what a run without a pipeline does".into()),
        _ => Err(format!("expected 2 to {MAX_WIDTH}")),
    }
}

fn assignment(text: &str) -> Result<Assignment, String> {
    match text {
        "even" => Ok(Assignment::Even),
        "round-robin" => Ok(Assignment::RoundRobin),
        _ => Err("even or round-robin".into()),
    }
}

/// A run's result, as `--json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulatedRun {
    /// Model.
    pub model: String,
    /// Mechanism.
    pub mechanism: String,
    /// `f32`, `16bit`, or as given.
    pub compression: String,
    /// The number of ranks that train.
    pub ranks: u32,
    /// Bit/s.
    pub bandwidth: u64,
    /// The value of what was swept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<f64>,
    /// Time of an iteration in seconds.
    pub iteration_s: f64,
    /// Time without compression over this.
    pub gain_f32: f64,
    /// Time with 16-bit values over this.
    pub gain_16bit: f64,
    /// Bytes that worker 0 sent in an iteration, headers included.
    pub sent_bytes: u64,
    /// Events processed.
    pub events: u64,
}

impl Runs {
    /// Does all runs, in parallel; the order of the results is that of the options.
    ///
    /// # Errors
    /// An option or a file is refused.
    pub fn simulate(&self) -> Result<Vec<SimulatedRun>, Error> {
        let swept = self.sweep.as_deref().unwrap_or_default();
        if self.layer.is_some() && self.layers == 0 && !swept.starts_with("layers=") {
            return Err(Error::Usage(
                "--layer says what --layers adds, which is nothing: give --layers N".into(),
            ));
        }
        let models = self.models()?;
        let compressions = self.compressions()?;
        let mut jobs = Vec::new();
        for (value, runs) in self.points()? {
            for model in &models {
                for &mechanism in &runs.mechanism {
                    let scenario = runs.scenario(model, mechanism)?;
                    let most = |codec: &(String, _)| runs.most_events(&with(&scenario, codec.1));
                    let most = compressions.iter().map(most).collect::<Result<Vec<u64>, _>>()?;
                    jobs.push((value, scenario, most));
                }
            }
        }
        let events = jobs.iter().flat_map(|(_, _, most)| most).sum();
        if let Some(notice) = notice(jobs.len() * compressions.len(), events) {
            eprintln!("gradwire: {notice}");
        }
        let progress = ProgressBar::new("events", events);
        let results: Result<Vec<Vec<SimulatedRun>>, Error> = jobs
            .into_par_iter()
            .map(|(value, scenario, most)| compare(value, &scenario, &compressions, &most, &progress))
            .collect();
        Ok(results?.into_iter().flatten().collect())
    }

    /// The options that are the same in all runs but for `swept`, and not their defaults: for
    /// titles.
    #[must_use]
    pub fn fixed(&self, swept: Option<&str>) -> String {
        let all = [
            ("ranks", true, format!("{} ranks", self.ranks)),
            ("bandwidth", true, format!("{} Gbit/s", self.bandwidth as f64 / 1e9)),
            ("latency", self.latency > 0.0, format!("latency {} us", 1e6 * self.latency)),
            ("servers", self.servers > 1, format!("{} servers", self.servers)),
            (
                "aggregator-cores",
                self.mechanism.iter().any(|mechanism| matches!(mechanism, Mechanism::InNetwork { .. })),
                format!(
                    "aggregators of {} core(s) at {} G values/s",
                    self.aggregator_cores,
                    self.aggregator_rate as f64 / 1e9
                ),
            ),
            ("message", self.message.is_some(), format!("messages of {} bytes", self.message.unwrap_or(0))),
            ("compute", self.compute != 1.0, format!("compute {}x", self.compute)),
            ("layers", self.layers > 0, format!("{} layers added", self.layers)),
            ("mtu", self.mtu.is_some(), format!("MTU {}", self.mtu.unwrap_or(0))),
            ("jitter", self.jitter > 0.0, format!("jitter {}, seed {}", self.jitter, self.seed)),
            ("barrier", self.no_barrier, "no barrier".into()),
            ("pipeline", self.pipeline.is_some(), format!("pipeline of {}", self.pipeline.unwrap_or(1))),
            ("cut-through", self.cut_through, "cut-through".into()),
            ("links", !self.link.is_empty(), format!("{} links of another rate", self.link.len())),
            ("late", !self.late.is_empty(), format!("{} late ranks", self.late.len())),
            (
                "racks",
                self.racks.is_some(),
                self.racks.map_or_else(String::new, |(n, f)| format!("racks of {n}, {f}:1")),
            ),
            ("trace", !self.trace.is_empty(), "traced".into()),
            ("calibrated", self.calibrated, "calibrated".into()),
        ];
        let fixed = all.into_iter().filter(|(name, fixed, _)| *fixed && swept != Some(*name));
        fixed.map(|(_, _, text)| text).collect::<Vec<_>>().join(", ")
    }

    fn compressions(&self) -> Result<Vec<(String, Option<Compression>)>, Error> {
        let baselines = [("f32".to_owned(), None), ("16bit".to_owned(), Some(Compression::TRUNCATION_16))];
        let given = self.compress.iter().map(|text| Ok((text.clone(), Some(compression(text)?))));
        baselines.into_iter().map(Ok).chain(given).collect()
    }

    /// Models, and the compute times of each worker of a trace; without one, none.
    fn models(&self) -> Result<Vec<(Model, Vec<ComputeTimes>)>, Error> {
        if !self.trace.is_empty() {
            let (model, times) = traced(&self.trace)?;
            return Ok(vec![(model, times)]);
        }
        self.model.iter().map(|name| Ok((self.model(name)?, Vec::new()))).collect()
    }

    fn model(&self, name: &str) -> Result<Model, Error> {
        let model = model(name)?;
        let model = if self.calibrated { model.calibrated() } else { model };
        Ok(self.times.of(model))
    }

    fn scenario(
        &self,
        (model, times): &(Model, Vec<ComputeTimes>),
        mechanism: Mechanism,
    ) -> Result<Scenario, Error> {
        if !(self.compute.is_finite() && self.compute > 0.0) {
            return Err(Error::Usage("--compute has to be positive".into()));
        }
        let (values, flops) = self.layer.unwrap_or((1_000_000, 100_000_000));
        if values.max(flops) > MOST_VALUES || self.layers > 100_000 {
            return Err(Error::Usage("--layers or --layer is out of range".into()));
        }
        let model = if self.layers == 0 {
            model.clone()
        } else {
            model.clone().with_layers(self.layers, values, flops)
        };
        let model = {
            let (forward, backward) = (model.forward / self.compute, model.backward / self.compute);
            model.timed(forward, backward)
        };
        if !times.is_empty() && self.layers > 0 {
            return Err(Error::Usage("layers cannot be added to a trace".into()));
        }
        let compute_times = if times.is_empty() {
            vec![ComputeTimes::of(&model)]
        } else {
            times.iter().map(|times| times.faster(self.compute)).collect()
        };
        Ok(Scenario {
            compute_times,
            workers: self.ranks,
            links: Links {
                bandwidth: self.bandwidth,
                exceptions: self.link.clone(),
                latency: picos(self.latency),
                racks: self.racks.map(|(size, oversubscription)| Racks { size, oversubscription }),
            },
            aggregator: AggregatorRate { rate: self.aggregator_rate, cores: self.aggregator_cores },
            wire: Wire { compression: None, packets: self.mtu.map(Packets::of_mtu) },
            message: self.message.map(|bytes| bytes * 8),
            cut_through: self.cut_through,
            barrier: !self.no_barrier && self.pipeline.is_none(),
            staleness: self.pipeline.map_or(0, |width| width - 1),
            jitter: Jitter { amount: self.jitter, seed: self.seed },
            late: self.late.iter().map(|&(worker, late)| (worker, picos(late))).collect(),
            full: self.full,
            ..Scenario::new(model, mechanism.with_servers(self.servers, self.assign))
        })
    }

    /// The number of events the scenario takes at most; refuses what cannot be run.
    fn most_events(&self, scenario: &Scenario) -> Result<u64, Error> {
        match scenario.check() {
            Ok(work) => Ok(work.events),
            Err(error @ SimError::TooLarge { excess, .. }) => {
                Err(Error::Usage(format!("{}: {error}", self.option(excess))))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The option that makes a run too large.
    fn option(&self, excess: Excess) -> String {
        match (excess, self.message) {
            (Excess::Message, Some(bytes)) => format!("--message {bytes}"),
            (Excess::Servers, _) => format!("--servers {}", self.servers),
            (Excess::Full, _) => "--full".into(),
            (Excess::Workers, _) => format!("--ranks {}", self.ranks),
            _ if self.layers > 0 => format!("--layers {}", self.layers),
            _ => "--model".into(),
        }
    }

    /// The values of the sweep and the options of each; one point without a sweep.
    fn points(&self) -> Result<Vec<(Option<f64>, Self)>, Error> {
        let Some(sweep) = &self.sweep else { return Ok(vec![(None, self.clone())]) };
        let (what, values) =
            sweep.split_once('=').ok_or_else(|| Error::Usage(format!("--sweep {sweep} has no =")))?;
        expand(values)?
            .into_iter()
            .map(|text| {
                let mut runs = self.clone();
                let value = runs
                    .set(what, &text)
                    .map_err(|error| Error::Usage(format!("--sweep {what}: {error}")))?;
                Ok((Some(value), runs))
            })
            .collect()
    }

    /// Sets what is swept; returns its value as a number.
    fn set(&mut self, what: &str, text: &str) -> Result<f64, String> {
        Ok(match what {
            "ranks" => {
                self.ranks = u32::try_from(scaled(text)?).map_err(|_| "out of range")?;
                f64::from(self.ranks)
            }
            "servers" => {
                self.servers = u32::try_from(scaled(text)?).map_err(|_| "out of range")?;
                f64::from(self.servers)
            }
            "aggregator-cores" => {
                self.aggregator_cores = plain(text)?;
                f64::from(self.aggregator_cores)
            }
            "pipeline" => {
                let width = width(text)?;
                self.pipeline = Some(width);
                f64::from(width)
            }
            "bandwidth" => {
                self.bandwidth = rate(text)?;
                self.bandwidth as f64
            }
            "message" => {
                self.message = Some(scaled(text)?);
                scaled(text)? as f64
            }
            "layers" => {
                self.layers = plain(text)?;
                f64::from(self.layers)
            }
            "compute" => {
                self.compute = plain(text)?;
                self.compute
            }
            "latency" => {
                self.latency = time(text)?;
                self.latency
            }
            _ => {
                return Err(
                    "not one of ranks, bandwidth, compute, layers, message, latency, servers, pipeline, aggregator-cores"
                        .into(),
                );
            }
        })
    }
}

/// `A..B`: A, doubled until B; otherwise what is between the commas.
fn expand(values: &str) -> Result<Vec<String>, Error> {
    let Some((first, last)) = values.split_once("..") else {
        return Ok(values.split(',').map(str::to_owned).collect());
    };
    let number = |text| scaled(text).map_err(|error| Error::Usage(format!("--sweep: {error}")));
    let (first, last) = (number(first)?, number(last)?);
    let doubled: Vec<String> = std::iter::successors(Some(first), |&value| value.checked_mul(2))
        .take_while(|&value| value <= last)
        .map(|value| value.to_string())
        .collect();
    if doubled.is_empty() { Err(Error::Usage(format!("--sweep {values} is empty"))) } else { Ok(doubled) }
}

/// A compression as options have it; `@measured` stands for the rates of this machine.
fn compression(text: &str) -> Result<Compression, Error> {
    let Some(codec) = text.strip_suffix("@measured") else { return Ok(text.parse()?) };
    let bound = codec.strip_prefix("on-host:b").and_then(|bound| bound.parse().ok());
    let bound =
        bound.ok_or_else(|| Error::Usage(format!("{text}: only on-host:b10, b8 or b6 can be measured")))?;
    let measured = costs::wire(&recordings::builtin()?, 1, bound, || {})?;
    let megabyte = 1e6;
    let rate = |seconds: f64| megabyte / seconds / 1e9;
    let (encode, decode) = (measured.encode.at(megabyte), measured.decode.at(megabyte / measured.ratio));
    Ok(format!("{codec}@{},{}", rate(encode), rate(decode)).parse()?)
}

/// The notice before runs that take a while; a terminal has a bar besides.
fn notice(runs: usize, events: u64) -> Option<String> {
    /// Some ten seconds of one core.
    const LONG: u64 = 100_000_000;
    (events > LONG).then(|| format!("{runs} runs of up to {} million events in all", events / 1_000_000))
}

/// The scenario with another codec.
fn with(scenario: &Scenario, compression: Option<Compression>) -> Scenario {
    Scenario { wire: Wire { compression, ..scenario.wire }, ..scenario.clone() }
}

/// One scenario under every compression, the first two of which are the baselines; `most` are their
/// events.
fn compare(
    sweep: Option<f64>,
    scenario: &Scenario,
    compressions: &[(String, Option<Compression>)],
    most: &[u64],
    progress: &ProgressBar,
) -> Result<Vec<SimulatedRun>, Error> {
    let mut baselines = Vec::new();
    let mut runs = Vec::new();
    for ((name, compression), &most) in compressions.iter().zip(most) {
        let mut done = 0;
        let mut at = |events| {
            progress.advance(events - done);
            done = events;
        };
        let outcome = with(scenario, *compression).run_watched(&mut at)?;
        // They were fewer; the bar is not to fall short.
        at(most);
        let iteration_s = seconds(outcome.iteration);
        baselines.push(iteration_s);
        runs.push(SimulatedRun {
            model: scenario.model.name.clone(),
            mechanism: scenario.mechanism.to_string(),
            compression: name.clone(),
            ranks: scenario.workers,
            bandwidth: scenario.links.bandwidth,
            sweep,
            iteration_s,
            gain_f32: 0.0,
            gain_16bit: 0.0,
            sent_bytes: outcome.sent[0] / 8 / u64::from(scenario.iterations()),
            events: outcome.events,
        });
    }
    for run in &mut runs {
        // One worker and no compute take no time at all.
        let gain = |over: f64| if over == run.iteration_s { 1.0 } else { over / run.iteration_s };
        (run.gain_f32, run.gain_16bit) = (gain(baselines[0]), gain(baselines[1]));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_announced() {
        assert_eq!(notice(24, 1_000_000), None);
        let text = notice(24, 300_000_000).unwrap();
        assert!(text.contains("24 runs") && text.contains("300 million"), "{text}");
    }
}
