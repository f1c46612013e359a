//! `gradwire allreduce`: gradients exchanged between ranks, and checked.

mod in_network;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use gradwire_codecs::Registry;
use gradwire_collectives::graph::Graph;
use gradwire_collectives::layout::checksum;
use gradwire_collectives::{
    Coding, CollectivePlan, GraphPlan, Layout, Link, Listening, MAX_PARTITIONS, MAX_RANKS, Options, Order,
    PlanError, Record, Residuals, Strategy, Token,
};
use serde::Serialize;

use self::in_network::{AggregatorPlace, LocalAggregator, Summed};
use super::args::model::model;
use super::args::quantity;
use crate::error::{Error, Outcome};
use crate::report;
use crate::verify::exchange;

/// Exchanges gradients between ranks, with any strategy and codec, and checks what they get.
///
/// Each rank makes its own gradient for each round. Afterwards all replicas must be equal bit by
/// bit; each rank's result must be what the messages that it decoded say; what all were given must
/// be what was delivered and the residuals; and f32 must be the sum in f64, to rounding.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Strategies: ring, servers[:S] (S ranks sum; without S each does), hierarchy:GROUP[:servers] (f32 within
groups of GROUP neighbours, the codec between groups), butterfly, halving-doubling, all-gather.

Codecs: f32, f16, q8[:BLOCK], q4[:BLOCK], 3lc:S[:BLOCK], ternary[:BLOCK], onebit[:BLOCK], tbq:T,
terngrad[:BITS], dgc:P, graddrop:P, low-rank:R, bounded:B, and wire:C:B[:X], which is f32 on tagged connections for
the dataplane to compress.

Pairs that make no sense, and are refused:
  butterfly with any codec but f32: several ranks would encode one sum, and each would keep its loss as residual
  wire:... with any strategy but ring: only a ring's connections are tagged

--aggregate ADDRESS lets an aggregator sum in the network (gradwire aggregate), with codec wire:2:B[:X]; --aggregate local starts one
here. Sums must then be exact to the bit, whatever the aggregator does: if it fails, ranks agree and sum what is missing.

Where ranks are: --local N runs all of them here, as threads or with --processes as processes. Between hosts,
each rank gets its own --listen and the same --ranks; the first of these is rank 0. All need one token:
  head -c32 /dev/urandom | od -An -vtx1 | tr -d ' \\n' > token    then --token-file token, or GRADWIRE_TOKEN

