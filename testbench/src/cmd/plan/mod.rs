//! `gradwire plan`: whether compression pays, tensor by tensor.

pub mod published;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use gradwire_codecs::{Chosen, Registry};
use gradwire_collectives::{Coding, CodingError, CollectivePlan, GraphPlan};
use gradwire_simulator::AggregatorRate;
use gradwire_simulator::planner::casync::Strategy;
use gradwire_simulator::planner::classes::SizeClass;
use gradwire_simulator::planner::cost_profile::{CodecCosts, Compute, CostProfile};
use gradwire_simulator::planner::curve::Curve;
use gradwire_simulator::planner::in_network::{Bottleneck, InNetwork};
use gradwire_simulator::planner::{Plan, Planner};
use serde::Serialize;

use crate::bench::costs::{self, Sends};
use crate::cmd::args::codec::bound;
use crate::cmd::args::model::{TimesArgs, model};
use crate::cmd::args::quantity::{rate, scaled, time};
use crate::error::{Error, Outcome};
use crate::input::recordings;
use crate::report;
use crate::report::{ProgressBar, Table};

/// Decides for each tensor of a model whether compression pays, with which codec and in how many
/// parts, by CaSync's cost model and measured costs.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
JSON: {\"tensors\": [{\"tensor\", \"bytes\", \"compress\", \"reason\", \"codec\", \"bound\", \"partitions\", \"plain_s\",
\"truncated_s\", \"compressed_s\"}], \"iteration_f32_s\", \"iteration_16bit_s\", \"iteration_s\", \"gain_f32\", \"gain_16bit\",
\"pays\", \"classes\": [{\"from\", \"below\", \"codec\", \"partitions\", \"tensors\"}], \"loopback\", \"in_network\": {\"iteration_s\", \"gain\", \"bottleneck\", \"cores\", \"pays\"}}; partitions are those of the decision.
classes are the numbers of values that are exchanged alike, of tensors of at least --small; codec is null for f32. loopback is null, or {\"gain_f32\": [least, most], \"pays_always\"} if the
plan rests on sends over this machine's loopback. in_network is an iteration with an aggregator in the switch's place, and
\"gain\" is the plan's over it; \"cores\" are those with which the aggregator would not be the bottleneck.

Examples:
  gradwire plan gpt2 --ranks 8 --bandwidth 25G --latency 5us --forward 50ms --backward 100ms
  gradwire plan profile --output this.toml
  gradwire plan vgg16 --ranks 16 --profile this.toml
  gradwire plan resnet50 --ranks 4 --strategy ps-colocated --bandwidth 1G --out plan.toml
  gradwire allreduce --local 4 --model resnet50 --plan plan.toml
  gradwire plan my.csv --ranks 5 --strategy ps --profile this.toml --json
  torchrun --nproc_per_node 4 -m gradwire run --plan auto --profile run.toml train.py
  gradwire plan my.csv --ranks 4 --strategy ps-colocated --profile run.toml --out plan.toml"
)]
pub struct Args {
    /// Measure, or compare with what is published, instead.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// vgg16, resnet101, resnet200, inceptionv3; gpt2, llama2-7b, vgg19, resnet50, ugatit,
    /// ugatit-light, bert-base, bert-large, lstm, transformer, whose times you give; or a CSV file
    /// of name,values and perhaps forward_flops.
    #[arg(required = true)]
    pub model: Option<String>,
    /// The number of ranks the job has.
    #[arg(long, required = true, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub ranks: Option<u32>,
    /// The strategy of exchange.
    #[arg(long, value_enum, default_value = "ring")]
    pub strategy: StrategyArg,
    /// Costs, as `plan profile` writes them, or a run's `gradwire.State.write_profile` in PyTorch,
    /// whose codecs are measured now [default: all measured now, over loopback].
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Bandwidth of the link between ranks, as 25G or 25Gbit/s, in place of the profile's.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub bandwidth: Option<u64>,
    /// The time that each message on that link takes besides its bytes [default: that of an empty
    /// message in the --profile, without one 12us].
    #[arg(long, value_name = "TIME", value_parser = time, requires = "bandwidth")]
    pub latency: Option<f64>,
    /// Codecs to choose from, as plans name them, whatever they lose [default: all that keep
    /// --bound and --lost].
    #[arg(long, value_name = "CODEC,..", value_delimiter = ',')]
    pub codec: Vec<String>,
    /// The largest part of a gradient's norm that a codec on the host may lose in its first
    /// message, if --codec names none; q8, which learns as f32 does, loses 0.09 of the built-in
    /// ones.
    #[arg(long, value_name = "PART", default_value_t = 0.1, conflicts_with = "codec")]
    pub lost: f64,
    /// Loosest error bound of the network's codecs as an exponent: 10 means 2^-10 or tighter.
    #[arg(long, default_value_t = 10, value_parser = bound())]
    pub bound: u8,
    /// The codec runs in the NIC and costs no time: it is wire:1:B or wire:2:B.
    #[arg(long)]
    pub in_nic: bool,
    /// Values that a core of an aggregator in the switch's place would sum in a second.
    #[arg(long, value_name = "VALUES", default_value = "500M", value_parser = scaled)]
    pub aggregator_rate: u64,
    /// Cores of such an aggregator.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub aggregator_cores: u32,
    /// Smallest saving that is worth it, as a part of a tensor's time.
    #[arg(long, default_value_t = 0.1)]
    pub threshold: f64,
    /// Tensors with fewer values go together, as f32.
    #[arg(long, value_name = "N", default_value_t = GraphPlan::DEFAULT_SMALL as u64)]
    pub small: u64,
    /// Write the plan as TOML: what `gradwire allreduce --plan FILE` and PyTorch's
    /// `gradwire.State(plan="@FILE")` run, at ranks of this model.
    #[arg(long, value_name = "FILE", value_parser = report::output)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub times: TimesArgs,
    /// Print whole names of tensors, however long.
    #[arg(long)]
    pub long: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Further commands of the planner; documented where the arguments are.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "documentation here would take the place of that of the arguments")]
