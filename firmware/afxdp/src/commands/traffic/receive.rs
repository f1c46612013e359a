//! The receiving end: one test after the other. Whoever reaches its port may have it check traffic,
//! within limits of time and memory; it writes nothing.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::baseline::{busy_seconds, grown};
use super::protocol::{Answer, Arrived, Control, MAX_CONNECTIONS, Plan, Sent, VERSION};
use super::report::TestReport;
use super::sockets::{accept_within, listen_tagged, tag, with_port};
use super::values::{MAX_FILE, Values};
use super::verify::{StreamTally, Verifier};
use super::{ReceiveArgs, TrafficError};

/// Bytes of one call, at most.
const PIECE: usize = 1 << 18;
/// The time that a sender takes to ask its shims between two tests, beside the wait for them.
const ASK: Duration = Duration::from_secs(10);
/// The number of times that the sender hears how much has arrived.
const PROGRESS: Duration = Duration::from_secs(1);

/// The first address for senders.
#[derive(Debug)]
pub(super) struct Receiver {
    listener: TcpListener,
    /// The port of tagged connections; 0 is any.
    data_port: u16,
}

impl Receiver {
    pub(super) fn bind(args: &ReceiveArgs) -> Result<Self, TrafficError> {
        let listener = match args.address {
            Some(address) => TcpListener::bind((address, args.port)),
            // Both versions of IP, if the machine has them.
            None => TcpListener::bind((Ipv6Addr::UNSPECIFIED, args.port))
                .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, args.port))),
        };
        let at = SocketAddr::new(args.address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), args.port);
        let listener = listener.map_err(|source| TrafficError::Listen { at, source })?;
        Ok(Self { listener, data_port: args.data_port() })
    }

    /// The address where it listens.
    pub(super) fn address(&self) -> Result<SocketAddr, TrafficError> {
        self.listener.local_addr().map_err(TrafficError::talk("ask for its own address"))
    }

    /// Waits for a sender, and does its tests.
    pub(super) fn serve(&self, args: &ReceiveArgs) -> Result<Vec<TestReport>, TrafficError> {
        let (stream, peer) =
            accept_within(&self.listener, args.wait).map_err(|source| match source.kind() {
                ErrorKind::TimedOut => TrafficError::NoSender,
                _ => TrafficError::talk("accept a sender")(source),
            })?;
        let mut control = Control::new(stream, args.timeout)
            .map_err(TrafficError::talk("set up the control connection"))?;
        let mut reports = Vec::new();
        loop {
            match self.test(&mut control, peer, args.timeout) {
                Ok((report, more)) => {
                    reports.push(report);
                    if !more {
                        return Ok(reports);
                    }
                    // In between, the sender asks its shims, and may wait for one that does not
                    // answer.
                    let wait = 2 * args.timeout + ASK;
                    control.wait_at_most(wait).map_err(TrafficError::talk("wait for the next test"))?;
                }
                Err(error) => {
                    // It may have gone, and then nobody needs to be told.
                    let _ = control.send(&Answer::Failed(error.to_string()));
                    return Err(error);
                }
            }
        }
    }

    fn test(
        &self,
        control: &mut Control,
        peer: SocketAddr,
        patience: Duration,
    ) -> Result<(TestReport, bool), TrafficError> {
        let (plan, values) = agree(control)?;
        control.wait_at_most(patience).map_err(TrafficError::talk("begin a test"))?;
        let local = control.stream().local_addr().map_err(TrafficError::talk("ask for its own address"))?;
        let at = with_port(local, self.data_port);
        let listener = listen_tagged(at, plan.tos, plan.connections)
            .map_err(|source| TrafficError::Listen { at, source })?;
        let port = listener.local_addr().map_err(TrafficError::talk("ask for its own address"))?.port();
        control.send(&Answer::Port(port)).map_err(TrafficError::talk("answer the sender"))?;
        let mut streams = Vec::new();
        while streams.len() < plan.connections.into() {
            let (stream, from) = accept_within(&listener, Some(patience))
                .map_err(|source| TrafficError::NotTagged { at: with_port(local, port), source })?;
            // Anybody may connect; only the sender is meant.
            if from.ip().to_canonical() != peer.ip().to_canonical() {
                continue;
            }
            let prepared = tag(&stream, at.ip(), plan.tos)
                .and_then(|()| stream.set_read_timeout(Some(patience)))
                .and_then(|()| control.send(&Answer::Accepted));
            prepared.map_err(TrafficError::talk("take a tagged connection"))?;
            streams.push(stream);
        }
        let (start, cpu) = (Instant::now(), busy_seconds());
        let tallies = receive_all(control, streams, &values, plan.bound)?;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), grown(cpu, busy_seconds()));
        let Sent(sent) = control.receive().map_err(TrafficError::talk("receive how much was sent"))?;
        let arrived = Arrived { cpu_seconds: cpu, ..arrived(&tallies, &sent, seconds) };
        let answered = control.send(&Answer::Result(arrived.clone()));
        answered.map_err(TrafficError::talk("tell the sender the result"))?;
        Ok((TestReport::new(with_port(peer, peer.port()).to_string(), &plan, &arrived, None), plan.more))
    }
}

