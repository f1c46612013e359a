//! `gradwire._native`: links, plans and residuals for the Python package `gradwire`.
//!
//! `host/python/python/gradwire/_state.py` is what trainers use. Everything that waits gives up
//! Python's lock meanwhile.

// A program of tests would need libpython, and there is nothing to test in it.
#![cfg(not(test))]

mod coder;
mod errors;
mod memory;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradwire_codecs::Registry;
use gradwire_collectives::{
    CollectivePlan, Link, LinkError, Method, Optimizer, Options, PlanError, Residuals, Returns, Round, Rule,
    Token, Updates,
};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::coder::Coder;
use crate::errors::invalid;
use crate::memory::Tensor;

create_exception!(
    gradwire,
    Error,
    PyRuntimeError,
    "The ranks of a job cannot exchange gradients.\n\n`reporter` is the rank that saw why, `cause` what it saw; both are None if \
     nothing was exchanged yet, and `reporter` if a server saw it."
);

/// With a server, a rank of the link is one more than in the process group: the server is rank 0.
fn error(py: Python<'_>, error: &LinkError, served: bool) -> PyErr {
    let failure = match error {
        LinkError::Plan(_) | LinkError::Layout(_) | LinkError::Residuals(_) | LinkError::Buffer { .. } => {
            return invalid(error);
        }
        LinkError::Failed(failure) | LinkError::Closed(Some(failure)) => Some(failure),
        _ => None,
    };
    let who =
        if served { " (rank 0 is the server, and rank R of the process group is rank R + 1)" } else { "" };
    let raised = Error::new_err(format!("{error}{who}"));
    let value = raised.value(py);
    let attributes = value
        .setattr("reporter", failure.and_then(|failure| failure.reporter.checked_sub(usize::from(served))))
        .and_then(|()| value.setattr("cause", failure.map(|failure| failure.cause.clone())));
    attributes.err().unwrap_or(raised)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plan: what `State(plan=...)` takes, read once.
#[pyclass(frozen, module = "gradwire")]
struct Plan(Method);

#[pymethods]
impl Plan {
    /// Reads the short form, such as "low-rank:8", or the file FILE of "@FILE".
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        match text.strip_prefix('@') {
            Some(file) => Self::load(file.into()),
            None => text.parse().map(Self).map_err(invalid),
        }
    }

    /// Reads a file of TOML, with a row for each kind of tensor (docs/collectives.md).
    #[staticmethod]
    fn load(path: std::path::PathBuf) -> PyResult<Self> {
        match CollectivePlan::load(&path, Registry::BUILT_IN) {
            Ok(plan) => Ok(Self(Method::Plan(plan))),
            Err(error @ PlanError::Unreadable { .. }) => Err(PyOSError::new_err(error.to_string())),
            Err(error) => Err(invalid(error)),
        }
    }

    /// The ranks of a group, between which the network compresses what it can, if any.
    #[getter]
    fn tagged(&self) -> Option<usize> {
        self.0.tagged()
    }

    /// Raises ValueError if a server cannot sum what it sends.
    fn check_served(&self) -> PyResult<()> {
        self.0.check_served().map_err(invalid)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Plan({:?})", self.0.to_string())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }
}

/// The tensors of a bucket: name, values, rows as a matrix.
#[pyclass(frozen, module = "gradwire")]
struct Layout {
    layout: gradwire_collectives::Layout,
    rows: Vec<usize>,
}

#[pymethods]
impl Layout {
    #[new]
    fn new(tensors: Vec<(String, usize, usize)>) -> PyResult<Self> {
        let rows = tensors.iter().map(|tensor| tensor.2).collect();
        let tensors = tensors.into_iter().map(|(name, values, _)| (name, values));
        Ok(Self { layout: gradwire_collectives::Layout::new(tensors).map_err(invalid)?, rows })
    }
}

/// The longest that ranks which were there a moment ago may take to connect. A server, too, has it
/// from when the first of them is there.
const OPENING: Duration = Duration::from_secs(30);

/// A rank's open port.
#[pyclass(frozen, module = "gradwire")]
struct Listening {
    listening: Mutex<Option<gradwire_collectives::Listening>>,
    served: bool,
}

#[pymethods]
impl Listening {
    /// Listens at all addresses of the family that `root` has, at a port that the system chooses
    /// if it is 0. `root` is rank 0's IP address; if the job is `served`, rank 0 is a server. With
    /// `tls`, connections are encrypted; those of messages have so many TCP `streams`. With
    /// `relay`, all others connect to rank 0 alone.
    #[new]
    #[pyo3(signature = (token, timeout_s, tagged, root, served, tls = false, streams = 1, relay = false, port = 0))]
    #[expect(clippy::too_many_arguments, reason = "called by a link, which has all of these")]
    fn new(
        py: Python<'_>,
        token: &str,
        timeout_s: f64,
        tagged: Option<NonZeroUsize>,
        root: IpAddr,
        served: bool,
        tls: bool,
        streams: usize,
        relay: bool,
        port: u16,
    ) -> PyResult<Self> {
        let tagged = tagged.map(NonZeroUsize::get);
        let options = Options { tagged, served, tls, streams, relay, ..options(token, timeout_s)? };
        let any = match root {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        gradwire_collectives::Listening::bind((any, port).into(), options)
            .map(|listening| Self { listening: Mutex::new(Some(listening)), served })
            .map_err(|failed| error(py, &failed, served))
    }

    /// The port.
    #[getter]
    fn port(&self, py: Python<'_>) -> PyResult<Option<u16>> {
        let port = lock(&self.listening).as_ref().map(|listening| listening.address().map(|at| at.port()));
        port.transpose().map_err(|failed| error(py, &failed, self.served))
    }

    /// Connects to all ranks; rank 0 listens at `root` and `port`.
    fn join(&self, py: Python<'_>, rank: usize, ranks: usize, root: IpAddr, port: u16) -> PyResult<Channel> {
        let root = SocketAddr::from((root, port));
        let listening =
            lock(&self.listening).take().ok_or_else(|| Error::new_err("this port was used before"))?;
        let link = py
            .detach(|| listening.join(rank, ranks, root))
            .map_err(|failed| error(py, &failed, self.served))?;
        let workers = link.workers();
        let link = Mutex::new(Some(link));
        Ok(Channel {
            link,
            residuals: Mutex::default(),
            workers,
            served: self.served,
            returns: Mutex::default(),
            process: std::process::id(),
        })
    }
}

/// A worker's connections to all other ranks, and its residual.
#[pyclass(frozen, module = "gradwire")]
struct Channel {
    link: Mutex<Option<Link>>,
    residuals: Mutex<Residuals>,
    /// Ranks with a gradient.
    workers: usize,
    served: bool,
    /// The server's answer, if it has an optimizer that has begun.
    returns: Mutex<Option<Returns>>,
    process: u32,
}

#[pymethods]
impl Channel {
    /// Replaces the tensor's values by their mean over all workers, and returns seconds, seconds of
    /// computing, bytes and messages sent.
    ///
    /// Nobody may touch the tensor meanwhile. With `compare`, ranks make sure that all got the same
    /// bits. After `begin`, the values become what the server's optimizer returns. With `scale`,
    /// values are so many times the gradient, and so is their mean; what is exchanged and of the
    /// residual is the gradient's. Last comes whether all values of the mean are finite, which is
    /// looked at with `scale` only.
    #[pyo3(signature = (tensor, layout, plan, compare, scale = None))]
    fn exchange(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        layout: &Layout,
        plan: &Plan,
        compare: bool,
        scale: Option<f64>,
    ) -> PyResult<(f64, f64, u64, u64, bool)> {
        let mut tensor = Tensor::new(tensor)?;
        let run = || {
            let mut link = lock(&self.link);
            let link = link.as_mut().ok_or(LinkError::Closed(None))?;
            let (values, mut residuals) = (tensor.values(), lock(&self.residuals));
            let round = Round { method: &plan.0, layout: &layout.layout, rows: &layout.rows, compare };
            let (report, finite) = match (*lock(&self.returns), scale) {
                (Some(returns), _) => (round.step(link, values, returns, &mut residuals)?, true),
                (None, None) => (round.mean(link, values, &mut residuals)?, true),
                (None, Some(scale)) => round.mean_of_scaled(link, values, scale, &mut residuals)?,
            };
            let (time, compute) = (report.time.as_secs_f64(), report.compute.as_secs_f64());
            Ok((time, compute, report.traffic.sent_bytes, report.traffic.sent_messages, finite))
        };
        py.detach(run).map_err(|failed| error(py, &failed, self.served))
    }

    /// Replaces the tensor's values by their sums over all workers, as `f32`. The residuals stay as
    /// they are.
    fn sum(&self, py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut tensor = Tensor::new(tensor)?;
        let run = || {
            let mut link = lock(&self.link);
            let link = link.as_mut().ok_or(LinkError::Closed(None))?;
            let values = tensor.values();
            // No parameter has such a name, and a server keeps things by names, too.
            let layout = gradwire_collectives::Layout::new([("..", values.len())])?;
            let round = Round { method: &"f32".parse()?, layout: &layout, rows: &[1], compare: false };
            round.sum(link, values, &mut Residuals::new())
        };
        py.detach(run).map(drop).map_err(|failed| error(py, &failed, self.served))
    }

    /// Gives rank 0's weights to the server's optimizer and to all ranks; from now on `exchange`
    /// steps with the gradients. Does the server return weights, or what to add to them?
    fn begin(
        &self,
        py: Python<'_>,
        weights: &Bound<'_, PyAny>,
        layout: &Layout,
        plan: &Plan,
    ) -> PyResult<bool> {
        let mut weights = Tensor::new(weights)?;
        let run = || {
            let mut link = lock(&self.link);
            let link = link.as_mut().ok_or(LinkError::Closed(None))?;
            let round = Round { method: &plan.0, layout: &layout.layout, rows: &layout.rows, compare: false };
            let returns = round.begin(link, weights.values())?;
            *lock(&self.returns) = Some(returns);
            Ok(returns == Returns::Weights)
        };
        py.detach(run).map_err(|failed| error(py, &failed, self.served))
    }

    /// Remembers the residuals of now, for `undo`.
    fn mark(&self, py: Python<'_>) {
        py.detach(|| lock(&self.residuals).mark());
    }

    /// Restores the residuals of the last `mark`.
    fn undo(&self, py: Python<'_>) {
        py.detach(|| lock(&self.residuals).undo());
    }

    /// The residuals, as bytes.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let saved = py.detach(|| lock(&self.residuals).save());
        PyBytes::new(py, &saved)
    }

    /// Goes on with the ranks' residuals, by their ranks: as rank `me` of as many as there are now.
    fn load(&self, saved: Vec<Vec<u8>>, me: usize) -> PyResult<()> {
        let before: Result<Vec<Residuals>, _> = saved.iter().map(|saved| Residuals::load(saved)).collect();
        *lock(&self.residuals) =
            before.and_then(|before| Residuals::share(before, me, self.workers)).map_err(invalid)?;
        Ok(())
    }

    /// Goes on with one rank's own state, among as many ranks as before.
    fn resume(&self, saved: &[u8]) -> PyResult<()> {
        *lock(&self.residuals) = Residuals::load(saved).map_err(invalid)?;
        Ok(())
    }

    /// The tensors that have a residual.
    fn names(&self) -> Vec<String> {
        let residuals = lock(&self.residuals);
        let some = residuals.tensors().filter(|(_, values)| values.iter().any(|value| *value != 0.0));
        some.map(|(name, _)| name.to_owned()).collect()
    }

    /// The largest magnitude of the residuals, over all tensors.
    fn largest_residual(&self, py: Python<'_>) -> f32 {
        py.detach(|| {
            let residuals = lock(&self.residuals);
            residuals.tensors().flat_map(|(_, values)| values).fold(0.0, |most, value| value.abs().max(most))
        })
    }

    /// Leaves: closes all connections.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(lock(&self.link).take()));
    }
}

