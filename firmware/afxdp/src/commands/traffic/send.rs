//! The sending end.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::baseline::{busy_seconds, grown};
use super::protocol::{Answer, Arrived, Control, Plan, Sent, VERSION};
use super::report::TestReport;
use super::shims::{OnTheWire, answering, bound_for};
use super::sockets::{connect_tagged, with_port};
use super::values::Values;
use super::{DEFAULT_BOUND, SendArgs, TrafficError};
use crate::telemetry::Snapshot;

/// Bytes of one call, at most.
const PIECE: usize = 1 << 18;
/// The time to send if nothing is said.
const SECONDS: Duration = Duration::from_secs(5);

/// The amount that is sent, over all connections.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    Bytes(u64),
    For(Duration),
}

/// The limit of a connection.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Bytes(u64),
    Until(Instant),
}

/// One stream of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// The type of service of its connections.
    pub(super) tos: u8,
    /// No error may exceed it; no bit may change if there is none.
    pub(super) bound: Option<f64>,
    pub(super) amount: Amount,
    /// Whether another stream follows.
    pub(super) more: bool,
}

/// A sender that has a receiver.
#[derive(Debug)]
pub(super) struct Session<'a> {
    args: &'a SendArgs,
    values: Values,
    /// The bound of tagged connections.
    pub(super) bound: Option<f64>,
    peer: SocketAddr,
    control: Control,
}

impl<'a> Session<'a> {
    pub(super) fn open(args: &'a SendArgs) -> Result<Self, TrafficError> {
        let values = match &args.values {
            Some(file) => Values::of_file(file)?,
            None => Values::generated(args.seed),
        };
        let bound = match args.bound {
            _ if args.exact => None,
            Some(bound) => Some(bound),
            None => {
                let shims = answering(&args.run_dir, args.timeout);
                Some(bound_for(&shims, args.tos).unwrap_or(DEFAULT_BOUND))
            }
        };
        let stream = connect(args)?;
        let peer = stream.peer_addr().map_err(TrafficError::talk("ask for the peer's address"))?;
        let control = Control::new(stream, args.timeout)
            .map_err(TrafficError::talk("set up the control connection"))?;
        Ok(Self { args, values, bound, peer, control })
    }

    /// The amount that the arguments ask for.
    pub(super) fn amount(&self) -> Amount {
        match self.args.bytes {
            Some(bytes) => Amount::Bytes(bytes),
            None => Amount::For(self.args.seconds.unwrap_or(SECONDS)),
        }
    }

    /// Sends a stream, and asks the shims afterwards.
    pub(super) fn send(&mut self, stream: Stream) -> Result<Sending, TrafficError> {
        let Self { args, values, peer, control, .. } = self;
        let Stream { tos, bound, amount, more } = stream;
        let file_bytes = args.values.is_some().then(|| values.bytes().len() as u64);
        let (seed, connections) = (args.seed, args.connections);
        let plan = Plan { gradwire_test: VERSION, seed, connections, tos, bound, file_bytes, more };
        let wait = |error| TrafficError::talk("wait for the receiver")(error);
        control.wait_at_most(args.timeout).map_err(wait)?;
        let to = with_port(*peer, introduce(control, &plan, values)?);
        let cpu = busy_seconds();
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = connect_tagged(to, tos, args.timeout).map_err(|source| TrafficError::Tagged {
                to,
                tos,
                source,
            })?;
            match receive(control)? {
                Answer::Accepted => streams.push(stream),
                answer => return Err(TrafficError::unexpected(&answer)),
            }
        }
        let ends = streams.iter().filter_map(|stream| Some((stream.local_addr().ok()?, to)));
        let ends = ends.collect::<Vec<_>>();
        let sent = match send_all(amount, values, streams) {
            Ok(sent) => sent,
            // The receiver knows better why it ended a connection.
            Err(error) => return Err(reason(control).unwrap_or(error)),
        };
        control.send(&Sent(sent)).map_err(TrafficError::talk("tell the receiver how much was sent"))?;
        let arrived = result(control, args.timeout)?;
        let cpu_here = grown(cpu, busy_seconds());
        // Asked now: the last bytes have left.
        let shims = answering(&args.run_dir, args.timeout);
        let report = TestReport::new(to.to_string(), &plan, &arrived, OnTheWire::of(&shims, &ends));
        Ok(Sending { report, shims, cpu_here, cpu_there: arrived.cpu_seconds })
    }
}