/// The sender's plan, and the values to compare with.
fn agree(control: &mut Control) -> Result<(Plan, Values), TrafficError> {
    let plan: Plan = control.receive().map_err(TrafficError::talk("receive what will be sent"))?;
    let refuse = |reason: String| Err(TrafficError::Failed { reason });
    if plan.gradwire_test != VERSION {
        return refuse(format!(
            "the sender speaks version {} of the test, the receiver {VERSION}: install the same gradwire-xdp on both",
            plan.gradwire_test
        ));
    }
    if !(1..=MAX_CONNECTIONS).contains(&plan.connections) {
        return refuse(format!("{} connections; 1 to {MAX_CONNECTIONS} are served", plan.connections));
    }
    let values = match plan.file_bytes {
        None => Values::generated(plan.seed),
        Some(len) if len > MAX_FILE => return refuse(format!("{len} bytes of values; {MAX_FILE} are taken")),
        Some(len) => {
            let bytes = control.bytes(len).map_err(TrafficError::talk("take the file's values"))?;
            Values::of_bytes(bytes).map_err(|reason| TrafficError::Failed { reason })?
        }
    };
    Ok((plan, values))
}

/// Verifies all connections at once, and tells the sender how far they are.
fn receive_all(
    control: &Control,
    streams: Vec<TcpStream>,
    values: &Values,
    bound: Option<f64>,
) -> Result<Vec<StreamTally>, TrafficError> {
    let received = AtomicU64::new(0);
    thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let threads = streams.into_iter().enumerate().map(|(number, stream)| {
            let (received, done) = (&received, done.clone());
            scope.spawn(move || {
                let tally = receive_one(stream, Verifier::new(values, number, bound), received);
                drop(done);
                tally
            })
        });
        let threads = threads.collect::<Vec<_>>();
        drop(done);
        // Nobody sends anything: it ends when the last thread has.
        while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(PROGRESS) {
            // A sender that is still sending does not read yet; one that has gone ends its
            // connections.
            let _ = control.send(&Answer::Received(received.load(Ordering::Relaxed)));
        }
        let results = threads.into_iter().enumerate().map(|(connection, thread)| {
            let tally = thread.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()));
            tally.map_err(|source| TrafficError::Receiving {
                connection,
                bytes: received.load(Ordering::Relaxed),
                source,
            })
        });
        results.collect()
    })
}

fn receive_one(
    mut stream: TcpStream,
    mut verifier: Verifier<'_>,
    received: &AtomicU64,
) -> io::Result<StreamTally> {
    let mut buffer = vec![0; PIECE];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(verifier.tally),
            Ok(len) => {
                verifier.take(&buffer[..len]);
                received.fetch_add(len as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// All connections together. A byte too much on one does not make up for a byte too few on another.
fn arrived(tallies: &[StreamTally], sent: &[u64], seconds: f64) -> Arrived {
    let mut sum = StreamTally::default();
    let mut missing = 0;
    for (number, tally) in tallies.iter().enumerate() {
        sum.add(tally);
        let difference = sent.get(number).copied().unwrap_or(0) as i64 - tally.bytes as i64;
        if difference.abs() > i64::abs(missing) {
            missing = difference;
        }
    }
    Arrived { tally: sum, missing, seconds, cpu_seconds: None }
}