/// A parameter server's open port.
#[pyclass(frozen, module = "gradwire")]
struct Server {
    listening: Mutex<Option<gradwire_collectives::Listening>>,
    workers: usize,
    updates: Option<Updates>,
}

#[pymethods]
impl Server {
    /// Listens at this address, IP:PORT, for so many workers. `optimizer` is learning rate, weight
    /// decay, and the momentum of SGD or betas and epsilon of AdamW; `returns` what it answers.
    /// With `tls`, connections are encrypted; those of messages have so many TCP `streams`. With
    /// `relay`, workers connect to the server alone.
    #[new]
    #[pyo3(signature = (listen, workers, token, timeout_s, optimizer, returns, tls = false, streams = 1, relay = false))]
    #[expect(clippy::too_many_arguments, reason = "called by a command, which has all of these")]
    fn new(
        py: Python<'_>,
        listen: &str,
        workers: usize,
        token: &str,
        timeout_s: f64,
        optimizer: Option<(f64, f64, Vec<f64>)>,
        returns: &str,
        tls: bool,
        streams: usize,
        relay: bool,
    ) -> PyResult<Self> {
        let updates = match optimizer {
            None => None,
            Some((lr, weight_decay, numbers)) => {
                let rule = match numbers[..] {
                    [momentum] => Rule::Sgd { momentum },
                    [slow, slower, eps] => Rule::AdamW { betas: (slow, slower), eps },
                    _ => return Err(invalid("an optimizer has one number, or three")),
                };
                let returns = returns.parse().map_err(invalid)?;
                Some(Updates { optimizer: Optimizer { lr, weight_decay, rule }, returns })
            }
        };
        let at: SocketAddr = listen
            .parse()
            .map_err(|_| invalid(format!("address '{listen}': expected IP:PORT, or [IP]:PORT for IPv6")))?;
        let options = Options { served: true, tls, streams, relay, ..options(token, timeout_s)? };
        let listening = gradwire_collectives::Listening::bind(at, options);
        let listening = Mutex::new(Some(listening.map_err(|failed| error(py, &failed, true))?));
        Ok(Self { listening, workers, updates })
    }

