//! Which tensor is exchanged how.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::str::FromStr;

use gradwire::codec::planar::Bound;
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::wire::chunk::PORT;
use gradwire_codecs::{Chosen, Codec, Malformed, NameError, Raw, Registry};
use serde::{Deserialize, Serialize};

use crate::graph::{Graph, Rank};
use crate::layout::Layout;
use crate::part::Codecs;
use crate::strategies::{Strategy, StrategyError};

/// How a tensor is coded: above the transport, or by the network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Coding {
    /// A host codec, on connections that are not tagged.
    Host(Chosen),
    /// `wire:C:B[:X]`: `f32` on tagged connections, which the dataplane compresses with this profile. The owner of a result does to
    /// its own copy what the network does to the others'.
    Wire(Wire),
}

/// The profile of `wire:C:B[:X]`. It prints so.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wire {
    profile: Profile,
    c: u8,
    b: i16,
    x: i8,
}

impl Wire {
    /// How to write it.
    pub const USAGE: &str = "wire:C:B[:X], C is the dataplane's codec 1 or 2, its bound is 2^(X-B)";
    /// Values that are coded together, so that a copy stays in the nearest cache.
    const CHUNK: usize = 1024;

    /// Codec 1 or 2 with the bound `2^(x-b)`.
    #[must_use]
    pub fn new(c: u8, b: i16, x: i8) -> Option<Self> {
        let profile = match c {
            1 => Params::new(u8::try_from(b).ok()?, Split::Dense, x).ok().map(Profile::Classes),
            2 => Bound::from_exponents(b.checked_neg()?, x).ok().map(Profile::Planar),
            _ => None,
        };
        profile.map(|profile| Self { profile, c, b, x })
    }

    /// The dataplane's profile.
    #[must_use]
    pub const fn profile(self) -> Profile {
        self.profile
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wire:{}:{}", self.c, self.b)?;
        if self.x == 0 { Ok(()) } else { write!(f, ":{}", self.x) }
    }
}

/// Values as they are, after they went through the profile: sent through a network that compresses with it, they do not change.
impl Codec for Wire {
    fn bound(&self, n: usize) -> usize {
        Raw.bound(n)
    }

    fn feeds_back(&self) -> bool {
        false
    }

    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let kernel = Kernel::detect();
        let mut coded = vec![0; self.profile.max_encoded_len(4 * Self::CHUNK)];
        let out = &mut out[..4 * acc.len()];
        for (values, out) in acc.chunks_mut(Self::CHUNK).zip(out.chunks_mut(4 * Self::CHUNK)) {
            let len = Raw.encode(&mut values.to_vec(), &mut [], 0, out);
            let coded_len = kernel.encode(&out[..len], &mut coded, self.profile).expect("there is room");
            kernel.decode(&coded[..coded_len], out, self.profile).expect("just encoded");
            for (value, sent) in values.iter_mut().zip(out.as_chunks().0) {
                let lost = *value - f32::from_le_bytes(*sent);
                *value = if lost.is_finite() { lost } else { 0.0 };
            }
        }
        out.len()
    }

    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        Raw.merge(src, sum)
    }
}

impl Coding {
    /// Values as they are.
    ///
    /// # Panics
    /// Never: `f32` is built in.
    #[must_use]
    pub fn exact() -> Self {
        Self::parse("f32", Registry::BUILT_IN).expect("f32 is a codec")
    }

