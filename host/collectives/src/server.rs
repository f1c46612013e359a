//! A parameter server: a rank without a gradient that owns all sums, and the weights if it has an optimizer.
//!
//! It is rank 0 of a link whose [`Options::served`](crate::Options) is set. Before each exchange, rank 1 tells it the layout and
//! the plan; then it takes its part in the exchange, as all others do. So workers need no more than each other's layout to be
//! served, and a server needs nothing of a model.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use gradwire_codecs::Registry;
use serde::{Deserialize, Serialize};

use crate::coding::Coding;
use crate::failure::LinkError;
use crate::layout::{Layout, checksum};
use crate::link::{Link, Report};
use crate::magnitude::all_finite;
use crate::method::Method;
use crate::optimizer::{Moments, Optimizer};
use crate::plan::{CollectivePlan, GraphPlan, PlanError};
use crate::residuals::Residuals;
use crate::strategies::Strategy;

/// An exchange that all ranks of a job make, with or without a server.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// How.
    pub method: &'a Method,
    /// The tensors.
    pub layout: &'a Layout,
    /// By tensor: its rows as a matrix, as [`Method::exchange`] takes them.
    pub rows: &'a [usize],
    /// Make sure that all ranks got the same bits?
    pub compare: bool,
}

impl Round<'_> {
    /// [`Method::exchange`], at a worker or among ranks without a server.
    ///
    /// # Errors
    /// As there; or ranks got different bits; or the link has a server, and the method nothing that a server sums.
    pub fn sum(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        if link.is_served() {
            self.method.check_served()?;
            link.ask(&Request::new(Task::Sum, self).to_toml());
        }
        self.run(link, buffer, residuals)
    }

    /// Gives a server's optimizer the weights that it starts from, those of rank 1, and all others the same ones. Says what the
    /// server returns from now on.
    ///
    /// # Errors
    /// The server has no optimizer, or takes no messages of the method; or the exchange failed.
    pub fn begin(&self, link: &mut Link, weights: &mut [f32]) -> Result<Returns, LinkError> {
        self.method.stepped()?;
        link.ask(&Request::new(Task::Begin, self).to_toml());
        if link.rank() != 1 {
            weights.fill(0.0);
        }
        link.exchange(weights, self.layout, &CollectivePlan::exact(), &mut Residuals::new())?;
        let mut said = [0.0; SAID];
        link.pull(&mut said, &Layout::new([("returns", SAID)])?, &GraphPlan::exact())?;
        let text: String =
            said.iter().take_while(|byte| **byte != 0.0).map(|byte| *byte as u8 as char).collect();
        Ok(text.parse()?)
    }

    /// Gives a server's optimizer a gradient, and replaces it by what the server returns: weights, or what to add to them. The optimizer
    /// steps with the mean over all workers.
    ///
    /// # Errors
    /// As [`sum`](Self::sum); or the method has more messages than one for a tensor; or the server has no such weights.
    pub fn step(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        returns: Returns,
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        let plan = self.method.stepped()?;
        link.ask(&Request::new(Task::Step, self).to_toml());
        let first = link.push(buffer, self.layout, plan, residuals)?;
        let second = link.pull(buffer, self.layout, &returns.plan())?;
        self.check(link, buffer)?;
        Ok(first.then(second))
    }

    fn run(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        let report = self.method.exchange(link, buffer, self.layout, self.rows, residuals)?;
        self.check(link, buffer)?;
        Ok(report)
    }

    fn check(&self, link: &mut Link, buffer: &[f32]) -> Result<(), LinkError> {
        let means = "ranks got different values: do all run the same version of gradwire, on sound memory?";
        if self.compare { link.compare(checksum(buffer), means) } else { Ok(()) }
    }
}

/// What a server with an optimizer returns. It prints as it is read: `weights`, or the codec of deltas.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Returns {
    /// Its weights, as they are.
    Weights,
    /// What its weights have that the workers' have not, by this codec. What a message loses is still missing at the next one, so it
    /// is fed back.
    Deltas(Coding),
}

/// The most bytes of its name.
const SAID: usize = 64;