pub enum Command {
    Profile(ProfileArgs),
    Published(published::Args),
}

/// Measures what sending, encoding and decoding take, and prints it as TOML.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A link between two machines:
  there:  gradwire plan profile --listen 0.0.0.0:7100
  here:   gradwire plan profile --connect there:7100 --output link.toml")]
pub struct ProfileArgs {
    /// Measure the link to this address [default: loopback].
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<String>,
    /// Be the other end of one measurement, and measure nothing.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["connect", "output", "bounds", "codec", "gradients"])]
    pub listen: Option<String>,
    /// Error bounds to measure the network's codecs, wire:1:B and wire:2:B, at, as exponents.
    #[arg(long, value_name = "B,..", value_delimiter = ',', default_value = "10,8,6", value_parser = bound())]
    pub bounds: Vec<u8>,
    /// Codecs on the host to measure [default: each that there is, with parameters that people
    /// use].
    #[arg(long, value_name = "CODEC,..", value_delimiter = ',')]
    pub codec: Vec<String>,
    /// Gradients to measure codecs on: .npy files or folders of them [default: built in].
    #[arg(long, value_name = "PATH")]
    pub gradients: Vec<PathBuf>,
    /// File to write instead of standard output.
    #[arg(long, value_name = "FILE", value_parser = report::output)]
    pub output: Option<PathBuf>,
}

/// What a message takes besides its bytes if nobody knows: with it all decisions of HiPress' Table
/// 7 come out, and `gradwire simulate stack` assumes as much, half of it at each end.
const LATENCY_S: f64 = 12e-6;

/// The strategy of exchange, as options have it.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum StrategyArg {
    /// Ring.
    Ring,
    /// Parameter servers on hosts of their own.
    Ps,
    /// A parameter server on every rank.
    PsColocated,
}