    /// The coding that `text` names, with the host codecs of `registry`.
    ///
    /// # Errors
    /// It names none.
    pub fn parse(text: &str, registry: Registry) -> Result<Self, PlanError> {
        if text == "wire" || text.starts_with("wire:") {
            let numbers: Option<Vec<i16>> = text.split(':').skip(1).map(|word| word.parse().ok()).collect();
            let small = |number: &i16| i8::try_from(*number).ok();
            let wire = numbers.and_then(|numbers| match &numbers[..] {
                [c, b] => Wire::new(u8::try_from(*c).ok()?, *b, 0),
                [c, b, x] => Wire::new(u8::try_from(*c).ok()?, *b, small(x)?),
                _ => None,
            });
            return wire.map(Self::Wire).ok_or_else(|| PlanError::Wire { got: text.to_owned() });
        }
        registry.codec(text).map(Self::Host).map_err(|error| {
            let others = matches!(error, NameError::Unknown { .. });
            let more = if others { format!(", and {}", Wire::USAGE) } else { String::new() };
            PlanError::Codec { why: format!("{error}{more}") }
        })
    }

    /// The codecs that a graph runs with.
    #[must_use]
    pub fn codecs(&self) -> Codecs<'_> {
        match self {
            Self::Host(codec) => Codecs::both(codec),
            Self::Wire(wire) => Codecs { partial: &Raw, result: wire },
        }
    }

    /// The codec that gradients are given to.
    #[must_use]
    pub fn codec(&self) -> &dyn Codec {
        self.codecs().result
    }

    /// Does the network compress it, so that it goes on tagged connections?
    #[must_use]
    pub const fn is_tagged(&self) -> bool {
        matches!(self, Self::Wire(_))
    }

    /// Is nothing lost?
    #[must_use]
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Host(codec) if codec.name() == "f32")
    }

    /// Does the pair make sense?
    ///
    /// # Errors
    /// It does not; the error says why, and what would.
    pub fn check(&self, strategy: Strategy) -> Result<(), PlanError> {
        let refuse = |why| Err(PlanError::Pair { strategy, coding: self.to_string(), why });
        if self.is_tagged() && strategy != Strategy::Ring {
            return refuse(
                "only a ring's connections are tagged: use the strategy ring, or a host codec such as bounded:10",
            );
        }
        if !strategy.one_encodes() && !self.is_exact() {
            return refuse(
                "several members would encode one sum, and what they hold back would count more than once: use f32, or halving",
            );
        }
        Ok(())
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(codec) => codec.fmt(f),
            Self::Wire(wire) => wire.fmt(f),
        }
    }
}

/// How one tensor is exchanged.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// How it is coded.
    pub coding: Coding,
    /// Who sends what to whom.
    pub strategy: Strategy,
    /// Into how many parts it is cut; without a number as many as there are members.
    pub partitions: Option<usize>,
}

/// Who decides when a message leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Each member sends one big message at a time, to the member behind it first, then to the next one. If all are in step, no
    /// member receives from two at once.
    #[default]
    Turns,
    /// All messages leave when they are ready.
    Free,
    /// Rank 0's [`Coordinator`](crate::coordinator::Coordinator) says when big messages leave.
    Coordinated,
}

/// Which tensor is exchanged how. Members of a job need the same plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Where a node sums all tensors in the network; then everything else but the coding of `others` is without meaning.
    pub in_network: Option<SocketAddr>,
    /// Tensors without a row of their own.
    pub others: Choice,
    /// Rows: a name, or its beginning and `*`. The first that fits counts.
    pub rows: Vec<(String, Choice)>,
    /// Tensors with fewer values, and without a row, are exchanged together, as `f32` and in one part: they cost more in
    /// messages than in bytes.
    pub small: usize,
    /// Messages of at most so many bytes leave at once, whatever [`order`](Self::order) says.
    pub bulk: usize,
    /// Who decides when a bigger message leaves.
    pub order: Order,
}

/// Begins the strategy that sums in the network.
const NODE: &str = "in-network:";
/// How values are coded for a node if nobody says.
const DEFAULT_WIRE: &str = "wire:2:10";

/// An address with or without its port.
fn node_address(text: &str) -> Result<SocketAddr, PlanError> {
    let with_port = || text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
    text.parse().ok().or_else(with_port).ok_or_else(|| PlanError::Address { got: text.to_owned() })
}

/// The most partitions of a tensor.
pub const MOST_PARTITIONS: usize = 65_536;

