//! The collectives' own graphs, on the cost model.
//!
//! A parameter is cut into as many partitions as there are workers, where the strategy gives each an owner, and each worker runs the graph that
//! it would run over TCP. A message is encoded by its first sender and decoded by each receiver; who passes it on does so before decoding.

use gradwire_collectives::Strategy;
use gradwire_collectives::graph::{Format, Graph, Message as GraphMessage, Op, Task};

use crate::cluster::{Cluster, Dest, Exchange, Message, Sent};
use crate::scenario::{Content, Mechanism, Scenario};

/// Partitions of a parameter: without owners, all would do the same.
pub(crate) const fn partitions(strategy: Strategy, workers: u32) -> u32 {
    match strategy {
        Strategy::Butterfly | Strategy::AllGather | Strategy::Servers(Some(1)) => 1,
        _ => workers,
    }
}

/// What one worker does for one partition, whatever the parameter.
struct Role {
    graph: Graph,
    followers: Vec<Vec<u32>>,
    /// By receive: the sends that pass the message on, before it is decoded.
    passed_on: Vec<Vec<u32>>,
    /// What each task waits for; the first on the sum waits for the gradient too.
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

/// One worker's partition of one parameter in one iteration.
#[derive(Clone)]
struct Run {
    waits: Vec<u32>,
    left: u32,
}

pub(crate) struct Graphs {
    partitions: u32,
    /// By partition and worker.
    roles: Vec<Role>,
    /// Bits of a partition, by parameter.
    bits: Vec<u64>,
    /// By parameter, partition and worker: this iteration and the next.
    runs: Vec<[Run; 2]>,
    /// Partitions that a worker misses, by worker and parameter.
    missing: Vec<[u32; 2]>,
    /// Workers that miss a parameter.
    behind: Vec<[u32; 2]>,
}

impl Graphs {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let Mechanism::Graph(strategy) = scenario.mechanism else {
            unreachable!("Scenario::run matched the mechanism")
        };
        let (workers, rows) = (scenario.workers, scenario.model.parameters.len());
        let partitions = partitions(strategy, workers);
        let role = |at: u32| {
            let (partition, worker) = (at / workers, at % workers);
            let graph = strategy.graph(workers as usize, worker as usize, partition as usize);
            Role::new(graph.expect("Scenario::check"))
        };
        let roles: Vec<Role> = (0..partitions * workers).map(role).collect();
        let run = |role: &Role| Run { waits: role.waits.clone(), left: role.waits.len() as u32 };
        let of_a_row: Vec<[Run; 2]> = roles.iter().map(|role| [run(role), run(role)]).collect();
        Self {
            partitions,
            roles,
            bits: scenario.model.parameters.iter().map(|row| row.bits.div_ceil(partitions.into())).collect(),
            runs: (0..rows).flat_map(|_| of_a_row.iter().cloned()).collect(),
            missing: vec![[partitions; 2]; workers as usize * rows],
            behind: vec![[workers; 2]; rows],
        }
    }

    /// Takes one wait from each of `tasks`, and does what waits for nothing more.
    fn release(&mut self, cluster: &mut Cluster<'_>, worker: u32, item: u32, iteration: u32, tasks: &[u32]) {
        let workers = cluster.workers();
        let (parameter, partition) = (item / self.partitions, item % self.partitions);
        let role = &self.roles[(partition * workers + worker) as usize];
        let parity = iteration as usize % 2;
        let run = &mut self.runs[(item * workers + worker) as usize][parity];
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
                let bits = self.bits[parameter as usize];
                let content =
                    if is_own(&role.graph, message) { Content::Gradient } else { Content::PartialSum };
                let cost = cluster.cost(bits, content);
                cluster.send_copy(sent, cost, sent_before(&role.graph, task, message));
            }
        }
        if run.left > 0 {
            return;
        }
        run.waits.clone_from(&role.waits);
        run.left = role.waits.len() as u32;
        let rows = self.bits.len();
        let missing = &mut self.missing[worker as usize * rows + parameter as usize][parity];
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        *missing = self.partitions;
        let behind = &mut self.behind[parameter as usize][parity];
        *behind -= 1;
        if *behind == 0 {
            *behind = workers;
            cluster.reduced(iteration, parameter);
        }
        cluster.parameter_arrived(worker, parameter);
    }

    /// The receive of a message at `host`.
    fn receive(&self, cluster: &Cluster<'_>, host: u32, message: Message) -> u32 {
        let partition = message.item % self.partitions;
        let role = &self.roles[(partition * cluster.workers() + host) as usize];
        let format = if message.step & 1 == 1 { Format::Coded } else { Format::Raw };
        let wanted =
            Op::Recv { message: GraphMessage { tag: message.step >> 1, format }, from: message.src as usize };
        let at = role.graph.tasks().iter().position(|task| task.op == wanted);
        at.expect("graphs fit together") as u32
    }
}

/// Has the message nothing but the member's own gradient?
fn is_own(graph: &Graph, message: GraphMessage) -> bool {
    let made = graph.tasks().iter().position(|task| task.op == Op::Encode { message });
    made.is_some_and(|made| graph.tasks()[..made].iter().all(|task| !matches!(task.op, Op::Merge { .. })))
}

/// What the member did with the message before this send.
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
        // The next worker's partition first, as a link does.
        for i in 0..self.partitions {
            let partition = (worker + 1 + i) % self.partitions;
            let item = parameter * self.partitions + partition;
            let first = self.roles[(partition * cluster.workers() + worker) as usize].first;
            self.release(cluster, worker, item, iteration, &[first]);
        }
    }

    fn arrived(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        // What is passed on needs no decoding.
        let receive = self.receive(cluster, host, message);
        let role = &self.roles[(message.item % self.partitions * cluster.workers() + host) as usize];
        let sends = role.passed_on[receive as usize].clone();
        self.release(cluster, host, message.item, message.iteration, &sends);
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        let receive = self.receive(cluster, host, message);
        self.release(cluster, host, message.item, message.iteration, &[receive]);
    }
}