/// Plans or measures, and reports to `out`. That nothing pays is an answer, not a failure.
///
/// # Errors
/// An option or a file is refused, or the measurement fails.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    match &args.command {
        Some(Command::Profile(args)) => return measure_and_write(args, out),
        Some(Command::Published(args)) => return published::run(args, out),
        None => {}
    }
    let (Some(name), Some(ranks)) = (&args.model, args.ranks) else {
        return Err(Error::Usage("a plan needs a model and --ranks".into()));
    };
    if !(0.0..1.0).contains(&args.threshold) {
        return Err(Error::Usage("--threshold has to be from 0 to below 1".into()));
    }
    if !(0.0..=1.0).contains(&args.lost) {
        return Err(Error::Usage("--lost has to be from 0 to 1".into()));
    }
    let model = model(name)?;
    let asked = args.codec.iter().map(|text| canonical(text)).collect::<Result<Vec<_>, _>>()?;
    let link = |latency| {
        let latency = args.latency.unwrap_or(latency);
        args.bandwidth.map(|rate| Curve::affine(latency, rate as f64 / 8.0))
    };
    let (mut profile, sends) = match &args.profile {
        Some(path) => {
            let profile = read(path)?;
            let latency = profile.send.at(0.0);
            let profile = CostProfile { send: link(latency).unwrap_or(profile.send), ..profile };
            if profile.codecs.is_empty() {
                // Of a run: codecs are measured here.
                let compute = profile.compute;
                let (measured, _) = measure(&[args.bound], &codecs(&asked)?, &[], Link::Known(profile.send))?;
                (CostProfile { compute, ..measured }, None)
            } else {
                (profile, None)
            }
        }
        None => {
            let host = codecs(&asked)?;
            measure(&[args.bound], &host, &[], link(LATENCY_S).map_or(Link::To(None), Link::Known))?
        }
    };
    retain(&mut profile, args, &asked)?;
    // What is asked for goes before what a run measured, and that before what is published.
    let model = match profile.compute {
        Some(Compute { forward, backward }) => args.times.of(model.timed(forward, backward)),
        None => args.times.of(model),
    };
    if args.aggregator_rate == 0 || args.aggregator_cores == 0 {
        return Err(Error::Usage("--aggregator-rate and --aggregator-cores have to be positive".into()));
    }
    let strategy = match args.strategy {
        StrategyArg::Ring => Strategy::Ring,
        StrategyArg::Ps => Strategy::Ps,
        StrategyArg::PsColocated => Strategy::PsColocated,
    };
    let planner = Planner {
        profile: &profile,
        strategy,
        ranks,
        bound: args.bound,
        in_nic: args.in_nic,
        threshold: args.threshold,
    };
    let plan = planner.plan(&model);
    let classes = planner.classes(&model, args.small);
    if let Some(path) = &args.out {
        let made = format!("gradwire plan {name} --ranks {ranks}");
        let plan = CollectivePlan::from(planner.graph_plan(&classes, args.small)?);
        let text =
            format!("# As {made} decided; docs/collectives.md says what a line means.\n{}", plan.to_toml());
        fs::write(path, text).map_err(|source| Error::io(path.display().to_string(), "write", source))?;
    }
    let aggregator = AggregatorRate { rate: args.aggregator_rate, cores: args.aggregator_cores };
    let in_network = planner.in_network(&model, &plan, aggregator);
    // Sends that were measured without a profile went over loopback: the plan is worth what they
    // agree on.
    let loopback = sends.map(|sends| {
        let over = |send| {
            let profile = CostProfile { send, ..profile.clone() };
            Planner { profile: &profile, ..planner.clone() }.plan(&model)
        };
        Loopback::between(&over(sends.fastest), &over(sends.slowest))
    });
    if args.json {
        report::json(out, &PlanReport { plan: &plan, classes: &classes, loopback, in_network })?;
    } else {
        write(out, &plan, args.threshold, args.long)?;
        write_classes(out, &classes, args.small)?;
        if let Some(summed) = in_network {
            write_in_network(out, summed, aggregator)?;
        }
        if let Some(spread) = loopback {
            let pays = if spread.pays_always { "" } else { ", and does not always pay" };
            writeln!(
                out,
                "This rests on this machine's loopback: by its fastest and slowest sends the plan gains {:.2}x to {:.2}x against\n\
                 f32{pays}. For another link, say --bandwidth 25G --latency 5us, or measure it (gradwire plan profile --help).",
                spread.gain_f32.0, spread.gain_f32.1
            )?;
        }
    }
    Ok(Outcome::Held)
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct PlanReport<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// What the plan file has.
    classes: &'a [SizeClass],
    /// If the plan rests on this machine's loopback.
    loopback: Option<Loopback>,
    /// With an aggregator.
    in_network: Option<InNetwork>,
}

/// The plan with the fastest and with the slowest sends over loopback.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Loopback {
    /// The smaller and the larger gain against `f32`.
    gain_f32: (f64, f64),
    /// Whether it pays with both.
    pays_always: bool,
}

impl Loopback {
    fn between(fastest: &Plan, slowest: &Plan) -> Self {
        let (a, b) = (fastest.gain_f32, slowest.gain_f32);
        Self { gain_f32: (a.min(b), a.max(b)), pays_always: fastest.pays && slowest.pays }
    }
}

