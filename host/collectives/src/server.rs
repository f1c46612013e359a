//! A parameter server: a member without a gradient that owns all sums.
//!
//! It is member 0 of a link whose [`Options::served`](crate::Options) is set. Before each exchange, member 1 tells it the layout and
//! the plan; then it takes its part in the exchange, as all others do. So workers need no more than each other's layout to be
//! served, and a server needs nothing of a model.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::LinkError;
use crate::held::Held;
use crate::layout::{Layout, checksum};
use crate::link::{Link, Report};
use crate::method::Method;

/// An exchange that all members of a job make, with or without a server.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// How.
    pub method: &'a Method,
    /// The tensors.
    pub layout: &'a Layout,
    /// By tensor: its rows as a matrix, as [`Method::exchange`] takes them.
    pub rows: &'a [usize],
    /// Make sure that all members got the same bits?
    pub compare: bool,
}

impl Round<'_> {
    /// [`Method::exchange`], at a worker or among members without a server.
    ///
    /// # Errors
    /// As there; or members got different bits; or the link has a server, and the method nothing that a server sums.
    pub fn sum(&self, link: &mut Link, buffer: &mut [f32], held: &mut Held) -> Result<Report, LinkError> {
        if link.is_served() {
            self.method.check_served()?;
            link.ask(&Request::new(self).to_toml());
        }
        self.run(link, buffer, held)
    }

    fn run(&self, link: &mut Link, buffer: &mut [f32], held: &mut Held) -> Result<Report, LinkError> {
        let report = self.method.exchange(link, buffer, self.layout, self.rows, held)?;
        if self.compare {
            link.compare(
                checksum(buffer),
                "members got different values: do all run the same version of gradwire, on sound memory?",
            )?;
        }
        Ok(report)
    }
}

/// What member 1 asks a server to do, as TOML.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    plan: String,
    compare: bool,
    /// Name, values, rows.
    tensors: Vec<(String, usize, usize)>,
}

impl Request {
    fn new(round: &Round) -> Self {
        let tensors = round.layout.tensors().iter().zip(round.rows);
        Self {
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
    /// Exchanges.
    pub exchanges: u64,
    /// Values of all of them.
    pub values: u64,
    /// Bytes sent to the workers.
    pub sent_bytes: u64,
    /// Seconds of exchanging, waiting for workers included.
    pub time: Duration,
    /// Of these, seconds of coding and summing.
    pub compute: Duration,
}

/// A parameter server for one job.
#[derive(Debug)]
pub struct Server {
    link: Link,
    /// What its answers lost, which it adds to the next ones.
    held: Held,
    served: Served,
}

impl Server {
    /// At member 0 of a link with [`Options::served`](crate::Options).
    ///
    /// # Panics
    /// The link is another one.
    #[must_use]
    pub fn new(link: Link) -> Self {
        assert!(link.is_served() && link.rank() == 0, "a server is member 0 of a link with a server");
        Self { link, held: Held::new(), served: Served::default() }
    }

    /// Serves until all workers have left.
    ///
    /// # Errors
    /// What all members are told: a worker is gone or silent, or they disagree with each other or with this server.
    pub fn run(mut self) -> Result<Served, LinkError> {
        while let Some(asked) = self.link.asked()? {
            match Request::read(&asked) {
                Ok(request) => self.answer(&request)?,
                Err(why) => {
                    let why = format!(
                        "member 1 asks the server for something unknown ({why}): do all run the same version?"
                    );
                    return Err(self.link.refuse(why));
                }
            }
        }
        self.link.close();
        Ok(self.served)
    }

    fn answer(&mut self, request: &Request) -> Result<(), LinkError> {
        match self.serve(request) {
            Ok(report) => {
                self.served.exchanges += 1;
                self.served.sent_bytes += report.traffic.sent_bytes;
                self.served.time += report.time;
                self.served.compute += report.compute;
                Ok(())
            }
            Err(failed @ (LinkError::Failed(_) | LinkError::Closed(_))) => Err(failed),
            // Nothing was exchanged, and the workers wait.
            Err(error) => Err(self.link.refuse(format!("the server cannot do what member 1 asks: {error}"))),
        }
    }

    fn serve(&mut self, request: &Request) -> Result<Report, LinkError> {
        let method: Method = request.plan.parse()?;
        let layout = Layout::new(request.tensors.iter().map(|(name, values, _)| (name.as_str(), *values)))?;
        let rows: Vec<usize> = request.tensors.iter().map(|(_, _, rows)| *rows).collect();
        let round = Round { method: &method, layout: &layout, rows: &rows, compare: request.compare };
        self.served.values += layout.values() as u64;
        round.run(&mut self.link, &mut vec![0.0; layout.values()], &mut self.held)
    }
}