impl Plan {
    /// Values below which a tensor is small, and bytes below which a message is, if nobody says otherwise.
    pub const DEFAULT_SMALL: usize = 1024;
    /// See [`bulk`](Self::bulk).
    pub const DEFAULT_BULK: usize = 65_536;

    /// The same for all tensors.
    #[must_use]
    pub const fn of(coding: Coding, strategy: Strategy) -> Self {
        let others = Choice { coding, strategy, partitions: None };
        Self {
            in_network: None,
            others,
            rows: Vec::new(),
            small: Self::DEFAULT_SMALL,
            bulk: Self::DEFAULT_BULK,
            order: Order::Turns,
        }
    }

    /// Sums in the network, by a node at this address, of values that `wire` codes.
    ///
    /// # Errors
    /// It is not codec 2.
    pub fn in_network(address: SocketAddr, wire: Wire) -> Result<Self, PlanError> {
        if !matches!(wire.profile, Profile::Planar(_)) {
            return Err(PlanError::Node { got: wire.to_string() });
        }
        // Strategy and partitions say nothing here; a ring is the one that goes with the coding.
        Ok(Self { in_network: Some(address), ..Self::of(Coding::Wire(wire), Strategy::Ring) })
    }

    /// Reads a plan's TOML.
    ///
    /// ```
    /// # use gradwire_codecs::Registry;
    /// # use gradwire_collectives::Plan;
    /// let plan = Plan::parse(
    ///     r#"
    ///     strategy = "servers"
    ///     codec = "q8:256"
    ///
    ///     [[tensor]]
    ///     name = "embedding*"
    ///     strategy = "all-gather"
    ///     codec = "dgc:1"
    ///     partitions = 1
    ///     "#,
    ///     Registry::BUILT_IN,
    /// )?;
    /// assert_eq!(plan.choice("embedding.weight").unwrap().partitions, Some(1));
    /// # Ok::<(), gradwire_collectives::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// It is no TOML, has a field that no plan has, or names what there is not.
    pub fn parse(text: &str, registry: Registry) -> Result<Self, PlanError> {
        let file: File = toml::from_str(text).map_err(|error| PlanError::Toml { why: error.to_string() })?;
        let choice = |row: &Row, default: Option<&Choice>| {
            let missing = |what| PlanError::Missing { what };
            let coding = match (&row.codec, default) {
                (Some(codec), _) => Coding::parse(codec, registry)?,
                (None, Some(default)) => default.coding,
                (None, None) => return Err(missing("codec")),
            };
            let strategy = match (&row.strategy, default) {
                (Some(strategy), _) => strategy.parse()?,
                (None, Some(default)) => default.strategy,
                (None, None) => return Err(missing("strategy")),
            };
            let partitions = row.partitions.or_else(|| default?.partitions);
            if partitions.is_some_and(|partitions| !(1..=MOST_PARTITIONS).contains(&partitions)) {
                return Err(PlanError::Partitions { got: partitions.unwrap_or(0) });
            }
            coding.check(strategy)?;
            Ok(Choice { coding, strategy, partitions })
        };
        let (strategy, codec) = (file.strategy.clone(), file.codec.clone());
        if let Some(address) = strategy.as_deref().and_then(|strategy| strategy.strip_prefix(NODE)) {
            let coding = Coding::parse(codec.as_deref().unwrap_or(DEFAULT_WIRE), registry)?;
            let Coding::Wire(wire) = coding else { return Err(PlanError::Node { got: coding.to_string() }) };
            if !file.tensor.is_empty() || file.partitions.is_some() {
                return Err(PlanError::Node { got: "rows or partitions of its own".into() });
            }
            return Self::in_network(node_address(address)?, wire);
        }
        let others = choice(&Row { name: None, strategy, codec, partitions: file.partitions }, None)?;
        let rows = file.tensor.iter().map(|tensor| {
            let name = tensor.name.clone().ok_or(PlanError::Missing { what: "name" })?;
            Ok((name, choice(tensor, Some(&others))?))
        });
        Ok(Self {
            in_network: None,
            rows: rows.collect::<Result<_, PlanError>>()?,
            others,
            small: file.small.unwrap_or(Self::DEFAULT_SMALL),
            bulk: file.bulk.unwrap_or(Self::DEFAULT_BULK),
            order: file.order.unwrap_or_default(),
        })
    }

