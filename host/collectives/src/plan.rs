//! Which tensor is exchanged how.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use gradwire::wire::chunk::PORT;
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::coding::{Coding, CodingError, Wire};
use crate::coordinator::Limits;
use crate::job::{Job, first_owner};
use crate::layout::Layout;
use crate::strategies::{Strategy, StrategyError};

/// The exchange of one tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Its coding.
    pub coding: Coding,
    /// Its strategy.
    pub strategy: Strategy,
    /// Into how many parts it is cut; without a number as many as there are ranks.
    pub partitions: Option<usize>,
}

/// The tensors that a row is for: those that fit both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowFilter {
    /// A name, or its beginning and `*`; without one, all names.
    pub name: Option<String>,
    /// The numbers of values that a tensor may have.
    pub values: Range<usize>,
}

impl RowFilter {
    /// Any number of values.
    pub const ANY: Range<usize> = 0..usize::MAX;

    /// Tensors of this name, whatever their size.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), values: Self::ANY }
    }

    /// Tensors of this size, whatever their name.
    #[must_use]
    pub const fn sized(values: Range<usize>) -> Self {
        Self { name: None, values }
    }

    fn fits(&self, name: &str, values: usize) -> bool {
        let named = self.name.as_deref().is_none_or(|row| match row.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == row,
        });
        named && self.values.contains(&values)
    }
}

/// The order in which messages leave.
///
/// In a plan `turns`, `free`, or `coordinated[:BYTES:MICROSECONDS]`, with its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Order {
    /// Each rank sends one big message at a time, to the rank behind it first, then to the next
    /// one. If all are in step, no rank receives from two at once.
    #[default]
    Turns,
    /// All messages leave when they are ready.
    Free,
    /// Rank 0's [`Coordinator`](crate::coordinator::Coordinator) says when big messages leave.
    Coordinated(Limits),
}

impl FromStr for Order {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let limits = |text: &str| {
            let (bytes, us) = text.split_once(':')?;
            let limits =
                Limits { enough: bytes.parse().ok()?, patience: Duration::from_micros(us.parse().ok()?) };
            (limits.enough > 0 && limits.patience <= Limits::MAX_PATIENCE).then_some(limits)
        };
        let found = match text {
            "turns" => Some(Self::Turns),
            "free" => Some(Self::Free),
            "coordinated" => Some(Self::Coordinated(Limits::default())),
            _ => text.strip_prefix("coordinated:").and_then(limits).map(Self::Coordinated),
        };
        found.ok_or_else(|| PlanError::Order { got: text.to_owned() })
    }
}

impl TryFrom<String> for Order {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turns => f.write_str("turns"),
            Self::Free => f.write_str("free"),
            Self::Coordinated(limits) if *limits == Limits::default() => f.write_str("coordinated"),
            Self::Coordinated(limits) => {
                write!(f, "coordinated:{}:{}", limits.enough, limits.patience.as_micros())
            }
        }
    }
}

impl From<Order> for String {
    fn from(order: Order) -> Self {
        order.to_string()
    }
}

/// Which tensor is exchanged how. Ranks of a job need the same plan.
#[derive(Clone, PartialEq, Debug)]
pub enum CollectivePlan {
    /// An aggregator in the network sums all tensors.
    InNetwork {
        /// Its address.
        address: SocketAddr,
        /// The coding of values for it.
        wire: Wire,
    },
    /// Ranks exchange messages, as a graph for each tensor says.
    Graph(GraphPlan),
}

/// Which tensor is exchanged by which graph.
#[derive(Clone, PartialEq, Debug)]
pub struct GraphPlan {
    /// Tensors without a row of their own.
    pub others: Choice,
    /// Rows. The first that fits counts.
    pub rows: Vec<(RowFilter, Choice)>,
    /// Tensors with fewer values, and without a row, are exchanged together, in one part: they cost
    /// more in messages than in bytes. If the codec of `others` has a momentum, they have it too.
    pub small: usize,
    /// The host codec of these tensors, of each by itself, in one batch (HiPress, section 3.2);
    /// `f32` if there is none.
    pub small_coding: Option<Coding>,
    /// Messages of at most so many bytes leave at once, whatever [`order`](Self::order) says.
    pub bulk: usize,
    /// The order in which bigger messages leave.
    pub order: Order,
}

