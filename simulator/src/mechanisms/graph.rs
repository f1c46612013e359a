//! The collectives' own graphs, on the cost model.
//!
//! Each worker runs the graphs that it would run over TCP, of the jobs of the scenario's plan.
//! Without a plan each parameter is a job of its own, cut into as many partitions as there are
//! workers, where the strategy gives each an owner. A message is encoded by its first sender and
//! decoded by each receiver; who passes it on does so before decoding.

use std::collections::BTreeMap;
use std::ops::Range;

use gradwire_collectives::graph::{Format, Graph, Message as GraphMessage, Op, Task};
use gradwire_collectives::{CollectivePlan, Job, Order};

use super::countdown::Countdown;
use crate::cluster::{Cluster, Dest, Exchange, Message, Sent};
use crate::scenario::{Content, Scenario};
use crate::workload::VALUE_BITS;

/// The task of one worker for one partition, whatever the job.
struct Role {
    graph: Graph,
    followers: Vec<Vec<u32>>,
    /// By receive: the sends that pass the message on, before it is decoded.
    passed_on: Vec<Vec<u32>>,
    /// The tasks that each task waits for; the first on the sum waits for the gradient too.
    waits: Vec<u32>,
    first: u32,
}

impl Role {
    fn new(graph: Graph) -> Self {
        let tasks = graph.tasks();
        let mut followers = vec![Vec::new(); tasks.len()];
        let mut passed_on = followers.clone();
        for (at, task) in tasks.iter().enumerate() {
            for &before in &task.after {
                let passes = matches!((tasks[before].op, task.op), (Op::Recv { .. }, Op::Send { .. }));
                let list = if passes { &mut passed_on } else { &mut followers };
                list[before].push(at as u32);
            }
        }
        let mut waits: Vec<u32> = tasks.iter().map(|task| task.after.len() as u32).collect();
        let on_sum = |task: &Task| matches!(task.op, Op::Encode { .. } | Op::Merge { .. });
        let first = tasks.iter().position(on_sum).expect("everybody adds its gradient to something");
        waits[first] += 1;
        for (at, task) in tasks.iter().enumerate() {
            // A message has to come.
            waits[at] += u32::from(matches!(task.op, Op::Recv { .. }));
        }
        Self { graph, followers, passed_on, waits, first: first as u32 }
    }
}

/// One worker's partition of one job in one iteration.
#[derive(Clone)]
struct Run {
    waits: Vec<u32>,
    left: u32,
}

/// A partition of a job.
struct Part {
    job: u32,
    /// Worker 0's role; the others' are behind it.
    roles: u32,
    bits: u64,
    /// With a plan: the bits of a message that its codec makes.
    coded: Option<u64>,
}

/// A job's parameters and partitions.
struct Jobs {
    rows: Vec<u32>,
    parts: Range<u32>,
    /// For the order in which workers begin with partitions.
    job: Job,
}

pub(crate) struct Graphs {
    jobs: Vec<Jobs>,
    /// By parameter.
    job_of: Vec<u32>,
    parts: Vec<Part>,
    roles: Vec<Role>,
    planned: bool,
    /// Does each worker begin with another partition?
    in_turns: bool,
    /// By partition, worker and iteration under way.
    runs: Vec<Run>,
    /// Parameters whose gradients a worker misses, and partitions, by worker and job.
    awaited: Countdown,
    missing: Countdown,
    /// Workers that miss a job.
    behind: Countdown,
}