JSON: {\"strategy\", \"codec\", \"ranks\", \"values\", \"tensors\", \"rounds\", \"time_s\", \"best_s\", \"compute_s\",
\"sent_bytes\", \"sent_messages\", \"send_calls\", \"gb_s\", \"checks\": {\"replicas\", \"replay\", \"given\", \"sum\"}, \"ok\", \"in_network\": {\"chunks\",
\"from_aggregator\", \"copied\", \"summed\", \"reasons\"}}. Times are
medians over the rounds at rank 0, bytes those that rank 0 sent in a round, gb_s the gradient's bytes by time_s.

Exit codes: 0 all checks held, 1 one did not, 2 the ranks could not exchange.

Examples:
  gradwire allreduce --local 4 --strategy servers --codec q8:256
  gradwire allreduce --local 4 --strategy hierarchy --groups 2 --values 10M --json
  gradwire allreduce --local 4 --model resnet50 --plan plan.toml
  gradwire allreduce --listen 10.0.0.2:7000 --ranks 10.0.0.1:7000,10.0.0.2:7000 --token-file token
  gradwire allreduce --local 4 --aggregate local --codec wire:2:8
  gradwire allreduce --local 6 --strategy ring --draw ring.svg")]
pub struct Args {
    /// Run this many ranks here.
    #[arg(long, value_name = "N", conflicts_with_all = ["listen", "root"], value_parser = clap::value_parser!(u16).range(1..=64))]
    pub local: Option<u16>,
    /// With --local: ranks are processes, not threads.
    #[arg(long, requires = "local")]
    pub processes: bool,
    /// The address where this rank listens; a wire: codec also takes the next port.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// The addresses of all ranks, in the order of their ranks.
    #[arg(
        long,
        value_name = "ADDRESS,..",
        value_delimiter = ',',
        requires = "listen",
        conflicts_with = "root"
    )]
    pub ranks: Vec<SocketAddr>,
    /// The address of rank 0, instead of --ranks.
    #[arg(long, value_name = "ADDRESS", requires_all = ["rank", "world_size"])]
    pub root: Option<SocketAddr>,
    /// This rank's rank, with --root.
    #[arg(long, value_name = "RANK", requires = "root")]
    pub rank: Option<usize>,
    /// The number of ranks, with --root.
    #[arg(long, value_name = "N", requires = "root")]
    pub world_size: Option<usize>,
    /// File of the job's token: 64 hexadecimal digits [default: the variable GRADWIRE_TOKEN].
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    pub token_file: Option<PathBuf>,
    /// The strategy of exchange [default: ring].
    #[arg(long, value_name = "STRATEGY", conflicts_with = "plan")]
    pub strategy: Option<String>,
    /// The codec of gradients [default: f32, and wire:2:10 with --aggregate].
    #[arg(long, value_name = "CODEC", conflicts_with = "plan")]
    pub codec: Option<String>,
    /// The address of an aggregator in the network, or local.
    #[arg(long, value_name = "ADDRESS|local", conflicts_with_all = ["plan", "strategy", "groups", "partitions", "order", "draw"], value_parser = in_network::place)]
    pub aggregate: Option<AggregatorPlace>,
    /// The number of groups --strategy hierarchy makes.
    #[arg(long, value_name = "G", conflicts_with = "plan", value_parser = clap::value_parser!(u16).range(1..))]
    pub groups: Option<u16>,
    /// A plan as TOML, instead of strategy and codec: as `gradwire plan --out` writes it.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Parts of the gradient, which form the pipeline [default: as many as ranks].
    #[arg(long, value_name = "K")]
    pub partitions: Option<usize>,
    /// The order in which big messages leave: turns, free, or coordinated, by a coordinator at rank
    /// 0; coordinated:BYTES:MICROSECONDS says how much it gathers and for how long [default: the
    /// plan's, or turns].
    #[arg(long, value_name = "ORDER")]
    pub order: Option<Order>,
    /// Values of the gradient.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = quantity::scaled)]
    pub values: u64,
    /// Tensors of this model, in place of one of --values: as `gradwire plan MODEL` takes it, or a
    /// CSV file of name,values.
    #[arg(long, value_name = "MODEL", conflicts_with = "values")]
    pub model: Option<String>,
    /// The number of timed exchanges, from when all ranks are there.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// The number of exchanges, after those that are timed, to check message by message; each sends
    /// the gradient three times more [default: as many as --rounds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub checks: Option<u32>,
    /// The seed of the gradients.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The time that ranks wait for each other: at the start, and in each round.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = quantity::time)]
    pub timeout: f64,
    /// Draw the graph of the first part into this SVG file, and exchange nothing.
    #[arg(long, value_name = "FILE")]
    pub draw: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The output of `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct AllreduceReport {
    /// Of the plan, for tensors without a row.
    pub strategy: String,
    /// Likewise.
    pub codec: String,
    /// The number found.
    pub ranks: usize,
    /// Of the gradient.
    pub values: usize,
    /// That it has.
    pub tensors: usize,
    /// Exchanges.
    pub rounds: u32,
    /// Median of a round, in seconds.
    pub time_s: f64,
    /// The fastest round.
    pub best_s: f64,
    /// Median of encoding, merging and decoding in a round.
    pub compute_s: f64,
    /// The bytes that this rank sent, a round.
    pub sent_bytes: u64,
    /// Likewise.
    pub sent_messages: u64,
    /// System calls that sent it, a round.
    pub send_calls: u64,
    /// The gradient's bytes, by the median time.
    pub gb_s: f64,
    /// The checks.
    pub checks: Checks,
    /// Did all hold?
    pub ok: bool,
    /// With --aggregate: who summed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_network: Option<Summed>,
}

/// The checks; `None` where there was nothing to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// All ranks have the same bits.
    pub replicas: bool,
    /// The result is what the decoded messages say.
    pub replay: Option<bool>,
    /// Given is delivered plus residual.
    pub given: Option<bool>,
    /// `f32` is the sum, to rounding; a sum in the network is exact.
    pub sum: Option<bool>,
}

/// Exchanges, checks, and reports to `out`.
///
/// # Errors
/// Arguments do not go together, or the ranks cannot exchange.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let (rank, ranks) = place(args)?;
    // It ends with this function.
    let mut aggregator = None;
    let plan = match args.aggregate {
        Some(AggregatorPlace::Local) if args.local.is_none() => {
            return Err(Error::Usage(
                "--aggregate local needs --local N: between hosts, start gradwire aggregate on one of them"
                    .into(),
            ));
        }
        Some(AggregatorPlace::Local) => {
            summed_at(args, aggregator.insert(LocalAggregator::start()?).address)?
        }
        Some(AggregatorPlace::At(address)) => summed_at(args, address)?,
        None => plan(args, ranks)?,
    };
    if let Some(path) = &args.draw {
        let graph = plan
            .graph()
            .ok_or_else(|| Error::Usage("--draw with --aggregate: no graph runs there".into()))?;
        let strategy = graph.others.strategy;
        let graphs: Result<Vec<Graph>, _> = (0..ranks).map(|me| strategy.graph(ranks, me, 0)).collect();
        let graphs = graphs.map_err(PlanError::from).map_err(usage)?;
        let title = format!("{strategy}, {ranks} ranks: one part of the gradient");
        std::fs::write(path, report::graph::draw(&title, &graphs))
            .map_err(|error| Error::io(path.display().to_string(), "write", error))?;
        return Ok(Outcome::Held);
    }
    let job = Job { args, plan, ranks, layout: layout(args)? };
    // What cannot work says so before anybody connects.
    if let Some(plan) = job.plan.graph() {
        plan.jobs(&job.layout, ranks).map_err(usage)?;
    }
    let report = match (args.local, args.root) {
        (Some(_), _) => job.local()?,
        (None, Some(root)) => {
            let any = if root.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let any = any.parse().expect("an address");
            job.run_rank(
                job.bind(args.listen.unwrap_or(if rank == 0 { root } else { any }), token(args)?)?,
                rank,
                root,
            )?
        }
        (None, None) => job.run_rank(job.bind(args.ranks[rank], token(args)?)?, rank, args.ranks[0])?,
    };
    if rank == 0 {
        print(&report, args.json, out)?;
    }
    Ok(Outcome::from_ok(report.ok))
}

fn usage(error: impl Into<PlanError>) -> Error {
    Error::Usage(error.into().to_string())
}

/// This process's rank, and how many ranks there are.
fn place(args: &Args) -> Result<(usize, usize), Error> {
    let (rank, ranks) = match (args.local, args.root, args.listen) {
        (Some(local), ..) => (0, local.into()),
        (None, Some(_), _) => (args.rank.unwrap_or(0), args.world_size.unwrap_or(0)),
        (None, None, Some(listen)) => {
            let rank = args.ranks.iter().position(|rank| *rank == listen);
            let expected =
                || format!("--listen {listen} is not among --ranks: name this rank there as others reach it");
            (rank.ok_or_else(|| Error::Usage(expected()))?, args.ranks.len())
        }
        (None, None, None) => {
            let what =
                "where are the ranks? --local N runs them here; --listen and --ranks name their addresses";
            return Err(Error::Usage(what.into()));
        }
    };
    if rank >= ranks || ranks > MAX_RANKS {
        let expected = format!(
            "rank {rank} of {ranks} ranks: expected 1 to {MAX_RANKS} ranks, and ranks from 0 to one less"
        );
        return Err(Error::Usage(expected));
    }
    Ok((rank, ranks))
}

fn plan(args: &Args, ranks: usize) -> Result<CollectivePlan, Error> {
    let mut plan = match &args.plan {
        Some(path) => CollectivePlan::load(path, Registry::BUILT_IN).map_err(usage)?,
        None => {
            let name = args.strategy.as_deref().unwrap_or("ring");
            let grouped = match (name, args.groups) {
                ("hierarchy", Some(groups)) => Some(format!("hierarchy:{}", ranks.div_ceil(groups.into()))),
                ("hierarchy:servers", Some(groups)) => {
                    Some(format!("hierarchy:{}:servers", ranks.div_ceil(groups.into())))
                }
                (_, Some(_)) => {
                    let what = "--groups is for --strategy hierarchy or hierarchy:servers, which then need no number";
                    return Err(Error::Usage(what.into()));
                }
                (_, None) => None,
            };
            let strategy: Strategy =
                grouped.as_deref().unwrap_or(name).parse().map_err(PlanError::from).map_err(usage)?;
            let coding =
                Coding::parse(args.codec.as_deref().unwrap_or("f32"), Registry::BUILT_IN).map_err(usage)?;
            coding.check(strategy).map_err(usage)?;
            strategy.check(ranks).map_err(PlanError::from).map_err(usage)?;
            // One tensor, however small, goes as it was asked for.
            GraphPlan { small: 0, ..GraphPlan::of(coding, strategy) }.into()
        }
    };
    if let Some(partitions) = args.partitions {
        if !(1..=MAX_PARTITIONS).contains(&partitions) {
            return Err(Error::Usage(format!("--partitions {partitions}: expected 1 to {MAX_PARTITIONS}")));
        }
        graphs(&mut plan, "--partitions")?.others.partitions = Some(partitions);
    }
    if let Some(order) = args.order {
        graphs(&mut plan, "--order")?.order = order;
    }
    Ok(plan)
}

/// The graphs of a plan, which an option changes.
fn graphs<'p>(plan: &'p mut CollectivePlan, option: &str) -> Result<&'p mut GraphPlan, Error> {
    match plan {
        CollectivePlan::Graph(plan) => Ok(plan),
        CollectivePlan::InNetwork { .. } => {
            Err(Error::Usage(format!("{option} with a plan that sums in the network: it has no graphs")))
        }
    }
}

/// The plan of an aggregator's sums.
fn summed_at(args: &Args, address: SocketAddr) -> Result<CollectivePlan, Error> {
    match Coding::parse(args.codec.as_deref().unwrap_or("wire:2:10"), Registry::BUILT_IN).map_err(usage)? {
        Coding::Wire(wire) => Ok(CollectivePlan::InNetwork { address, wire }),
        Coding::Host(other) => Err(Error::Usage(format!(
            "--aggregate with codec {other}: an aggregator sums codec wire:C:B[:X]"
        ))),
    }
}

/// The gradient is one tensor, or those of a model.
fn layout(args: &Args) -> Result<Layout, Error> {
    let size = |values| usize::try_from(values).unwrap_or(usize::MAX);
    match &args.model {
        None => Layout::new([("gradient", size(args.values))])
            .map_err(|error| Error::Usage(format!("--values: {error}"))),
        Some(name) => {
            let tensors = model(name)?.parameters.into_iter().map(|row| (row.name, size(row.values)));
            Layout::new(tensors).map_err(|error| Error::Usage(format!("--model {name}: {error}")))
        }
    }
}

fn token(args: &Args) -> Result<Token, Error> {
    let text = match &args.token_file {
        Some(path) => {
            let file = path.display().to_string();
            std::fs::read_to_string(path).map_err(|error| Error::io(file, "read", error))?
        }
        None => std::env::var("GRADWIRE_TOKEN").map_err(|_| {
            Error::Usage("the job's token is missing: --token-file, or the variable GRADWIRE_TOKEN".into())
        })?,
    };
    Token::from_hex(&text).ok_or_else(|| Error::Usage("the token is not 64 hexadecimal digits".into()))
}

/// Ends processes that are still there.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

struct Job<'a> {
    args: &'a Args,
    plan: CollectivePlan,
    ranks: usize,
    layout: Layout,
}

impl Job<'_> {
    fn bind(&self, at: SocketAddr, token: Token) -> Result<Listening, Error> {
        let timeout = Duration::from_secs_f64(self.args.timeout);
        Ok(Listening::bind(at, Options { timeout, tagged: self.plan.tagged(), ..Options::new(token) })?)
    }

    /// All ranks on this machine.
    fn local(&self) -> Result<AllreduceReport, Error> {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let token = Token::random().map_err(|error| Error::io("/dev/urandom", "read", error))?;
        let listening = self.bind(any, token.clone())?;
        let root = listening.address()?;
        if self.args.processes {
            return self.processes(listening, root, &token);
        }
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.ranks)
                .map(|rank| {
                    let token = token.clone();
                    scope.spawn(move || self.run_rank(self.bind(any, token)?, rank, root))
                })
                .collect();
            let mut report = self.run_rank(listening, 0, root)?;
            for other in others {
                let theirs = other.join().map_err(|_| Error::Usage("a rank's thread panicked".into()))??;
                report.ok &= theirs.ok;
                report.checks.replay = report.checks.replay.and_then(|ok| Some(ok && theirs.checks.replay?));
            }
            Ok(report)
        })
    }

    /// Rank 0 here, and the others in processes of this same command.
    fn processes(
        &self,
        listening: Listening,
        root: SocketAddr,
        token: &Token,
    ) -> Result<AllreduceReport, Error> {
        let this = std::env::current_exe().map_err(|error| Error::io("this program", "find", error))?;
        let mut children = Children(Vec::new());
        for rank in 1..self.ranks {
            let mut command = Command::new(&this);
            command.arg("allreduce").env("GRADWIRE_TOKEN", token.to_hex());
            command.args([
                "--root",
                &root.to_string(),
                "--rank",
                &rank.to_string(),
                "--world-size",
                &self.ranks.to_string(),
            ]);
            command.args(["--listen", &SocketAddr::new(root.ip(), 0).to_string()]);
            match &self.args.model {
                Some(model) => command.args(["--model", model]),
                None => command.args(["--values", &self.args.values.to_string()]),
            };
            command.args(["--rounds", &self.args.rounds.to_string()]);
            if let Some(checks) = self.args.checks {
                command.args(["--checks", &checks.to_string()]);
            }
            command.args([
                "--seed",
                &self.args.seed.to_string(),
                "--timeout",
                &format!("{}s", self.args.timeout),
            ]);
            match &self.args.plan {
                Some(path) => _ = command.arg("--plan").arg(path),
                None => {
                    match &self.plan {
                        CollectivePlan::InNetwork { address, .. } => {
                            command.args(["--aggregate", &address.to_string()])
                        }
                        CollectivePlan::Graph(_) => command.args(["--strategy", &self.plan.strategy()]),
                    };
                    command.args(["--codec", &self.plan.coding().to_string()]);
                }
            }
            if let Some(partitions) = self.args.partitions {
                command.args(["--partitions", &partitions.to_string()]);
            }
            if let Some(order) = self.args.order {
                command.args(["--order", &order.to_string()]);
            }
            children.0.push(command.spawn().map_err(|error| Error::io("this program", "start", error))?);
        }
        let mut report = self.run_rank(listening, 0, root)?;
        for child in &mut children.0 {
            let status = child.wait().map_err(|error| Error::io("a rank's process", "wait for", error))?;
            report.ok &= status.success();
        }
        Ok(report)
    }

    fn run_rank(
        &self,
        listening: Listening,
        rank: usize,
        root: SocketAddr,
    ) -> Result<AllreduceReport, Error> {
        let mut link = listening.join(rank, self.ranks, root)?;
        let report = self.exchange(&mut link)?;
        link.close();
        Ok(report)
    }

    /// All rounds of one rank: those that are timed, and then those whose messages are recorded and
    /// checked.
    fn exchange(&self, link: &mut Link) -> Result<AllreduceReport, Error> {
        let values = self.layout.values();
        let coding = self.plan.coding();
        let exact = self.plan.graph().is_some_and(GraphPlan::is_exact);
        let (mut residuals, mut times, mut computes) = (Residuals::new(), Vec::new(), Vec::new());
        // An aggregator's messages are its own: what it sums is compared with the exact sum.
        let by_aggregator = self.plan.graph().is_none();
        let sum = (exact || by_aggregator).then_some(true);
        let mut checks = Checks { replicas: true, replay: None, given: None, sum };
        let mut in_network = by_aggregator.then(Summed::default);
        let mut traffic = gradwire_collectives::Traffic::default();
        // Headers say of a tensor how it is exchanged, but not of the others of a plan.
        let plan: Vec<f32> = self.plan.to_toml().bytes().map(f32::from).collect();
        link.compare(checksum(&plan), "ranks have different plans: give all of them the same --plan file")?;
        for round in 0..self.args.rounds {
            let mut buffer = gradient(self.args.seed, link.rank(), round, values);
            // All begin together: a rank that checked for longer would count as a slow network.
            link.compare(round.into(), "ranks are in different rounds")?;
            let report = link.exchange(&mut buffer, &self.layout, &self.plan, &mut residuals)?;
            times.push(report.time.as_secs_f64());
            computes.push(report.compute.as_secs_f64());
            traffic.sent_bytes += report.traffic.sent_bytes;
            traffic.sent_messages += report.traffic.sent_messages;
            traffic.send_calls += report.traffic.send_calls;
            compare_replicas(link, &buffer)?;
            if let (Some(all), Some(one)) = (&mut in_network, report.in_network) {
                all.add(one);
            }
            if let Some(sum) = &mut checks.sum {
                let gradients =
                    (0..self.ranks).map(|rank| gradient(self.args.seed, rank, round, buffer.len()));
                *sum &= match (by_aggregator, coding) {
                    (true, Coding::Wire(wire)) => in_network::is_exact(&buffer, wire, gradients),
                    _ => exchange::is_sum(&buffer, gradients),
                };
            }
        }
        if !by_aggregator {
            self.check(link, &mut residuals, &mut checks)?;
        }
        let median = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let rounds = u64::from(self.args.rounds);
        let time_s = median(&mut times);
        Ok(AllreduceReport {
            strategy: self.plan.strategy(),
            codec: coding.to_string(),
            ranks: self.ranks,
            values,
            tensors: self.layout.tensors().len(),
            rounds: self.args.rounds,
            time_s,
            best_s: times[0],
            compute_s: median(&mut computes),
            sent_bytes: traffic.sent_bytes / rounds,
            sent_messages: traffic.sent_messages / rounds,
            send_calls: traffic.send_calls / rounds,
            gb_s: 4e-9 * values as f64 / time_s,
            checks,
            ok: checks.replicas && ![checks.replay, checks.given, checks.sum].contains(&Some(false)),
            in_network,
        })
    }

    /// Exchanges as often as `--checks` says, and compares what is recorded: are results what
    /// messages say, and is nothing lost?
    fn check(&self, link: &mut Link, residuals: &mut Residuals, checks: &mut Checks) -> Result<(), Error> {
        let (mut replay, mut given) = (true, true);
        // A network that compresses loses up to its bound at each hop, and nobody sees what.
        let network = match self.plan.coding() {
            Coding::Wire(wire) => self.ranks as f64 * f64::from(wire.profile().bound()),
            Coding::Host(_) => 0.0,
        };
        let rounds = self.args.checks.unwrap_or(self.args.rounds);
        for round in self.args.rounds..self.args.rounds.saturating_add(rounds) {
            let own = gradient(self.args.seed, link.rank(), round, self.layout.values());
            let (mut buffer, mut record) = (own.clone(), Record::default());
            link.exchange_recorded(&mut buffer, &self.layout, &self.plan, residuals, &mut record)?;
            compare_replicas(link, &buffer)?;
            replay &= exchange::is_replayed(&record, &buffer);
            let sums = self.sums(link, &own, &record, residuals)?;
            given &= exchange::is_conserved(&buffer, &sums, self.ranks, network);
        }
        (checks.replay, checks.given) = (Some(replay), Some(given));
        Ok(())
    }

    /// Over all ranks, what was given, what is residual or dropped, and the magnitudes of both;
    /// summed as plain `f32`, by servers. Their sums are to rounding, and so is what they are
    /// compared with.
    fn sums(
        &self,
        link: &mut Link,
        own: &[f32],
        record: &Record,
        residuals: &Residuals,
    ) -> Result<[Vec<f32>; 3], Error> {
        let values = own.len();
        let mut kept = record.dropped.clone();
        for (name, range) in self.layout.tensors() {
            let residuals = residuals.get(name).unwrap_or(&[]);
            kept[range.clone()].iter_mut().zip(residuals).for_each(|(kept, residuals)| *kept += residuals);
        }
        let sizes = record.given.iter().zip(&kept).map(|(given, kept)| given.abs() + kept.abs());
        let mut buffer: Vec<f32> =
            record.given.iter().copied().chain(kept.iter().copied()).chain(sizes).collect();
        let layout = Layout::new([("given", values), ("kept", values), ("sizes", values)]);
        let layout = layout.map_err(|error| Error::Usage(format!("--values: {error}")))?;
        link.exchange(&mut buffer, &layout, &CollectivePlan::exact(), &mut Residuals::new())?;
        let sizes = buffer.split_off(2 * values);
        let kept = buffer.split_off(values);
        Ok([buffer, kept, sizes])
    }
}

/// Fails if ranks got other bits: then nothing else about this job is worth a word.
fn compare_replicas(link: &mut Link, buffer: &[f32]) -> Result<(), Error> {
    let means = "replicas differ: the result of one exchange has other bits at some ranks";
    Ok(link.compare(checksum(buffer), means)?)
}

/// A rank's gradient of a round: mostly small values of both signs, and some large ones.
fn gradient(seed: u64, rank: usize, round: u32, values: usize) -> Vec<f32> {
    let mut state = seed ^ (rank as u64) << 40 ^ u64::from(round) << 20;
    let mut next = || {
        // Steele and others' SplitMix64 (OOPSLA 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u32 >> 8
    };
    let mut unit = || next() as f32 / 8_388_608.0 - 1.0;
    (0..values).map(|_| unit() * unit() * unit() * unit()).collect()
}

fn print(report: &AllreduceReport, json: bool, out: &mut impl Write) -> Result<(), Error> {
    if json {
        report::json(out, report)?;
        return Ok(());
    }
    let AllreduceReport { strategy, codec, ranks, values, tensors, rounds, .. } = report;
    let tensors = if *tensors == 1 { String::new() } else { format!(" in {tensors} tensors") };
    writeln!(out, "{strategy}, {codec}: {values} values{tensors}, {ranks} ranks, {rounds} rounds\n")?;
    let mut table =
        report::Table::new(&["ms", "best ms", "compute ms", "kB sent", "messages", "calls", "GB/s"]);
    table.row([
        format!("{:.3}", 1e3 * report.time_s),
        format!("{:.3}", 1e3 * report.best_s),
        format!("{:.3}", 1e3 * report.compute_s),
        format!("{:.1}", report.sent_bytes as f64 / 1e3),
        report.sent_messages.to_string(),
        report.send_calls.to_string(),
        format!("{:.3}", report.gb_s),
    ]);
    table.write(out)?;
    let outcome = |ok: bool| if ok { "held" } else { "FAILED" };
    let checks = &report.checks;
    writeln!(out, "\nreplicas are equal bit by bit: {}", outcome(checks.replicas))?;
    let exactly =
        if report.in_network.is_some() { "the exact sum, to the bit" } else { "the sum in f64, to rounding" };
    let others = [
        ("results are what the messages say", checks.replay),
        ("given = delivered + residual", checks.given),
        (exactly, checks.sum),
    ];
    for (what, held) in others {
        if let Some(held) = held {
            writeln!(out, "{what}: {}", outcome(held))?;
        }
    }
    if let Some(summed) = &report.in_network {
        summed.write(out)?;
    }
    report::conclusion(out, report.ok, None, &format!("{rounds} rounds"))?;
    Ok(())
}