    /// The plan as TOML, which [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let row = |(name, choice): &(String, Choice)| Row {
            name: Some(name.clone()),
            strategy: Some(choice.strategy.to_string()),
            codec: Some(choice.coding.to_string()),
            partitions: choice.partitions,
        };
        let file = File {
            strategy: Some(self.strategy()),
            codec: Some(self.others.coding.to_string()),
            partitions: self.others.partitions,
            small: self.in_network.is_none().then_some(self.small),
            bulk: self.in_network.is_none().then_some(self.bulk),
            order: self.in_network.is_none().then_some(self.order),
            tensor: self.rows.iter().map(row).collect(),
        };
        toml::to_string(&file).expect("a plan is strings and numbers")
    }

    /// The strategy of tensors without a row, as [`parse`](Self::parse) reads it.
    #[must_use]
    pub fn strategy(&self) -> String {
        self.in_network.map_or_else(|| self.others.strategy.to_string(), |address| format!("{NODE}{address}"))
    }

    /// The row that fits the tensor's name, if there is one.
    #[must_use]
    pub fn choice(&self, tensor: &str) -> Option<&Choice> {
        let fits = |row: &str| match row.strip_suffix('*') {
            Some(beginning) => tensor.starts_with(beginning),
            None => tensor == row,
        };
        self.rows.iter().find(|(row, _)| fits(row)).map(|(_, choice)| choice)
    }

    /// Does any tensor need tagged connections?
    #[must_use]
    pub fn is_tagged(&self) -> bool {
        // A node's packets have a type of service of their own.
        self.in_network.is_none() && self.others.coding.is_tagged()
            || self.rows.iter().any(|(_, choice)| choice.coding.is_tagged())
    }

    /// May member 0 be a server, which sums what all others send it? Then strategies are without meaning.
    ///
    /// # Errors
    /// The network would have to change what members send.
    pub fn check_served(&self) -> Result<(), PlanError> {
        let got = || if self.in_network.is_some() { self.strategy() } else { self.others.coding.to_string() };
        if self.in_network.is_some() || self.is_tagged() {
            Err(PlanError::Served { got: got() })
        } else {
            Ok(())
        }
    }

    /// What `members` do about the tensors of `layout`.
    ///
    /// # Errors
    /// A strategy is not for so many members, or does not go with its codec.
    pub fn jobs(&self, layout: &Layout, members: usize) -> Result<Vec<Job>, PlanError> {
        let (mut jobs, mut small) = (Vec::new(), Vec::new());
        for (at, (name, range)) in layout.tensors().iter().enumerate() {
            let choice = match self.choice(name) {
                Some(choice) => choice,
                None if range.len() < self.small => {
                    small.push(at);
                    continue;
                }
                None => &self.others,
            };
            choice.coding.check(choice.strategy)?;
            choice.strategy.check(members)?;
            let partitions = choice.partitions.unwrap_or(members).clamp(1, range.len().max(1));
            jobs.push(Job {
                tensors: vec![at],
                coding: choice.coding,
                strategy: choice.strategy,
                partitions,
                values: range.len(),
                first: first_owner(name, members),
            });
        }
        if !small.is_empty() {
            let values = small.iter().map(|&at| layout.tensors()[at].1.len()).sum();
            let (coding, strategy) = (Coding::exact(), Strategy::Servers(None));
            strategy.check(members)?;
            jobs.push(Job { tensors: small, coding, strategy, partitions: 1, values, first: 0 });
        }
        Ok(jobs)
    }
}