fn write(out: &mut impl Write, plan: &Plan, threshold: f64, long: bool) -> Result<(), Error> {
    let mut table =
        Table::new(&["tensor", "kB", "compress", "codec", "bound", "K", "f32", "16 bit", "with", "why not"]);
    let dash = || "-".to_owned();
    for tensor in &plan.tensors {
        let micros = |time: f64| format!("{:.1}", time * 1e6);
        table.row([
            tensor.tensor.clone(),
            format!("{:.1}", tensor.bytes as f64 / 1e3),
            if tensor.compress { "yes" } else { "no" }.into(),
            tensor.codec.clone().unwrap_or_else(dash),
            tensor.bound.map_or_else(dash, |bound| format!("2^-{bound}")),
            tensor.partitions.to_string(),
            micros(tensor.plain_s),
            micros(tensor.truncated_s),
            tensor.compressed_s.map_or_else(dash, micros),
            tensor.reason.map_or_else(dash, |reason| reason.name().into()),
        ]);
    }
    if long {
        table.write_long(out)?;
    } else {
        table.write(out)?;
    }
    writeln!(out, "\nK                 partitions; f32, 16 bit and with: us to exchange the tensor so")?;
    let reasons = plan.tensors.iter().filter_map(|tensor| tensor.reason);
    for (name, reason) in reasons.map(|reason| (reason.name(), reason)).collect::<BTreeMap<_, _>>() {
        writeln!(out, "{name:<17} {reason}")?;
    }
    let yes = plan.tensors.iter().filter(|tensor| tensor.compress).count();
    writeln!(
        out,
        "\n{yes} of {} tensors are worth it\nan iteration takes {:.4} s, {:.2}x as fast as f32 ({:.4} s) and {:.2}x as 16 bit ({:.4} s)",
        plan.tensors.len(),
        plan.iteration_s,
        plan.gain_f32,
        plan.iteration_f32_s,
        plan.gain_16bit,
        plan.iteration_16bit_s,
    )?;
    let verdict = if plan.pays {
        "compression pays"
    } else if yes == 0 {
        "compression does not pay: no tensor reaches the threshold"
    } else if plan.iteration_s > (1.0 - threshold) * plan.iteration_f32_s {
        "compression does not pay: something else bounds the iteration; it saves less than the threshold"
    } else {
        "compression does not pay: against truncation to 16 bits the iteration saves less than the threshold"
    };
    writeln!(out, "{verdict}")?;
    Ok(())
}

/// What the plan file says.
fn write_classes(out: &mut impl Write, classes: &[SizeClass], small: u64) -> Result<(), Error> {
    writeln!(out, "\ntensors of fewer than {small} values go together, as f32; of others, by their values:")?;
    let mut table = Table::new(&["values", "codec", "K", "tensors"]);
    for SizeClass { from, below, codec, partitions, tensors } in classes {
        let below = below.map_or_else(String::new, |below| below.to_string());
        let codec = codec.clone().unwrap_or_else(|| "f32".into());
        table.row([format!("{from}..{below}"), codec, partitions.to_string(), tensors.to_string()]);
    }
    Ok(table.write(out)?)
}

/// Whether an aggregator in the network pays, and if not, why.
fn write_in_network(
    out: &mut impl Write,
    summed: InNetwork,
    aggregator: AggregatorRate,
) -> Result<(), Error> {
    let InNetwork { iteration_s, gain, bottleneck, cores, pays } = summed;
    let verdict = match (pays, bottleneck) {
        (true, _) => format!("it pays; {bottleneck} bounds the iteration"),
        (false, Bottleneck::Aggregator) => {
            format!("it does not pay: the aggregator bounds it; with {cores} cores it would not")
        }
        (false, _) => format!("it does not pay: {bottleneck} bounds the iteration"),
    };
    writeln!(
        out,
        "an aggregator in the switch's place (cores {}, M values/s each {}): an iteration takes {iteration_s:.4} s,\n\
         {gain:.2}x as fast as planned; {verdict}",
        aggregator.cores,
        aggregator.rate as f64 / 1e6,
    )?;
    Ok(())
}

fn measure_and_write(args: &ProfileArgs, out: &mut impl Write) -> Result<Outcome, Error> {
    if let Some(address) = &args.listen {
        costs::listen(address.as_str())?;
        return Ok(Outcome::Held);
    }
    let host = codecs(&args.codec)?;
    let (profile, _) = measure(&args.bounds, &host, &args.gradients, Link::To(args.connect.as_deref()))?;
    let text = toml::to_string(&profile).map_err(|error| Error::Usage(error.to_string()))?;
    match &args.output {
        Some(path) => {
            fs::write(path, text).map_err(|source| Error::io(path.display().to_string(), "write", source))?;
        }
        None => out.write_all(text.as_bytes())?,
    }
    Ok(Outcome::Held)
}

