//! A parameter server: a rank without a gradient that owns all sums, and the weights if it has an
//! optimizer.
//!
//! It is rank 0 of a link whose [`Options::served`](crate::Options) is set. Before each exchange,
//! rank 1 tells it the layout and the plan; then it takes its part in the exchange, as all others
//! do. So workers need no more than each other's layout to be served, and a server needs nothing of
//! a model.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::failure::LinkError;
use crate::layout::Layout;
use crate::link::{Link, Report};
use crate::magnitude::all_finite;
use crate::method::Method;
use crate::optimizer::{Moments, Optimizer};
use crate::plan::{CollectivePlan, GraphPlan};
use crate::request::{Request, Task};
use crate::residuals::Residuals;
use crate::round::Round;
use crate::served::{MAX_RETURNS, Returns};

/// The steps of a server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Updates {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Its answer.
    pub returns: Returns,
}

/// The work of a server.
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
    /// Requests of rank 1, in their order; `None` when all others have left. It may come while an
    /// exchange is under way.
    requests: Receiver<Option<Vec<u8>>>,
    updates: Option<Updates>,
    /// The losses of its sums, which it adds to the next ones.
    residuals: Residuals,
    parameters: BTreeMap<String, Parameter>,
    served: Served,
}

impl Server {
    /// At rank 0 of a link with [`Options::served`](crate::Options): sums gradients, or steps with
    /// their means.
    ///
    /// # Panics
    /// The link is another one.
    #[must_use]
    pub fn new(mut link: Link, updates: Option<Updates>) -> Self {
        let requests = link.requests().expect("a server is rank 0 of a link with a server");
        Self {
            link,
            requests,
            updates,
            residuals: Residuals::new(),
            parameters: BTreeMap::new(),
            served: Served::default(),
        }
    }

    /// Serves until all workers have left.
    ///
    /// # Errors
    /// The failure that all ranks are told: a worker is gone or silent, or they disagree with each
    /// other or with this server.
    pub fn run(mut self) -> Result<Served, LinkError> {
        while let Some(request) = self.next_request()? {
            let done = match Request::read(&request) {
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

    /// Waits for the next request; `None` when all others have left.
    ///
    /// Between two exchanges ranks may take any time, so it waits for as long as their connections
    /// live. A rank that keeps the others waiting is named by these, within the timeout.
    fn next_request(&mut self) -> Result<Option<Vec<u8>>, LinkError> {
        self.requests.recv().map_err(|_| self.link.ended())
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
        let mut said = [0.0; MAX_RETURNS];
        said.iter_mut().zip(returns.to_string().bytes()).for_each(|(to, byte)| *to = f32::from(byte));
        self.link.pull(&mut said, &Layout::new([("returns", MAX_RETURNS)])?, &GraphPlan::exact())?;
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