/// One tensor, or all small ones together, and what to do about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Numbers of tensors in the layout.
    pub tensors: Vec<usize>,
    /// How it is coded.
    pub coding: Coding,
    /// Who sends what to whom.
    pub strategy: Strategy,
    /// Into how many parts it is cut.
    pub partitions: usize,
    /// Values of all its tensors.
    pub values: usize,
    /// The number that its first part has for the strategy, below the members. The tensor's name decides it: tensors of one part would
    /// all be summed by one member otherwise.
    pub first: usize,
}

/// Whose a tensor's first part is, of `members`: the same in every layout, since an owner keeps what it held back.
fn first_owner(name: &str, members: usize) -> usize {
    // FNV-1a.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash as usize % members
}

impl Job {
    /// What member `me` does for a part.
    ///
    /// # Errors
    /// There are no such members, or the strategy is not for so many.
    pub fn graph(&self, members: usize, me: Rank, partition: usize) -> Result<Graph, StrategyError> {
        self.strategy.graph(members, me, self.first + partition)
    }

    /// The parts, in the order in which member `me` begins with them: that of the next member first, so that members send to different
    /// ones.
    pub fn order(&self, members: usize, me: Rank) -> impl Iterator<Item = usize> + use<> {
        let (count, start) = (self.partitions, me + 1 + members - self.first);
        (0..count).map(move |i| (start + i) % count)
    }