/// Begins the strategy that sums in the network.
pub(crate) const IN_NETWORK: &str = "in-network:";

/// An address of an aggregator, with or without its port.
pub(crate) fn aggregator_address(text: &str) -> Result<SocketAddr, PlanError> {
    let with_port = || text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
    text.parse().ok().or_else(with_port).ok_or_else(|| PlanError::Address { got: text.to_owned() })
}

/// May small tensors have this coding? They are no matrices, and keep a velocity at most.
pub(crate) fn check_small(coding: Coding) -> Result<(), PlanError> {
    if coding.is_tagged() || coding.codec().shape(1).is_some() {
        return Err(PlanError::SmallCodec { got: coding.to_string() });
    }
    Ok(())
}

/// The most bytes of a message: what its header can count.
pub(crate) const MAX_BYTES: usize = u32::MAX as usize;

/// The most partitions of a tensor.
pub const MAX_PARTITIONS: usize = 65_536;

impl CollectivePlan {
    /// The same for all tensors.
    #[must_use]
    pub const fn of(coding: Coding, strategy: Strategy) -> Self {
        Self::Graph(GraphPlan::of(coding, strategy))
    }

    /// `f32` through the servers: for what is small or has to be exact.
    ///
    /// # Panics
    /// Never: `f32` is built in.
    #[must_use]
    pub fn exact() -> Self {
        Self::Graph(GraphPlan::exact())
    }

    /// The graphs, if ranks exchange messages.
    #[must_use]
    pub const fn graph(&self) -> Option<&GraphPlan> {
        match self {
            Self::InNetwork { .. } => None,
            Self::Graph(plan) => Some(plan),
        }
    }

    /// The strategy of tensors without a row, as [`parse`](Self::parse) reads it.
    #[must_use]
    pub fn strategy(&self) -> String {
        match self {
            Self::InNetwork { address, .. } => format!("{IN_NETWORK}{address}"),
            Self::Graph(plan) => plan.others.strategy.to_string(),
        }
    }

    /// The coding of tensors without a row.
    #[must_use]
    pub const fn coding(&self) -> Coding {
        match self {
            Self::InNetwork { wire, .. } => Coding::Wire(*wire),
            Self::Graph(plan) => plan.others.coding,
        }
    }

    /// What [`Options::tagged`](crate::Options::tagged) has to be. An aggregator's packets have a
    /// type of service of their own.
    #[must_use]
    pub fn tagged(&self) -> Option<usize> {
        self.graph().and_then(GraphPlan::tagged)
    }

    /// May rank 0 be a server, which sums what all others send it? Then strategies are without
    /// meaning.
    ///
    /// # Errors
    /// The network would have to change what ranks send.
    pub fn check_served(&self) -> Result<&GraphPlan, PlanError> {
        match self {
            Self::InNetwork { .. } => Err(PlanError::Served { got: self.strategy() }),
            Self::Graph(plan) if plan.tagged().is_some() => {
                Err(PlanError::Served { got: plan.others.coding.to_string() })
            }
            Self::Graph(plan) => Ok(plan),
        }
    }
}

impl From<GraphPlan> for CollectivePlan {
    fn from(plan: GraphPlan) -> Self {
        Self::Graph(plan)
    }
}

impl GraphPlan {
    /// Values below which a tensor is small, and bytes below which a message is, if nobody says
    /// otherwise.
    pub const DEFAULT_SMALL: usize = 1024;
    /// See [`bulk`](Self::bulk).
    pub const DEFAULT_BULK: usize = 65_536;

    /// The same for all tensors.
    #[must_use]
    pub const fn of(coding: Coding, strategy: Strategy) -> Self {
        Self {
            others: Choice { coding, strategy, partitions: None },
            rows: Vec::new(),
            small: Self::DEFAULT_SMALL,
            small_coding: None,
            bulk: Self::DEFAULT_BULK,
            order: Order::Turns,
        }
    }