impl Returns {
    fn plan(self) -> GraphPlan {
        match self {
            Self::Weights => GraphPlan::exact(),
            Self::Deltas(coding) => GraphPlan::of(coding, Strategy::Servers(None)),
        }
    }
}

impl fmt::Display for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weights => f.write_str("weights"),
            Self::Deltas(coding) => coding.fmt(f),
        }
    }
}

impl FromStr for Returns {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        if text == "weights" {
            return Ok(Self::Weights);
        }
        let coding = Coding::parse(text, Registry::BUILT_IN)?;
        let returns = Self::Deltas(coding);
        CollectivePlan::from(returns.plan()).check_served()?;
        Ok(returns)
    }
}

/// What makes a server step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Updates {
    /// How.
    pub optimizer: Optimizer,
    /// What it answers.
    pub returns: Returns,
}

/// What rank 1 asks a server to do, as TOML.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    task: Task,
    plan: String,
    compare: bool,
    /// Name, values, rows.
    tensors: Vec<(String, usize, usize)>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Task {
    Sum,
    Begin,
    Step,
}

impl Request {
    fn new(task: Task, round: &Round) -> Self {
        let tensors = round.layout.tensors().iter().zip(round.rows);
        Self {
            task,
            plan: round.method.to_string(),
            compare: round.compare,
            tensors: tensors.map(|((name, range), rows)| (name.clone(), range.len(), *rows)).collect(),
        }
    }

    fn to_toml(&self) -> String {
        toml::to_string(self).expect("strings and numbers")
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }
}

/// What a server did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// Exchanges of gradients.
    pub exchanges: u64,
    /// Values of all of them.
    pub values: u64,
    /// Bytes sent to the workers.
    pub sent_bytes: u64,
    /// From the first message to the last one of all exchanges.
    pub time: Duration,
    /// Of that, coding, summing and stepping.
    pub compute: Duration,
}

/// A tensor of a server with an optimizer.
#[derive(Debug)]
struct Parameter {
    weights: Vec<f32>,
    /// The weights that the workers have.
    theirs: Vec<f32>,
    moments: Moments,
}

/// A parameter server for one job.
#[derive(Debug)]
pub struct Server {
    link: Link,
    updates: Option<Updates>,
    /// What its sums lost, which it adds to the next ones.
    residuals: Residuals,
    parameters: BTreeMap<String, Parameter>,
    served: Served,
}

impl Server {
    /// At rank 0 of a link with [`Options::served`](crate::Options): sums gradients, or steps with their means.
    ///
    /// # Panics
    /// The link is another one.
    #[must_use]
    pub fn new(link: Link, updates: Option<Updates>) -> Self {
        assert!(link.is_served() && link.rank() == 0, "a server is rank 0 of a link with a server");
        Self {
            link,
            updates,
            residuals: Residuals::new(),
            parameters: BTreeMap::new(),
            served: Served::default(),
        }
    }

    /// Serves until all workers have left.
    ///
    /// # Errors
    /// What all ranks are told: a worker is gone or silent, or they disagree with each other or with this server.
    pub fn run(mut self) -> Result<Served, LinkError> {
        while let Some(asked) = self.link.asked()? {
            let done = match Request::read(&asked) {
                Ok(request) => self.serve(&request),
                Err(why) => Err(self.refuse(&format!("{why}: do all run the same version?"))),
            };
            match done {
                Ok(()) => {}
                Err(failed @ (LinkError::Failed(_) | LinkError::Closed(_))) => return Err(failed),
                // Nothing was exchanged, and the workers wait.
                Err(error) => return Err(self.refuse(&error.to_string())),
            }
        }
        self.link.close();
        Ok(self.served)
    }

    fn refuse(&mut self, why: &str) -> LinkError {
        self.link.refuse(format!("the server cannot do what rank 1 asks: {why}"))
    }