    /// The values of a part, among those of the job.
    #[must_use]
    pub fn part(&self, partition: usize) -> Range<usize> {
        // In 128 bits nothing overflows.
        let edge = |at: usize| (self.values as u128 * at as u128 / self.partitions as u128) as usize;
        edge(partition)..edge(partition + 1)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    strategy: Option<String>,
    codec: Option<String>,
    partitions: Option<usize>,
    small: Option<usize>,
    bulk: Option<usize>,
    order: Option<Order>,
    #[serde(default)]
    tensor: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: Option<String>,
    strategy: Option<String>,
    codec: Option<String>,
    partitions: Option<usize>,
}

/// Why this is no plan.
#[non_exhaustive]
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what is wrong")]
pub enum PlanError {
    /// Not the TOML of a plan.
    #[error("plan: {why}")]
    Toml { why: String },
    /// A field is not there.
    #[error(
        "plan: '{what}' is missing: each plan has strategy and codec for all tensors, and each [[tensor]] a name"
    )]
    Missing { what: &'static str },
    /// No or too many partitions.
    #[error(
        "plan: partitions = {got}: expected 1 to {MOST_PARTITIONS}, or no such line for as many as there are members"
    )]
    Partitions { got: usize },
    /// No such host codec.
    #[error("{why}")]
    Codec { why: String },
    /// No such profile of the network.
    #[error("codec '{got}': expected {}", Wire::USAGE)]
    Wire { got: String },
    /// Nothing that a node in the network sums.
    #[error("strategy {NODE}ADDRESS with {got}: a node sums all tensors, of codec wire:2:B[:X]")]
    Node { got: String },
    /// Nothing that a server sums.
    #[error(
        "{got} with a server: the network changes what it carries, and a server sums what host codecs send it, such as q8"
    )]
    Served { got: String },
    /// Nothing that a server's optimizer takes.
    #[error("{got} with a server's optimizer: it takes what one message of a codec such as q8 says")]
    Stepped { got: String },
    /// Not where a node is.
    #[error("strategy {NODE}{got}: expected an IP address, and :PORT unless it is {PORT}")]
    Address { got: String },
    /// No such strategy, or not for so many.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// A pair that makes no sense.
    #[error("strategy {strategy} with codec {coding}: {why}")]
    Pair { strategy: Strategy, coding: String, why: &'static str },
}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        Self::parse(text, Registry::BUILT_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Op, Task};

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

    #[test]
    fn a_plan_comes_back_from_its_toml() {
        let plan: Plan = TEXT.parse().unwrap();
        assert_eq!(plan.to_toml().parse(), Ok(plan.clone()));
        assert_eq!(plan.choice("fc.1").unwrap().strategy, Strategy::Servers(None));
        assert!(plan.is_tagged() && plan.choice("fc").is_none());
    }

    #[test]
    fn each_tensor_is_in_one_job_and_small_ones_are_together() {
        let plan: Plan = TEXT.parse().unwrap();
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
    fn tensors_of_one_part_are_summed_by_different_members_and_always_by_the_same() {
        let plan: Plan = "strategy = \"servers\"\ncodec = \"q8\"\npartitions = 1\nsmall = 0".parse().unwrap();
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
        assert!((0..4).all(|member| all.contains(&member)), "{all:?}");
        // DDP cuts its buckets anew after the first iteration, and a run that goes on does so again.
        assert_eq!(owners(7..20), all[7..]);
    }

    #[test]
    fn members_begin_with_the_part_of_the_next_member() {
        let plan: Plan = "strategy = \"servers\"\ncodec = \"f32\"\nsmall = 0".parse().unwrap();
        let layout = Layout::new([("a", 100), ("b", 100)]).unwrap();
        for job in plan.jobs(&layout, 4).unwrap() {
            for me in 0..4 {
                let part = job.order(4, me).next().unwrap();
                // In `servers` with everybody, part p has the owner p, counted from the first part's.
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
            ("strategy = ring", "line 1"),
        ] {
            let error = text.parse::<Plan>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let plan: Plan = "strategy = \"servers:5\"\ncodec = \"f32\"".parse().unwrap();
        let layout = Layout::new([("a", 5000)]).unwrap();
        assert!(plan.jobs(&layout, 4).unwrap_err().to_string().contains("expected 1 to 4"));
    }

    #[test]
    fn a_node_in_the_network_is_a_plan_of_its_own() {
        let plan: Plan = "strategy = \"in-network:10.0.0.9\"".parse().unwrap();
        assert_eq!(plan.in_network, Some("10.0.0.9:59255".parse().unwrap()));
        assert_eq!((plan.others.coding.to_string(), plan.is_tagged()), ("wire:2:10".into(), false));
        let plan: Plan = "strategy = \"in-network:[::1]:7\"\ncodec = \"wire:2:8:1\"".parse().unwrap();
        assert_eq!(plan.strategy(), "in-network:[::1]:7");
        assert_eq!(plan.to_toml().parse(), Ok(plan));
        for (text, says) in [
            ("strategy = \"in-network:here\"", "expected an IP address"),
            ("strategy = \"in-network:10.0.0.9\"\ncodec = \"wire:1:10\"", "wire:2:B"),
            ("strategy = \"in-network:10.0.0.9\"\ncodec = \"q8\"", "wire:2:B"),
            ("strategy = \"in-network:10.0.0.9\"\npartitions = 2", "wire:2:B"),
        ] {
            let error = text.parse::<Plan>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn what_went_through_the_profile_does_not_change_again() {
        for text in ["wire:2:10", "wire:1:8:3", "wire:2:6:-2"] {
            let coding = Coding::parse(text, Registry::BUILT_IN).unwrap();
            assert_eq!(coding.to_string(), text);
            let mut values: Vec<f32> = (0..3000).map(|i| ((i * 7919) % 2003) as f32 / 700.0 - 1.4).collect();
            values[1] = f32::INFINITY;
            values[2] = f32::NAN;
            let mut first = vec![0; 12_000];
            coding.codec().encode(&mut values, &mut [], 0, &mut first);
            assert!(values.iter().any(|&lost| lost != 0.0) && values.iter().all(|lost| lost.is_finite()));
            let mut sent = vec![0.0; 3000];
            coding.codec().merge(&first, &mut sent).unwrap();
            let mut second = vec![0; 12_000];
            coding.codec().encode(&mut sent, &mut [], 0, &mut second);
            assert!(first == second, "{text}");
        }
    }
}