    /// As [`CollectivePlan::exact`].
    pub(crate) fn exact() -> Self {
        Self::of(Coding::exact(), Strategy::Servers(None))
    }

    /// The one choice for all tensors, if the plan says nothing else.
    pub(crate) fn uniform(&self) -> Option<(Coding, Strategy)> {
        let Choice { coding, strategy, .. } = self.others;
        (*self == Self::of(coding, strategy)).then_some((coding, strategy))
    }

    /// The choice of the row that fits the tensor of so many values, if there is one.
    #[must_use]
    pub fn choice(&self, tensor: &str, values: usize) -> Option<&Choice> {
        self.rows.iter().find(|(filter, _)| filter.fits(tensor, values)).map(|(_, choice)| choice)
    }

    /// What [`Options::tagged`](crate::Options::tagged) has to be: 1 for a ring of a `wire:` codec,
    /// a group's ranks for a hierarchy. If tensors need several, a link has the first alone.
    #[must_use]
    pub fn tagged(&self) -> Option<usize> {
        self.all_tagged().next()
    }

    /// The same of each tensor that needs tagged connections.
    pub(crate) fn all_tagged(&self) -> impl Iterator<Item = usize> {
        let choices = core::iter::once(&self.others).chain(self.rows.iter().map(|(_, choice)| choice));
        choices.filter_map(|choice| choice.coding.tagged_group(choice.strategy))
    }

    /// The momentum that a tensor needs beside its message: if it is small, its codec may not be
    /// the one that has the momentum.
    pub(crate) fn momentum(&self, chosen: Option<&Choice>, values: usize) -> f32 {
        let small = chosen.is_none() && values < self.small;
        let has_none = self.small_coding.is_none_or(|coding| coding.codec().momentum() == 0.0);
        if small && has_none { self.others.coding.codec().momentum() } else { 0.0 }
    }

    /// Is every tensor exchanged as `f32`?
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let chosen = self.rows.iter().map(|(_, choice)| choice.coding).chain(self.small_coding);
        chosen.chain([self.others.coding]).all(|coding| coding.is_exact())
    }

    /// The jobs of `ranks` for the tensors of `layout`.
    ///
    /// # Errors
    /// A strategy is not for so many ranks, or does not go with its codec.
    pub fn jobs(&self, layout: &Layout, ranks: usize) -> Result<Vec<Job>, PlanError> {
        self.jobs_of(layout, ranks, |at| self.choice_at(layout, at))
    }

    /// The choice for a tensor of the layout.
    pub(crate) fn choice_at(&self, layout: &Layout, at: usize) -> Option<&Choice> {
        let (name, range) = &layout.tensors()[at];
        self.choice(name, range.len())
    }

    /// [`jobs`](Self::jobs) with a choice for a tensor by its place, not by its name.
    pub(crate) fn jobs_of<'a>(
        &'a self,
        layout: &Layout,
        ranks: usize,
        chosen: impl Fn(usize) -> Option<&'a Choice>,
    ) -> Result<Vec<Job>, PlanError> {
        let (mut jobs, mut small) = (Vec::new(), Vec::new());
        for (at, (name, range)) in layout.tensors().iter().enumerate() {
            let choice = match chosen(at) {
                Some(choice) => choice,
                None if range.len() < self.small => {
                    small.push(at);
                    continue;
                }
                None => &self.others,
            };
            choice.coding.check(choice.strategy)?;
            choice.strategy.check(ranks)?;
            if let Some(group) =
                choice.coding.tagged_group(choice.strategy).filter(|&group| !ranks.is_multiple_of(group))
            {
                return Err(PlanError::UnevenGroups { group, ranks });
            }
            let partitions = choice.partitions.unwrap_or(ranks).clamp(1, range.len().max(1));
            let job = Job {
                tensors: vec![at],
                coding: choice.coding,
                strategy: choice.strategy,
                partitions,
                values: range.len(),
                first: first_owner(name, ranks),
                batch: None,
            };
            let values = range.len().div_ceil(partitions);
            let bytes = job.longest(values);
            if bytes > MAX_BYTES {
                return Err(PlanError::Part { tensor: name.clone(), values, bytes });
            }
            jobs.push(job);
        }
        if !small.is_empty() {
            let lens: Vec<usize> = small.iter().map(|&at| layout.tensors()[at].1.len()).collect();
            let values = lens.iter().sum();
            let batch = self.small_coding.map(|coding| Batch::new(coding, lens));
            let (coding, strategy) =
                (self.small_coding.unwrap_or_else(Coding::exact), Strategy::Servers(None));
            check_small(coding)?;
            strategy.check(ranks)?;
            jobs.push(Job { tensors: small, coding, strategy, partitions: 1, values, first: 0, batch });
        }
        Ok(jobs)
    }
}