/// A stream that has arrived.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) report: TestReport,
    /// The snapshots of this machine's shims after it.
    pub(super) shims: Vec<Snapshot>,
    /// Seconds that the processors worked, on whatever it was; none if it cannot be read.
    pub(super) cpu_here: Option<f64>,
    pub(super) cpu_there: Option<f64>,
}

/// Does a test.
pub(super) fn send(args: &SendArgs) -> Result<TestReport, TrafficError> {
    let mut session = Session::open(args)?;
    let (bound, amount) = (session.bound, session.amount());
    Ok(session.send(Stream { tos: args.tos, bound, amount, more: false })?.report)
}

fn connect(args: &SendArgs) -> Result<TcpStream, TrafficError> {
    let to = format!("{} port {}", args.address, args.port);
    let addresses = (args.address.trim_start_matches('[').trim_end_matches(']'), args.port)
        .to_socket_addrs()
        .map_err(|source| TrafficError::Name { name: args.address.clone(), source })?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(&address, args.timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(TrafficError::Connect { to, source: last })
}

/// Says what will be sent; the port for it.
fn introduce(control: &mut Control, plan: &Plan, values: &Values) -> Result<u16, TrafficError> {
    let answered = control.send(plan).and_then(|()| match plan.file_bytes {
        Some(_) => control.stream().write_all(values.bytes()),
        None => Ok(()),
    });
    answered.map_err(TrafficError::talk("tell the receiver what will be sent"))?;
    match receive(control)? {
        Answer::Port(port) => Ok(port),
        answer => Err(TrafficError::unexpected(&answer)),
    }
}

fn receive(control: &mut Control) -> Result<Answer, TrafficError> {
    match control.receive().map_err(TrafficError::talk("receive from the receiver"))? {
        Answer::Failed(reason) => Err(TrafficError::Failed { reason }),
        answer => Ok(answer),
    }
}

/// Why the receiver gave up, if it says so.
fn reason(control: &mut Control) -> Option<TrafficError> {
    loop {
        match receive(control) {
            Err(error @ TrafficError::Failed { .. }) => return Some(error),
            Ok(Answer::Received(_)) => {}
            _ => return None,
        }
    }
}

/// Sends on all connections at once; how many bytes on each.
fn send_all(amount: Amount, values: &Values, streams: Vec<TcpStream>) -> Result<Vec<u64>, TrafficError> {
    let start = Instant::now();
    let count = streams.len() as u64;
    let limit = |number: u64| match amount {
        // In whole values, the rest on the first.
        Amount::Bytes(bytes) => {
            let each = bytes / 4 / count;
            Limit::Bytes(4 * (each + if number == 0 { bytes / 4 - each * count } else { 0 }))
        }
        Amount::For(time) => Limit::Until(start + time),
    };
    thread::scope(|scope| {
        let threads = streams.into_iter().enumerate().map(|(number, stream)| {
            let limit = limit(number as u64);
            scope.spawn(move || send_one(stream, values, number, limit))
        });
        let threads = threads.collect::<Vec<_>>();
        let results = threads.into_iter().enumerate().map(|(connection, thread)| {
            let sent = thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            sent.map_err(|source| TrafficError::Sending { connection, source })
        });
        results.collect()
    })
}

/// Whole values only, over and over from where this connection starts.
fn send_one(mut stream: TcpStream, values: &Values, number: usize, limit: Limit) -> io::Result<u64> {
    let bytes = values.bytes();
    let (mut at, mut sent) = (values.start(number), 0);
    loop {
        let left = match limit {
            Limit::Bytes(bytes) => bytes - sent,
            // A value that has begun is ended.
            // At least one piece: a test of nothing says nothing.
            Limit::Until(end) if sent > 0 && Instant::now() >= end => sent.wrapping_neg() % 4,
            Limit::Until(_) => PIECE as u64,
        };
        if left == 0 {
            break;
        }
        let len = (bytes.len() - at).min(PIECE).min(usize::try_from(left).unwrap_or(PIECE));
        match stream.write(&bytes[at..at + len]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => {
                sent += len as u64;
                at = (at + len) % bytes.len();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// Waits until the receiver has all: it says every second how much it has.
fn result(control: &mut Control, patience: Duration) -> Result<Arrived, TrafficError> {
    let wait = patience + Duration::from_secs(5);
    control.wait_at_most(wait).map_err(TrafficError::talk("wait for the receiver"))?;
    loop {
        match receive(control)? {
            Answer::Received(_) => {}
            Answer::Result(arrived) => return Ok(arrived),
            answer => return Err(TrafficError::unexpected(&answer)),
        }
    }
}
