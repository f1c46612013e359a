//! A link as C has it: listening, connected or closed, with its residual.
#![forbid(unsafe_code)]

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use gradwire_collectives::{
    Layout, Link, LinkError, Listening, MAX_RANKS, Method, Options, Residuals, Token,
};

use crate::Status;

/// Why a call failed, and what would be right.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Error {
    pub(crate) fn invalid(text: String) -> Self {
        Self { status: Status::Invalid, text }
    }

    fn failed(text: String) -> Self {
        Self { status: Status::Failed, text }
    }
}

impl From<LinkError> for Error {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::NotTagged { group: 1 } => Self::invalid(
                "the plan has a wire: codec, but the link no tagged connections: open it with tagged = true"
                    .into(),
            ),
            LinkError::NotTagged { .. }
            | LinkError::Plan(_)
            | LinkError::Layout(_)
            | LinkError::Residuals(_)
            | LinkError::Buffer { .. }
            | LinkError::AggregatorClient { .. }
            | LinkError::Ranks { .. } => Self::invalid(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}

/// The name of what is compressed, for rows of plans and for the residual.
const TENSOR: &str = "values";
/// The longest timeout: what is added to the time of day stays in range.
const YEAR_S: f64 = 366.0 * 86_400.0;

pub(crate) fn token() -> Result<String, Error> {
    let token = Token::random().map_err(|error| Error::failed(format!("no random numbers: {error}")))?;
    Ok(token.to_hex())
}

fn address(text: &str) -> Result<SocketAddr, Error> {
    let expected = |_| format!("address '{text}': expected IP:PORT, or [IP]:PORT for IPv6");
    text.parse().map_err(expected).map_err(Error::invalid)
}

#[derive(Debug)]
enum State {
    Listening(Listening),
    Connected(Link),
    /// It could not connect.
    Closed,
}

/// A rank's connections to all others, and its residual.
#[derive(Debug)]
pub(crate) struct Channel {
    state: State,
    residuals: Residuals,
    process: u32,
}

impl Channel {
    pub(crate) fn open(
        rank: usize,
        ranks: usize,
        root: &str,
        token: &str,
        timeout_s: f64,
        tagged: bool,
    ) -> Result<Self, Error> {
        let any: SocketAddr = match address(root)? {
            at if rank == 0 => at,
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let mut channel = Self::listen(&any.to_string(), token, timeout_s, tagged)?;
        channel.connect(rank, ranks, root)?;
        Ok(channel)
    }

    pub(crate) fn listen(at: &str, token: &str, timeout_s: f64, tagged: bool) -> Result<Self, Error> {
        let at = address(at)?;
        let token = Token::from_hex(token)
            .ok_or_else(|| Error::invalid("token: expected 64 hexadecimal digits".into()))?;
        if !(timeout_s > 0.0 && timeout_s <= YEAR_S) {
            let text = format!(
                "timeout_s is {timeout_s}: expected seconds, more than 0 and at most {YEAR_S}, a year"
            );
            return Err(Error::invalid(text));
        }
        let timeout = Duration::from_secs_f64(timeout_s);
        let state = State::Listening(Listening::bind(
            at,
            Options { timeout, tagged: tagged.then_some(1), ..Options::new(token) },
        )?);
        Ok(Self { state, residuals: Residuals::new(), process: std::process::id() })
    }

    /// A forked child has the link's memory, but not its thread.
    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    fn check_process(&self) -> Result<(), Error> {
        let text = "this process was forked from the one that opened the link: open links after forking";
        if self.is_of_this_process() { Ok(()) } else { Err(Error::invalid(text.into())) }
    }

    pub(crate) fn address(&self) -> Result<String, Error> {
        match &self.state {
            State::Listening(listening) => Ok(listening.address()?.to_string()),
            _ => Err(Error::invalid("the link listens no more: ask before gradwire_connect()".into())),
        }
    }

    pub(crate) fn connect(&mut self, rank: usize, ranks: usize, root: &str) -> Result<(), Error> {
        self.check_process()?;
        let root = address(root)?;
        if rank >= ranks || ranks > MAX_RANKS {
            return Err(LinkError::Ranks { rank, ranks }.into());
        }
        match mem::replace(&mut self.state, State::Closed) {
            State::Listening(listening) => {
                // The ranks are right, so whatever is wrong now ends the link.
                let link = listening.join(rank, ranks, root);
                self.state = State::Connected(link.map_err(|error| Error::failed(error.to_string()))?);
                Ok(())
            }
            State::Connected(link) => {
                self.state = State::Connected(link);
                Err(Error::invalid("the link is connected: connect it once".into()))
            }
            State::Closed => Err(closed()),
        }
    }

    /// The link, if it is connected, and the residual.
    fn connected(&mut self) -> Result<(&mut Link, &mut Residuals), Error> {
        self.check_process()?;
        match &mut self.state {
            State::Connected(link) => Ok((link, &mut self.residuals)),
            State::Listening(_) => {
                Err(Error::invalid("the link is not connected: call gradwire_connect() first".into()))
            }
            State::Closed => Err(closed()),
        }
    }

    pub(crate) fn all_reduce(&mut self, values: &mut [f32]) -> Result<(), Error> {
        let (link, _) = self.connected()?;
        link.all_reduce(values)?;
        Ok(())
    }

    pub(crate) fn all_reduce_comp(&mut self, values: &mut [f32], plan: &str) -> Result<(), Error> {
        let (link, residuals) = self.connected()?;
        let method: Method = plan.parse().map_err(LinkError::from)?;
        let n = values.len();
        if let Some(residual) = residuals.get(TENSOR).filter(|residual| residual.len() != n) {
            if residual.iter().any(|value| *value != 0.0) {
                return Err(Error::invalid(format!(
                    "n is {n}, and the link has a residual of {0} values: expected {0}, or a link of its own for this buffer",
                    residual.len()
                )));
            }
            residuals.forget(TENSOR);
        }
        let layout = Layout::new([(TENSOR, n)]).map_err(LinkError::from)?;
        method.exchange(link, values, &layout, &[1], residuals)?;
        Ok(())
    }
}

fn closed() -> Error {
    Error::failed("the link is closed, because it could not connect: open another one".into())
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // Closing would wait for that thread, and for locks that it may have held.
            mem::forget(mem::replace(&mut self.state, State::Closed));
        }
    }
}