    /// Its address.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let at = lock(&self.listening).as_ref().map(|listening| listening.address().map(|at| at.to_string()));
        at.transpose().map_err(|failed| error(py, &failed, true))
    }

    /// Serves until the workers leave: exchanges, values, bytes sent, seconds of computing.
    fn run(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, f64)> {
        let listening =
            lock(&self.listening).take().ok_or_else(|| Error::new_err("this port was used before"))?;
        let run = || {
            let root = listening.address()?;
            gradwire_collectives::Server::new(listening.join(0, self.workers + 1, root)?, self.updates).run()
        };
        let served = py.detach(run).map_err(|failed| error(py, &failed, true))?;
        Ok((served.exchanges, served.values, served.sent_bytes, served.compute.as_secs_f64()))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A forked child has the link's memory, but not its thread, for which closing would
            // wait; nor has it the thread that may have held the lock.
            std::mem::forget(self.link.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// The longest timeout: what is added to the time of day stays in range.
const YEAR_S: f64 = 366.0 * 86_400.0;

fn options(token: &str, timeout_s: f64) -> PyResult<Options> {
    let token = Token::from_hex(token).ok_or_else(|| invalid("a token has 64 hexadecimal digits"))?;
    if !(timeout_s > 0.0 && timeout_s <= YEAR_S) {
        let text = format!("timeout {timeout_s}: expected seconds, more than 0 and at most {YEAR_S}, a year");
        return Err(invalid(text));
    }
    let timeout = Duration::try_from_secs_f64(timeout_s).map_err(invalid)?;
    Ok(Options { timeout, opening: Some(OPENING), ..Options::new(token) })
}

/// A new secret for the ranks of a job.
#[pyfunction]
fn token() -> PyResult<String> {
    Ok(Token::random()?.to_hex())
}

#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<Coder>()?;
    module.add_class::<Plan>()?;
    module.add_class::<Layout>()?;
    module.add_class::<Listening>()?;
    module.add_class::<Channel>()?;
    module.add_class::<Server>()?;
    module.add_function(wrap_pyfunction!(token, module)?)
}