impl Graphs {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let (workers, rows) = (scenario.workers, &scenario.model.parameters);
        let planned = scenario.plan.is_some();
        let in_turns = scenario
            .plan
            .as_ref()
            .and_then(CollectivePlan::graph)
            .is_none_or(|plan| plan.order != Order::Free);
        let (mut roles, mut known) = (Vec::new(), BTreeMap::new());
        let (mut jobs, mut parts, mut job_of) = (Vec::new(), Vec::new(), vec![0; rows.len()]);
        for (at, job) in scenario.jobs().expect("Scenario::check").into_iter().enumerate() {
            let first = parts.len() as u32;
            for partition in 0..job.partitions {
                let start = *known.entry((job.strategy, job.first + partition)).or_insert_with(|| {
                    let start = roles.len() as u32;
                    let graph = |me| job.graph(workers as usize, me, partition).expect("Scenario::check");
                    roles.extend((0..workers as usize).map(|me| Role::new(graph(me))));
                    start
                });
                let values = job.part(partition).len();
                let (bits, coded) = if planned {
                    let most = || 8 * job.codecs().result.bound(values) as u64;
                    let bits = |bits: f64| (values as f64 * bits).ceil() as u64;
                    let coded = (!job.coding.is_exact()).then(|| scenario.coded_bits.map_or_else(most, bits));
                    (VALUE_BITS * values as u64, coded)
                } else {
                    (rows[at].bits.div_ceil(job.partitions as u64), None)
                };
                parts.push(Part { job: at as u32, roles: start, bits, coded });
            }
            let of_job: Vec<u32> = job.tensors.iter().map(|&row| row as u32).collect();
            of_job.iter().for_each(|&row| job_of[row as usize] = at as u32);
            jobs.push(Jobs { rows: of_job, parts: first..parts.len() as u32, job });
        }
        let run = |role: &Role| Run { waits: role.waits.clone(), left: role.waits.len() as u32 };
        let of_part = |part: &Part| (part.roles..part.roles + workers).map(|role| &roles[role as usize]);
        let runs =
            parts.iter().flat_map(of_part).flat_map(|role| vec![run(role); scenario.under_way()]).collect();
        let by_worker = |of: fn(&Jobs) -> usize| {
            Countdown::new(scenario, (0..workers).flat_map(|_| &jobs).map(|job| of(job) as u32).collect())
        };
        Self {
            awaited: by_worker(|job| job.rows.len()),
            missing: by_worker(|job| job.parts.len()),
            behind: Countdown::new(scenario, vec![workers; jobs.len()]),
            jobs,
            job_of,
            parts,
            roles,
            planned,
            in_turns,
            runs,
        }
    }

    fn role(&self, item: u32, worker: u32) -> &Role {
        &self.roles[(self.parts[item as usize].roles + worker) as usize]
    }

    /// Takes one wait from each of `tasks`, and does what waits for nothing more.
    fn release(&mut self, cluster: &mut Cluster<'_>, worker: u32, item: u32, iteration: u32, tasks: &[u32]) {
        let workers = cluster.workers();
        let part = &self.parts[item as usize];
        let (planned, role) = (self.planned, &self.roles[(part.roles + worker) as usize]);
        let run = &mut self.runs[self.behind.place((item * workers + worker) as usize, iteration)];
        let mut released = tasks.to_vec();
        while let Some(task) = released.pop() {
            run.waits[task as usize] -= 1;
            if run.waits[task as usize] > 0 {
                continue;
            }
            run.left -= 1;
            // Later tasks last, so that sends keep the order of the graph.
            released.extend(role.followers[task as usize].iter().rev());
            if let Op::Send { message, to } = role.graph.tasks()[task as usize].op {
                let step = message.tag << 1 | u32::from(message.format == Format::Coded);
                let sent = Message { src: worker, dest: Dest::Host(to as u32), item, step, iteration };
                let cost = match (planned, part.coded, message.format) {
                    (false, ..) if is_own(&role.graph, message) => cluster.cost(part.bits, Content::Gradient),
                    (false, ..) => cluster.cost(part.bits, Content::PartialSum),
                    (true, Some(coded), Format::Coded) => cluster.coded_cost(part.bits, coded),
                    (true, ..) => cluster.plain_cost(part.bits),
                };
                cluster.send_copy(sent, cost, sent_before(&role.graph, task, message));
            }
        }
        if run.left > 0 {
            return;
        }
        run.waits.clone_from(&role.waits);
        run.left = role.waits.len() as u32;
        let at = part.job as usize;
        if !self.missing.tick(worker as usize * self.jobs.len() + at, iteration) {
            return;
        }
        let last = self.behind.tick(at, iteration);
        for &row in &self.jobs[at].rows {
            if last {
                cluster.reduced(iteration, row);
            }
            cluster.parameter_arrived(worker, row);
        }
    }

    /// The receive of a message at `host`.
    fn receive(&self, host: u32, message: Message) -> u32 {
        let role = self.role(message.item, host);
        let format = if message.step & 1 == 1 { Format::Coded } else { Format::Raw };
        let wanted =
            Op::Recv { message: GraphMessage { tag: message.step >> 1, format }, from: message.src as usize };
        let at = role.graph.tasks().iter().position(|task| task.op == wanted);
        at.expect("graphs fit together") as u32
    }
}

/// Has the message nothing but the rank's own gradient?
fn is_own(graph: &Graph, message: GraphMessage) -> bool {
    let made = graph.tasks().iter().position(|task| task.op == Op::Encode { message });
    made.is_some_and(|made| graph.tasks()[..made].iter().all(|task| !matches!(task.op, Op::Merge { .. })))
}

/// The rank's work on the message before this send.
fn sent_before(graph: &Graph, task: u32, message: GraphMessage) -> Sent {
    let made_here = graph.tasks().iter().any(|task| task.op == Op::Encode { message });
    let sends = |task: &Task| matches!(task.op, Op::Send { message: other, .. } if other == message);
    match (made_here, graph.tasks().iter().position(sends) == Some(task as usize)) {
        (true, true) => Sent::First,
        (true, false) => Sent::Another,
        (false, _) => Sent::Relayed,
    }
}

impl Exchange for Graphs {
    fn start(&mut self, cluster: &mut Cluster<'_>) {
        cluster.all_parameters_arrived();
    }

    fn gradient(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32) {
        let at = self.job_of[parameter as usize] as usize;
        if !self.awaited.tick(worker as usize * self.jobs.len() + at, iteration) {
            return;
        }
        let Jobs { parts, job, .. } = &self.jobs[at];
        let start = parts.start;
        let order: Vec<u32> = if self.in_turns {
            let order = job.order(cluster.workers() as usize, worker as usize);
            order.map(|partition| start + partition as u32).collect()
        } else {
            parts.clone().collect()
        };
        for item in order {
            let first = self.role(item, worker).first;
            self.release(cluster, worker, item, iteration, &[first]);
        }
    }

    fn arrived(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        // What is passed on needs no decoding.
        let receive = self.receive(host, message);
        let sends = self.role(message.item, host).passed_on[receive as usize].clone();
        self.release(cluster, host, message.item, message.iteration, &sends);
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        let receive = self.receive(host, message);
        self.release(cluster, host, message.item, message.iteration, &[receive]);
    }
}