/// Why this is no plan.
#[non_exhaustive]
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what is wrong")]
pub enum PlanError {
    /// A file that cannot be read.
    #[error(
        "plan file {file}: {why}: expected a plan's TOML, as `gradwire plan MODEL --ranks N --out FILE` writes it"
    )]
    Unreadable { file: String, why: String },
    /// A file that is no plan.
    #[error("{file}: {why}")]
    File { file: String, why: Box<PlanError> },
    /// What a line of a plan's TOML says.
    #[error("line {line}: {why}")]
    Line { line: usize, why: Box<PlanError> },
    /// Not the TOML of a plan.
    #[error("plan: {why}")]
    Toml { why: String },
    /// A field is not there.
    #[error(
        "plan: '{what}' is missing: each plan has strategy and codec for all tensors, and each [[tensor]] a name, or values, or both"
    )]
    Missing { what: &'static str },
    /// No order of messages.
    #[error(
        "order '{got}': expected turns, free, or coordinated[:BYTES:MICROSECONDS] of 1 byte or more and at most {} us",
        Limits::MAX_PATIENCE.as_micros()
    )]
    Order { got: String },
    /// No range of numbers of values.
    #[error(
        "plan: values = '{got}': expected FROM..BELOW, such as 1024..65536, 65536.. or ..1024, with FROM below BELOW"
    )]
    Values { got: String },
    /// No or too many partitions.
    #[error(
        "plan: partitions = {got}: expected 1 to {MAX_PARTITIONS}, or no such line for as many as there are ranks"
    )]
    Partitions { got: usize },
    /// A coding that small tensors cannot have.
    #[error(
        "plan: small_codec = '{got}': expected f32 or a host codec such as q8, since small tensors are no matrices and go on no tagged connection"
    )]
    SmallCodec { got: String },
    /// Groups between which ranks would need more tagged connections than one.
    #[error(
        "a wire: codec between groups of {group} among {ranks} ranks: expected groups of equal size, since each rank has one tagged \
         connection to another group"
    )]
    UnevenGroups { group: usize, ranks: usize },
    /// A message that its header cannot count.
    #[error(
        "tensor '{tensor}': a part of {values} values may take {bytes} bytes, and a message has {MAX_BYTES} at most: use more partitions"
    )]
    Part { tensor: String, values: usize, bytes: usize },
    /// More than ranks send each other if an aggregator does not sum it.
    #[error(
        "{values} values, which may take {bytes} bytes: with an aggregator in the network {MAX_BYTES} are the most, so exchange them in several buffers"
    )]
    AggregatorPart { values: usize, bytes: usize },
    /// Nothing that an aggregator in the network sums.
    #[error("strategy {IN_NETWORK}ADDRESS with {got}: an aggregator sums all tensors, of codec wire:C:B[:X]")]
    AggregatorClient { got: String },
    /// Nothing that a server sums.
    #[error(
        "{got} with a server: the network changes what it carries, and a server sums what host codecs send it, such as q8"
    )]
    Served { got: String },
    /// Nothing that a server's optimizer takes.
    #[error("{got} with a server's optimizer: it takes what one message of a codec such as q8 says")]
    Stepped { got: String },
    /// Not where an aggregator is.
    #[error("strategy {IN_NETWORK}{got}: expected an IP address, and :PORT unless it is {PORT}")]
    Address { got: String },
    /// No such strategy, or not for so many.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// No such coding, or none that goes with the strategy.
    #[error(transparent)]
    Coding(#[from] CodingError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_back_from_its_text() {
        let limits = |enough, us| Order::Coordinated(Limits { enough, patience: Duration::from_micros(us) });
        for (text, order) in [
            ("turns", Order::Turns),
            ("free", Order::Free),
            ("coordinated", Order::Coordinated(Limits::default())),
            ("coordinated:1:0", limits(1, 0)),
            ("coordinated:1048576:1000000", limits(1 << 20, 1_000_000)),
        ] {
            assert_eq!((text.parse(), order.to_string()), (Ok(order), text.to_owned()));
        }
        for text in [
            "",
            "Turns",
            "free:1:1",
            "coordinated:",
            "coordinated:1",
            "coordinated:0:5",
            "coordinated:1:1000001",
        ] {
            let error = text.parse::<Order>().unwrap_err().to_string();
            assert!(error.contains("expected turns, free, or coordinated[:BYTES:MICROSECONDS]"), "{error}");
        }
    }
    use crate::graph::{Op, Rank, Task};

    const TEXT: &str = r#"
        strategy = "servers"
        codec = "q8:256"
        small = 100

        [[tensor]]
        name = "fc.*"
        codec = "low-rank:4"
        partitions = 1

        [[tensor]]
        name = "head"
        strategy = "ring"
        codec = "wire:2:10"
    "#;

    fn graph(text: &str) -> GraphPlan {
        text.parse::<CollectivePlan>().unwrap().graph().unwrap().clone()
    }

    #[test]
    fn a_plan_comes_back_from_its_toml() {
        let plan: CollectivePlan = TEXT.parse().unwrap();
        assert_eq!(plan.to_toml().parse(), Ok(plan.clone()));
        let plan = graph(TEXT);
        assert_eq!(plan.choice("fc.1", 10).unwrap().strategy, Strategy::Servers(None));
        assert!(plan.tagged() == Some(1) && plan.choice("fc", 10).is_none());
    }

    #[test]
    fn each_tensor_is_in_one_job_and_small_ones_are_together() {
        let plan = graph(TEXT);
        let layout = [("a", 99), ("fc.1", 10), ("b", 1000), ("c", 7), ("head", 3)];
        let layout = Layout::new(layout).unwrap();
        let jobs = plan.jobs(&layout, 4).unwrap();
        let tensors: Vec<&[usize]> = jobs.iter().map(|job| &job.tensors[..]).collect();
        assert_eq!(tensors, [&[1][..], &[2], &[4], &[0, 3]]);
        let partitions: Vec<usize> = jobs.iter().map(|job| job.partitions).collect();
        assert_eq!(partitions, [1, 4, 3, 1]);
        assert_eq!((jobs[3].values, jobs[3].coding.is_exact()), (106, true));
        assert_eq!(
            (0..4).map(|part| jobs[1].part(part)).collect::<Vec<_>>(),
            [0..250, 250..500, 500..750, 750..1000]
        );
    }

    #[test]
    fn small_tensors_have_a_codec_of_their_own_if_the_plan_says_so() {
        let text = "strategy = \"ring\"\ncodec = \"f32\"\nsmall = 100\nsmall_codec = \"onebit\"";
        let plan: CollectivePlan = text.parse().unwrap();
        assert!(plan.to_toml().contains("small_codec = \"onebit\"") && plan.to_toml().parse() == Ok(plan));
        let (plan, exact) = (graph(text), graph(&text.replace("onebit", "f32")));
        assert!(!plan.is_exact() && exact.is_exact() && exact == graph(text.rsplit_once('\n').unwrap().0));
        let layout = Layout::new([("a", 99), ("b", 1000), ("c", 7)]).unwrap();
        let jobs = plan.jobs(&layout, 4).unwrap();
        let small: Vec<_> = jobs.iter().map(|job| (&job.tensors[..], job.coding.to_string())).collect();
        assert_eq!(small, [(&[1][..], "f32".into()), (&[0, 2], "onebit".into())]);
        let alone = |values| jobs[1].coding.codec().bound(values);
        assert_eq!(jobs[1].codecs().result.bound(106), 2 + alone(99) + alone(7));
    }

    #[test]
    fn the_network_compresses_between_groups_of_equal_size() {
        let plan = graph("strategy = \"hierarchy:2\"\ncodec = \"wire:2:10\"");
        let layout = Layout::new([("a", 5000)]).unwrap();
        assert_eq!(plan.tagged(), Some(2));
        assert_eq!([2, 4, 6].map(|ranks| plan.jobs(&layout, ranks).unwrap()[0].tagged()), [Some(2); 3]);
        let refused = plan.jobs(&layout, 3).unwrap_err();
        assert_eq!(refused, PlanError::UnevenGroups { group: 2, ranks: 3 });
        assert!(refused.to_string().contains("groups of equal size"));
    }

    /// A message of 4 GiB would say in its header that it has none.
    #[test]
    fn parts_of_4_gib_are_refused() {
        let layout = Layout::new([("small", 7), ("huge", u32::MAX as usize - 7)]).unwrap();
        for (plan, ranks, fits) in [
            ("strategy = \"ring\"\ncodec = \"f32\"", 2, false),
            ("strategy = \"ring\"\ncodec = \"f32\"", 4, true),
            ("strategy = \"ring\"\ncodec = \"f32\"\npartitions = 3", 9, false),
            // A hierarchy sends raw values within a group, whatever the codec.
            ("strategy = \"hierarchy:2\"\ncodec = \"dgc:1\"", 3, false),
            ("strategy = \"servers\"\ncodec = \"q8\"\npartitions = 8", 2, true),
        ] {
            let jobs = graph(plan).jobs(&layout, ranks);
            match jobs {
                Ok(_) => assert!(fits, "{plan}, {ranks} ranks"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        !fits && error.contains("tensor 'huge'") && error.contains("more partitions"),
                        "{plan}: {error}"
                    );
                }
            }
        }
    }

    #[test]
    fn tensors_of_one_part_are_summed_by_different_ranks_and_always_by_the_same() {
        let plan = graph("strategy = \"servers\"\ncodec = \"q8\"\npartitions = 1\nsmall = 0");
        let owns = |job: &Job, me| {
            let receives = |task: &&Task| matches!(task.op, Op::Recv { .. });
            job.graph(4, me, 0).unwrap().tasks().iter().filter(receives).count() == 3
        };
        let owners = |tensors: Range<usize>| {
            let layout = Layout::new(tensors.map(|at| (format!("layers.{at}.weight"), 100))).unwrap();
            let jobs = plan.jobs(&layout, 4).unwrap();
            jobs.iter().map(|job| (0..4).find(|&me| owns(job, me)).unwrap()).collect::<Vec<Rank>>()
        };
        let all = owners(0..20);
        assert!((0..4).all(|rank| all.contains(&rank)), "{all:?}");
        // DDP cuts its buckets anew after the first iteration, and a run that goes on does so
        // again.
        assert_eq!(owners(7..20), all[7..]);
    }

    #[test]
    fn ranks_begin_with_the_part_of_the_next_rank() {
        let plan = graph("strategy = \"servers\"\ncodec = \"f32\"\nsmall = 0");
        let layout = Layout::new([("a", 100), ("b", 100)]).unwrap();
        for job in plan.jobs(&layout, 4).unwrap() {
            for me in 0..4 {
                let part = job.order(4, me).next().unwrap();
                // In `servers` with everybody, part p has the owner p, counted from the first
                // part's.
                assert_eq!((job.first + part) % 4, (me + 1) % 4);
                let mut all: Vec<usize> = job.order(4, me).collect();
                all.sort_unstable();
                assert_eq!(all, [0, 1, 2, 3]);
            }
        }
    }

    #[test]
    fn bad_plans_say_what_would_be_right() {
        for (text, says) in [
            ("strategy = \"ring\"", "codec"),
            ("strategy = \"rong\"\ncodec = \"f32\"", "hierarchy:GROUP"),
            ("strategy = \"ring\"\ncodec = \"q9\"", "wire:C:B[:X]"),
            ("strategy = \"ring\"\ncodec = \"wire:3:10\"", "1 or 2"),
            ("strategy = \"servers\"\ncodec = \"wire:2:10\"", "use the strategy ring"),
            ("strategy = \"butterfly\"\ncodec = \"q8\"", "use f32"),
            ("strategy = \"ring\"\ncodec = \"f32\"\npartitions = 0", "expected 1 to"),
            ("strategy = \"ring\"\ncodec = \"f32\"\npartition = 4", "unknown field `partition`"),
            ("strategy = \"ring\"\ncodec = \"f32\"\n[[tensor]]\ncodec = \"f16\"", "name"),
            ("strategy = \"ring\"\ncodec = \"f32\"\norder = \"any\"", "turns"),
            ("strategy = \"ring\"\ncodec = \"f32\"\nsmall_codec = \"wire\"", "line 3"),
            ("strategy = \"ring\"\ncodec = \"f32\"\nsmall_codec = \"wire:2:10\"", "a host codec such as q8"),
            ("strategy = \"ring\"\ncodec = \"f32\"\nsmall_codec = \"low-rank:1\"", "no matrices"),
            ("strategy = ring", "line 1"),
        ] {
            let error = text.parse::<CollectivePlan>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let plan = graph("strategy = \"servers:5\"\ncodec = \"f32\"");
        let layout = Layout::new([("a", 5000)]).unwrap();
        assert!(plan.jobs(&layout, 4).unwrap_err().to_string().contains("expected 1 to 4"));
    }

    #[test]
    fn an_aggregator_in_the_network_is_a_plan_of_its_own() {
        let plan: CollectivePlan = "strategy = \"in-network:10.0.0.9\"".parse().unwrap();
        let address = "10.0.0.9:59255".parse().unwrap();
        assert_eq!(plan, CollectivePlan::InNetwork { address, wire: Wire::new(2, 10, 0).unwrap() });
        assert_eq!((plan.coding().to_string(), plan.tagged()), ("wire:2:10".into(), None));
        let plan: CollectivePlan =
            "strategy = \"in-network:[::1]:7\"\ncodec = \"wire:2:8:1\"".parse().unwrap();
        assert_eq!(plan.strategy(), "in-network:[::1]:7");
        assert_eq!(plan.to_toml().parse(), Ok(plan));
        let plan: CollectivePlan =
            "strategy = \"in-network:10.0.0.9\"\ncodec = \"wire:1:6:-2\"".parse().unwrap();
        assert_eq!(plan.coding().to_string(), "wire:1:6:-2");
        assert_eq!(plan.to_toml().parse(), Ok(plan));
        for (text, says) in [
            ("strategy = \"in-network:here\"", "expected an IP address"),
            ("strategy = \"in-network:10.0.0.9\"\ncodec = \"q8\"", "wire:C:B"),
            ("strategy = \"in-network:10.0.0.9\"\npartitions = 2", "wire:C:B"),
            // Also what it is by default.
            (
                "strategy = \"in-network:10.0.0.9\"\nsmall = 4096",
                "with rows, partitions, small, small_codec, bulk or order",
            ),
            (
                "strategy = \"in-network:10.0.0.9\"\nbulk = 4194304",
                "with rows, partitions, small, small_codec, bulk or order",
            ),
            (
                "strategy = \"in-network:10.0.0.9\"\norder = \"turns\"",
                "with rows, partitions, small, small_codec, bulk or order",
            ),
        ] {
            let error = text.parse::<CollectivePlan>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