/// Leaves the codecs to choose from. The network's stay for what an aggregator would sum.
fn retain(profile: &mut CostProfile, args: &Args, asked: &[String]) -> Result<(), Error> {
    for name in asked {
        if args.in_nic != name.starts_with("wire:") {
            let expected = if args.in_nic {
                "with --in-nic the codec is the network's, wire:C:B"
            } else {
                "wire:C:B runs in the network: say --in-nic, or take a host codec such as bounded:B"
            };
            return Err(Error::Usage(format!("--codec {name}: {expected}")));
        }
        if !profile.codecs.iter().any(|codec| codec.name == *name) {
            let known: Vec<&str> = profile.codecs.iter().map(|codec| codec.name.as_str()).collect();
            return Err(Error::Usage(format!(
                "--codec {name} was not measured: the profile has {}; measure it with gradwire plan profile --codec {name}",
                known.join(", ")
            )));
        }
    }
    profile.codecs.retain(|codec| {
        let wanted = |named: bool| if asked.is_empty() { named } else { asked.contains(&codec.name) };
        if codec.is_networks() { !args.in_nic || wanted(true) } else { wanted(codec.lost <= args.lost) }
    });
    Ok(())
}

/// A codec's name as it prints itself, by which profiles have it.
fn canonical(text: &str) -> Result<String, Error> {
    let coding: Coding = text.parse().map_err(|error: CodingError| Error::Usage(error.to_string()))?;
    Ok(coding.to_string())
}

/// The host codecs of these names; without any, each that there is.
fn codecs(names: &[String]) -> Result<Vec<Chosen>, Error> {
    let all = Registry::EXAMPLES.iter().copied().filter(|name| *name != "f32");
    let names: Vec<&str> =
        if names.is_empty() { all.collect() } else { names.iter().map(String::as_str).collect() };
    let host = names.into_iter().filter(|name| !name.starts_with("wire:"));
    host.map(|name| Registry::BUILT_IN.codec(name).map_err(|error| Error::Usage(error.to_string()))).collect()
}

/// The source of the cost of sending.
enum Link<'a> {
    /// This.
    Known(Curve),
    /// The result of a measurement to this address; over loopback if there is none.
    To(Option<&'a str>),
}

/// Costs of the network's codecs at these bounds, of `host`'s, and of the link; and how far the
/// sends lay apart if they were measured.
fn measure(
    bounds: &[u8],
    host: &[Chosen],
    gradients: &[PathBuf],
    link: Link,
) -> Result<(CostProfile, Option<Sends>), Error> {
    let (recordings, refused) = recordings::load_or_builtin(gradients)?;
    if let Some(error) = refused.into_iter().next() {
        return Err(error);
    }
    let sends = matches!(link, Link::To(_));
    let progress = ProgressBar::new("costs", costs::steps(sends, 2 * bounds.len() + host.len()));
    let (send, measured) = match link {
        Link::Known(send) => (send, None),
        Link::To(peer) => {
            let sends = costs::send(costs::connect(peer)?, || progress.step())?;
            (sends.median.clone(), Some(sends))
        }
    };
    let pairs = bounds.iter().flat_map(|&bound| [(1, bound), (2, bound)]);
    let networks = pairs.map(|(codec, bound)| costs::wire(&recordings, codec, bound, || progress.step()));
    let hosts = host.iter().map(|&codec| costs::host(&recordings, codec, || progress.step()));
    let compute = None;
    Ok((CostProfile { send, compute, codecs: networks.chain(hosts).collect::<Result<_, _>>()? }, measured))
}

fn read(path: &Path) -> Result<CostProfile, Error> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| Error::io(&name, "read", source))?;
    let profile: CostProfile = toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let expected = "a profile as `gradwire plan profile` or State.write_profile writes it";
        Error::input(&name, offset, error.message(), expected)
    })?;
    if let Some(Compute { forward, backward }) = profile.compute
        && ![forward, backward].iter().all(|time| (0.0..=86_400.0).contains(time))
    {
        let what = format!(
            "{name}: compute takes {forward} and {backward} s: expected seconds of an iteration, 0 to a day"
        );
        return Err(Error::Usage(what));
    }
    for codec in &profile.codecs {
        let CodecCosts { name: codec_name, ratio, lost, .. } = codec;
        let bad = |why: String| Err(Error::Usage(format!("{name}: codec {codec_name} {why}")));
        if !(ratio.is_finite() && *ratio > 0.0) {
            return bad(format!("has a ratio of {ratio}: expected raw bytes over compressed bytes, above 0"));
        }
        if lost.is_nan() || *lost < 0.0 {
            return bad(format!("has lost = {lost}: expected a part of the norm, 0 or more"));
        }
        match codec.coding() {
            Err(error) => return bad(format!("is none: {error}")),
            Ok(coding) if coding.to_string() != *codec_name => return bad(format!("is named {coding}")),
            Ok(_) => {}
        }
    }
    Ok(profile)
}
