//! Limits of a run: what cannot be run, and what a run takes at most, checked before anything is
//! allocated for it.

use std::collections::BTreeMap;

use gradwire_collectives::Strategy;
use gradwire_collectives::graph::Op;

use crate::cluster::{MESSAGE_BYTES, STATION_BYTES, STATIONS};
use crate::error::SimError;
use crate::limits::{Excess, MAX_WIDTH, Work};
use crate::mechanisms::FAIR_SHARE;
use crate::scenario::{
    Assignment, CodecPlace, Compression, Content, Mechanism, Scenario, SendOrder, WireCost,
};
use crate::time::{Picos, seconds};
use crate::workload::VALUE_BITS;

/// Bytes of what a mechanism and a worker keep for one parameter at one worker.
const SLOT_BYTES: u128 = 128;
/// Bytes of a piece of a parameter at its server, and of a task of a graph.
const PIECE_BYTES: u128 = 64;

impl Scenario {
    /// Refuses what cannot be run; otherwise, what the run takes at most.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn check(&self) -> Result<Work, SimError> {
        let (workers, links) = (self.workers, &self.links);
        let racks_fit = links.racks.is_none_or(|racks| racks.size > 0 && racks.oversubscription > 0.0);
        let ranges = [
            (workers > 0, "the number of workers"),
            (links.bandwidth > 0 && links.exceptions.iter().all(|&(_, rate)| rate > 0), "the bandwidth"),
            (links.exceptions.iter().all(|&(worker, _)| worker < workers), "the worker of a link rate"),
            (self.late.iter().all(|&(worker, _)| worker < workers), "the worker that is late"),
            (racks_fit, "the rack size or oversubscription"),
            (self.message != Some(0), "the message size"),
            (
                self.coded_bits.is_none_or(|bits| bits > 0.0 && bits <= VALUE_BITS as f64),
                "the bits of a coded value",
            ),
            (self.jitter.amount >= 0.0 && self.jitter.amount <= 1e6, "the jitter"),
            (!self.barrier || self.staleness == 0, "the staleness, which a barrier forbids,"),
            (
                !self.mechanism.is_asynchronous() || self.staleness == 0,
                "the staleness, which asynchronous servers do not bound,",
            ),
            (
                !matches!(
                    self.mechanism,
                    Mechanism::Ps { order: SendOrder::Asynchronous, multicast, aggregation, .. } if multicast || aggregation
                ),
                "multicast or aggregation, which asynchronous servers cannot use,",
            ),
            (self.staleness < MAX_WIDTH, "the staleness"),
            (
                (1..=workers as usize).contains(&self.compute_times.len()),
                "the number of workers, fewer than have compute times,",
            ),
            (
                self.compute_times.iter().all(|times| times.rows() == self.model.parameters.len()),
                "the number of compute times",
            ),
            (!matches!(self.mechanism, Mechanism::Ps { servers: 0, .. }), "the number of servers"),
            (self.aggregator.rate > 0 && self.aggregator.cores > 0, "the rate of an aggregator or its cores"),
            (
                !matches!(self.mechanism, Mechanism::Graph(strategy) if strategy.check(workers as usize).is_err()),
                "the number of workers, or of the graph's servers or groups,",
            ),
        ];
        if let Some(&(_, what)) = ranges.iter().find(|(holds, _)| !holds) {
            return Err(SimError::OutOfRange { what });
        }
        // Without a plan no parameter has more partitions than there are workers.
        let partitions = match self.plan {
            Some(_) => self.jobs()?.iter().map(|job| job.partitions).max().unwrap_or(1),
            None => 1,
        };
        // Beyond it the clock could overflow.
        if self.longest(partitions) > 5e6 {
            return Err(SimError::OutOfRange { what: "the time of an iteration (weeks)" });
        }
        match self.mechanism {
            Mechanism::Butterfly if !workers.is_power_of_two() => Err(SimError::NotAPowerOfTwo { workers }),
            Mechanism::HierarchicalAggregators { group } if group == 0 || !workers.is_multiple_of(group) => {
                Err(SimError::UnevenGroups { workers, group })
            }
            _ => self.check_work(),
        }
    }

    /// An upper bound of the run's time in seconds, with so many partitions of a parameter: nothing
    /// overlaps, on the slowest link.
    fn longest(&self, partitions: usize) -> f64 {
        let links = &self.links;
        let uplinks = links.racks.map(|racks| links.bandwidth as f64 / racks.oversubscription);
        let rates = links.exceptions.iter().map(|&(_, rate)| rate as f64).chain(uplinks);
        let slowest = rates.fold(links.bandwidth as f64, f64::min).max(1.0);
        // Each way at most two hops for each worker; a chunk of a parameter has headers of its own.
        let hops = 4.0 * f64::from(self.workers);
        // In batches, if there are more partitions than workers.
        let messages = hops * partitions.div_ceil(self.workers as usize) as f64;
        let exchange = |bits: u64| {
            let contents = [Content::Gradient, Content::PartialSum, Content::Parameters];
            let costs = contents.map(|content| [self.wire.cost(bits, content), self.wire.cost(1, content)]);
            let time =
                |cost: &WireCost| cost.bits as f64 / slowest + seconds(cost.encode) + seconds(cost.decode);
            let summed = if let Mechanism::InNetwork { .. } = self.mechanism {
                let chunks =
                    [Content::Gradient, Content::Sum(u32::MAX)].map(|of| self.wire.chunk_cost(bits, of));
                chunks.iter().map(time).sum::<f64>()
                    + bits as f64 / VALUE_BITS as f64 / self.aggregator.values_a_second()
            } else {
                0.0
            };
            let each = seconds(links.latency) + 2.0 * seconds(self.per_message);
            costs.as_flattened().iter().map(time).sum::<f64>() + each + summed
        };
        let exchanges: f64 =
            self.model.parameters.iter().map(|parameter| messages * exchange(parameter.bits)).sum();
        // In f64: whole numbers could overflow.
        let pass = |rows: &[Picos]| rows.iter().map(|&row| seconds(row)).sum::<f64>();
        let compute = self.compute_times.iter().map(|times| pass(&times.forward) + pass(&times.backward));
        let compute = compute.fold(0.0, f64::max) * (1.0 + self.jitter.amount);
        let late: f64 = self.late.iter().map(|&(_, late)| seconds(late)).sum();
        f64::from(self.iterations()) * (exchanges + compute) + late
    }

    /// The most work of the run. All numbers are in range.
    fn work(&self) -> Work {
        let rows = self.model.parameters.len() as u128;
        let workers = u128::from(self.workers);
        let simulated = if self.symmetric() { 1 } else { workers };
        let each = simulated * rows;
        let mut pieces = 0;
        // Hosts beside the workers; messages that one host gets in an iteration; those under way at
        // once.
        let (others, messages, under_way) = match self.mechanism {
            Mechanism::Ps { servers, assignment, order, multicast, .. } => {
                let parts;
                (pieces, parts) = self.pieces(servers, assignment, order, multicast);
                // Each worker gets every part and sends every piece, the switch every server's sum.
                // No worker has a piece's gradient before it has the piece.
                (u128::from(servers), workers * (pieces + parts) + pieces, workers * parts)
            }
            Mechanism::Ring { messages, multicast } => {
                let sent = if messages { each } else { rows };
                let copies = if multicast { workers } else { 1 };
                (0, sent * 2 * (workers - 1), each * copies)
            }
            Mechanism::Butterfly => (0, each * u128::from(self.workers.ilog2()), each),
            Mechanism::Graph(_) => {
                let (mut known, mut sent) = (BTreeMap::new(), 0);
                for job in self.jobs().unwrap_or_default() {
                    let [tasks, sends] = *known
                        .entry(job.strategy)
                        .or_insert_with(|| tasks_and_sends(job.strategy, self.workers));
                    // Two iterations', and as many more for each iteration that a pass may be late.
                    pieces += 2 * job.partitions as u128 * tasks;
                    sent += job.partitions as u128 * sends;
                }
                (0, sent, sent)
            }
            Mechanism::HierarchicalAggregators { group } => {
                let groups = workers / u128::from(group);
                (groups + 1, 2 * rows * (workers + groups), rows * (workers + groups))
            }
            Mechanism::InNetwork { .. } => {
                // Up, down, and a partial sum of each rack: this iteration's and the next one's.
                (0, 3 * each, 2 * each)
            }
        };
        let racks = self.links.racks.map_or(0, |racks| workers.div_ceil(u128::from(racks.size)));
        let busy = |codec: Compression| matches!(codec.place, CodecPlace::Host { encode, decode } if encode.min(decode).is_finite());
        let codec = self.wire.compression.is_some_and(busy);
        let steps = 2 + if racks > 0 { 2 } else { 0 } + if codec || self.per_message > 0 { 2 } else { 0 };
        let computed = 2 * each;
        // Asynchronous servers send parameters after the last update, too.
        let iterations = self.iterations() + u32::from(self.mechanism.is_asynchronous());
        let events = u128::from(iterations) * (computed + messages * steps);
        let stations = (simulated + others) * STATIONS + 2 * racks;
        let memory = stations * STATION_BYTES
            // With staleness those of more iterations. Messages are decoded and passed on at once.
            + (each * SLOT_BYTES + pieces * PIECE_BYTES + under_way * MESSAGE_BYTES)
                * (1 + u128::from(self.staleness));
        let clip = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Work { events: clip(events), memory: clip(memory) }
    }

    /// Pieces in which the parameters are kept on servers, and the messages that distribute them to
    /// a worker.
    fn pieces(
        &self,
        servers: u32,
        assignment: Assignment,
        order: SendOrder,
        multicast: bool,
    ) -> (u128, u128) {
        let homes = match assignment {
            Assignment::RoundRobin => 1,
            Assignment::Even => u64::from(servers),
        };
        let fair = order == SendOrder::Messages && !multicast;
        let of = |bits: u64| {
            let part = bits.div_ceil(homes);
            let cut = self.message.map_or(1, |limit| part.div_ceil(limit).max(1));
            let parts = if fair { part.div_ceil(cut).div_ceil(FAIR_SHARE).max(1) } else { 1 };
            let pieces = u128::from(cut) * u128::from(homes);
            (pieces, pieces * u128::from(parts))
        };
        let all = self.model.parameters.iter().map(|parameter| of(parameter.bits));
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Refuses a run that is too large, and finds what makes it so: the first that, left out,
    /// shrinks it enough, or what shrinks it most.
    fn check_work(&self) -> Result<Work, SimError> {
        let work = self.work();
        if work.load() <= 1.0 {
            return Ok(work);
        }
        let without = |excess| match excess {
            Excess::Message => Self { message: None, ..self.clone() },
            Excess::Servers => {
                Self { mechanism: self.mechanism.with_servers(1, Assignment::Even), ..self.clone() }
            }
            Excess::Full => Self { full: false, ..self.clone() },
            Excess::Workers => {
                let mechanism = match self.mechanism {
                    Mechanism::HierarchicalAggregators { .. } => {
                        Mechanism::HierarchicalAggregators { group: 1 }
                    }
                    other => other,
                };
                Self { workers: 1, mechanism, ..self.clone() }
            }
            Excess::Parameters => self.clone(),
        };
        let mut least = (Excess::Parameters, work.load());
        for excess in [Excess::Message, Excess::Servers, Excess::Full, Excess::Workers] {
            let load = without(excess).work().load();
            if load < least.1 {
                least = (excess, load);
            }
            if load <= 1.0 {
                break;
            }
        }
        // With one worker it would still be too large.
        let excess = if least.0 == Excess::Workers && least.1 > 1.0 { Excess::Parameters } else { least.0 };
        Err(SimError::TooLarge { work, excess })
    }
}

/// Tasks and sends of all workers for one partition.
fn tasks_and_sends(strategy: Strategy, workers: u32) -> [u128; 2] {
    let ranks = workers as usize;
    let graphs = (0..ranks).filter_map(|me| strategy.graph(ranks, me, 0).ok());
    graphs.fold([0, 0], |[tasks, sends], graph| {
        let sent = graph.tasks().iter().filter(|task| matches!(task.op, Op::Send { .. })).count();
        [tasks + graph.tasks().len() as u128, sends + sent as u128]
    })
}