    fn serve(&mut self, request: &Request) -> Result<(), LinkError> {
        let method: Method = request.plan.parse()?;
        let tensors = request.tensors.iter();
        let layout = Layout::new(tensors.clone().map(|(name, values, _)| (name.as_str(), *values)))?;
        let rows: Vec<usize> = tensors.map(|(_, _, rows)| *rows).collect();
        let round = Round { method: &method, layout: &layout, rows: &rows, compare: request.compare };
        let mut buffer = vec![0.0; layout.values()];
        let report = match (request.task, self.updates) {
            (Task::Sum, None) => round.run(&mut self.link, &mut buffer, &mut self.residuals)?,
            (Task::Begin, Some(updates)) => return self.begin(&round, updates.returns, &mut buffer),
            (Task::Step, Some(updates)) => self.step(&round, &updates, &mut buffer)?,
            (Task::Sum, Some(_)) => {
                return Err(self.refuse(
                    "it wants sums of gradients, and this server has an optimizer; give the ranks a gradwire.ServedOptimizer, \
                     or start the server without --optimizer",
                ));
            }
            (Task::Begin | Task::Step, None) => {
                return Err(self.refuse(
                    "it wants weights, and this server has no optimizer; start the server with --optimizer, or give the ranks one of \
                     PyTorch's",
                ));
            }
        };
        self.served.exchanges += 1;
        self.served.values += layout.values() as u64;
        self.served.sent_bytes += report.traffic.sent_bytes;
        self.served.time += report.time;
        self.served.compute += report.compute;
        Ok(())
    }

    /// Takes the weights of rank 1 for its own.
    fn begin(&mut self, round: &Round, returns: Returns, buffer: &mut [f32]) -> Result<(), LinkError> {
        self.link.exchange(buffer, round.layout, &CollectivePlan::exact(), &mut Residuals::new())?;
        for (name, range) in round.layout.tensors() {
            let weights = buffer[range.clone()].to_vec();
            let parameter = Parameter { theirs: weights.clone(), weights, moments: Moments::default() };
            self.parameters.insert(name.clone(), parameter);
        }
        let mut said = [0.0; SAID];
        said.iter_mut().zip(returns.to_string().bytes()).for_each(|(to, byte)| *to = f32::from(byte));
        self.link.pull(&mut said, &Layout::new([("returns", SAID)])?, &GraphPlan::exact())?;
        Ok(())
    }

    /// Sums gradients, steps with their mean, and answers with what that made of the weights.
    fn step(&mut self, round: &Round, updates: &Updates, buffer: &mut [f32]) -> Result<Report, LinkError> {
        let start = Instant::now();
        let layout = round.layout;
        for (name, range) in layout.tensors() {
            if self.parameters.get(name).is_none_or(|parameter| parameter.weights.len() != range.len()) {
                return Err(self.refuse(&format!(
                    "tensor '{name}' has {} values, and the server was given no such weights; give the ServedOptimizer all \
                     parameters that DDP has",
                    range.len()
                )));
            }
        }
        let first = self.link.push(buffer, layout, round.method.stepped()?, &mut Residuals::new())?;
        let workers = (self.link.ranks() - 1) as f32;
        for (name, range) in layout.tensors() {
            let values = &mut buffer[range.clone()];
            if !all_finite(values) {
                return Err(self.refuse(&format!(
                    "the gradient of tensor '{name}' is not finite, and would be in the weights for ever; start again from a checkpoint, \
                     with a lower learning rate"
                )));
            }
            values.iter_mut().for_each(|value| *value /= workers);
            let parameter = self.parameters.get_mut(name).expect("just seen");
            updates.optimizer.step(&mut parameter.moments, &mut parameter.weights, values);
            match updates.returns {
                Returns::Weights => values.copy_from_slice(&parameter.weights),
                Returns::Deltas(_) => {
                    let pairs = parameter.weights.iter().zip(&parameter.theirs);
                    values.iter_mut().zip(pairs).for_each(|(value, (mine, theirs))| *value = mine - theirs);
                }
            }
        }
        let second = self.link.pull(buffer, layout, &updates.returns.plan())?;
        if let Returns::Deltas(_) = updates.returns {
            for (name, range) in layout.tensors() {
                let parameter = self.parameters.get_mut(name).expect("just seen");
                let theirs = parameter.theirs.iter_mut().zip(&buffer[range.clone()]);
                theirs.for_each(|(weight, delta)| *weight += delta);
            }
        }
        round.check(&mut self.link, buffer)?;
        Ok(first.then(second).finish(start))
    }
}
