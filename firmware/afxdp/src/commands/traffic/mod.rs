//! `gradwire-xdp test`: traffic between two hosts whose every value is checked.
//!
//! An untagged control connection agrees on a seed, so both ends make the same values; the tagged
//! connections carry nothing but them. `values` makes them, `verify` compares them, `protocol` is
//! what the two ends say, `send` and `receive` are the ends, `shims` asks this machine's shims,
//! `report` says what it comes to, and `baseline` compares streams of both ways.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Subcommand};
use serde::Serialize;

use super::arguments::seconds;
use super::{CommandError, Outcome};
use crate::telemetry::control::RUN_DIR;

mod baseline;
mod protocol;
mod receive;
mod report;
mod send;
mod shims;
mod sockets;
mod values;
mod verify;

pub use values::ValuesError;

/// The port of the control connection; tagged connections go to the next one.
pub const PORT: u16 = 5280;
/// The bound of the rule that a shim has without a configuration.
const DEFAULT_BOUND: f64 = 1.0 / 1024.0;

/// Sends tagged values from host to host and checks every one of them.
///
/// One host receives, the other one sends. An untagged connection agrees on what is sent. The
/// tagged connections carry nothing but f32 values, from the SYN on. Neither end needs privileges.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  gradwire-xdp test receive                 on one host
  gradwire-xdp test send 192.0.2.20         on the other")]
pub struct TestArgs {
    /// Which end this is.
    #[command(subcommand)]
    pub end: End,
}

/// The two ends; each is documented where its arguments are.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "documentation here would take the place of that of the arguments")]
pub enum End {
    Send(SendArgs),
    Receive(ReceiveArgs),
}

/// Sends values on tagged connections, and tells what the receiver found.
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("length").args(["bytes", "seconds"])), after_help = "\
JSON: an object: {\"good\", \"values\", \"changed\", \"zeroed\", \"wrong\", \"first_wrong\", \"missing_bytes\", \"largest_error\",
\"error_of_bound\", \"norm_lost\", \"seconds\", \"gbit_per_second\", \"wire\": {\"bytes\", \"saved\", ..}, \"ratio\", ..}. \"first_wrong\"
has bits of f32. \"wire\" is null if no shim on this machine can be asked.
With --baseline: {\"good\", \"bytes\", \"rounds\", \"bridge\", \"shim\", \"ratio\", \"speed_from\", \"speed_to\", \"streams\"}. \"bridge\" and \"shim\"
have medians, and \"ratio\" the medians of each round's shim to its bridge, of {\"seconds\", \"mbit_per_second\", \"card_bytes\",
\"cpu_here\", \"cpu_there\"}, null if it cannot be read; \"streams\" has these of every stream, with \"round\", \"way\", and as \"report\"
the object above.

The baseline: in each round the same bytes go once by the bridge (untagged, and no bit may change) and once through the shim
(tagged). Who is first changes from round to round. The bytes are those of --bytes, or what the bridge takes in --seconds.
Where a shim runs, untagged frames pass its XDP program, too, as they will later: for the bridge alone, compare with
--tos 0 --exact --bytes while none runs. Bytes on the card and CPU seconds count all that the machine did meanwhile; the
card's are there if the shim can be asked (as root, in its mount namespace). `--tos 0 --baseline` sends both untagged: so
much differs by chance.

Exit codes: 0 every value is right, 1 a value is wrong or missing, or more than half of the norm is lost, 2 the arguments
or the file are wrong, 3 there was no connection, or it broke.

Examples:
  gradwire-xdp test send 192.0.2.20
  gradwire-xdp test send 192.0.2.20 --bytes 2G --connections 4 --json
  gradwire-xdp test send fd00::20 --values gradient.npy --bound 2^-8
  gradwire-xdp test send 192.0.2.20 --exact --tos 0
  gradwire-xdp test send 192.0.2.20 --baseline --rounds 5            what compression gains and costs on this path
  nsenter --net=/proc/PID/ns/net gradwire-xdp test send 192.0.2.20 --baseline     from a container, with its shim's figures")]
pub struct SendArgs {
    /// The receiving host: its address or name.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// The receiver's port; the tagged connections go to the port that it names, which is the next
    /// one.
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// The number of bytes to send in all; k, M and G are powers of 1000.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub bytes: Option<u64>,
    /// The time to send; 5 seconds if nothing is said.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// The number of connections that send at once.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(protocol::MAX_CONNECTIONS)))]
    pub connections: u16,
    /// Send the values of a file over and over: raw little-endian f32, or .npy. Otherwise values
    /// are made up that look like gradients.
    #[arg(long, value_name = "FILE")]
    pub values: Option<PathBuf>,
    /// Which values are made up.
    #[arg(long, default_value_t = 1, conflicts_with = "values")]
    pub seed: u64,
    /// The error that no value may exceed: 10 or 2^-10, or a number such as 0.001. Without it, that
    /// of the rule of this machine's shims, else 2^-10.
    #[arg(long, value_name = "BOUND", value_parser = bound)]
    pub bound: Option<f64>,
    /// No bit may change: for a path without shims, or another type of service.
    #[arg(long, conflicts_with = "bound")]
    pub exact: bool,
    /// The type of service of the connections.
    #[arg(long, value_name = "TOS", default_value = "0x28", value_parser = tos)]
    pub tos: u8,
    /// Send the same stream by the bridge (untagged) and through the shim (tagged) in turn, and
    /// print one table of what both take.
    #[arg(long)]
    pub baseline: bool,
    /// The number of times that each of the two is sent.
    #[arg(long, value_name = "COUNT", default_value_t = 3, requires = "baseline",
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// The time that anything may stand still.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub timeout: Duration,
    /// Folder of the shims' control sockets.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Receives values on tagged connections and checks every one of them, test after test.
///
/// Whoever reaches its ports may have it check traffic: run it only while you test.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
JSON: an object for each test, on a line of its own, as `gradwire-xdp test send` prints it.

Exit codes with --once: those of `gradwire-xdp test send`.

Examples:
  gradwire-xdp test receive
  gradwire-xdp test receive --once --wait 60 --json")]
pub struct ReceiveArgs {
    /// The address to listen on; all of them if there is none.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The port for senders' control connections; the tagged ones go to the next port. 0 takes any
    /// two.
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(..=i64::from(u16::MAX - 1)))]
    pub port: u16,
    /// End after one test.
    #[arg(long)]
    pub once: bool,
    /// The time to wait for a sender; without it, for ever.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub wait: Option<Duration>,
    /// The time that anything may stand still.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub timeout: Duration,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ReceiveArgs {
    const fn data_port(&self) -> u16 {
        if self.port == 0 { 0 } else { self.port + 1 }
    }
}

/// Why a test did not come to its end.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The file of `--values`.
    #[error(transparent)]
    Values(#[from] ValuesError),
    /// The name has no address.
    #[error("{name}: no address: {source}")]
    Name {
        /// The name.
        name: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// There is no control connection.
    #[error("{to}: cannot connect: {source}; {}", connect_remedy(source))]
    Connect {
        /// The destination.
        to: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is a control connection, but no tagged one: the sender's view.
    #[error(
        "{to}: the control connection works, and a connection with type of service {tos:#04x} does not: {source}; let TCP \
         port {} through, and look for a box that refuses this type of service or options on SYNs: `--tos 0` leaves both out",
        to.port()
    )]
    Tagged {
        /// The destination.
        to: SocketAddr,
        /// The type of service.
        tos: u8,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The same, as the receiver sees it.
    #[error("{at}: no tagged connection came: {}; let this port through", describe(source))]
    NotTagged {
        /// The address where it listened.
        at: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The receiver cannot listen.
    #[error("{at}: cannot listen: {source}{}", listen_remedy(source))]
    Listen {
        /// The address.
        at: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Nobody came.
    #[error("no sender came in time; on the other host: gradwire-xdp test send ADDRESS")]
    NoSender,
    /// A connection broke or stood still while values were sent.
    #[error("sending on connection {connection}: {}; see what the receiver says", describe(source))]
    Sending {
        /// Its number, from 0.
        connection: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A connection broke or stood still while values arrived.
    #[error(
        "receiving on connection {connection}, after {bytes} bytes on all of them: {}; if tagged connections stand still and \
         untagged ones (--tos 0) do not, a shim at the other end may be missing: see `resent` and `bypassed` in \
         `gradwire-xdp status` on the sending host",
        describe(source)
    )]
    Receiving {
        /// Its number, from 0.
        connection: usize,
        /// The bytes that had arrived.
        bytes: u64,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The control connection broke, or what came was no message.
    #[error("cannot {action}: {}{}", describe(source), talk_remedy(source))]
    Talk {
        /// The action that failed.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// One end says that it cannot go on.
    #[error("the test failed: {reason}")]
    Failed {
        /// Its reason.
        reason: String,
    },
}

impl TrafficError {
    fn talk(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Talk { action, source }
    }

    fn unexpected(answer: &protocol::Answer) -> Self {
        let source = io::Error::new(ErrorKind::InvalidData, format!("{answer:?} was not expected"));
        Self::Talk { action: "understand the receiver", source }
    }

    /// 2 if what was given is wrong, 3 if there was no connection.
    pub(super) const fn exit_code(&self) -> u8 {
        if matches!(self, Self::Values(_)) { 2 } else { 3 }
    }
}

/// The kernel says of a time-out that it would have to wait.
fn describe(source: &io::Error) -> String {
    match source.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            "nothing moved for as long as --timeout says".to_owned()
        }
        ErrorKind::UnexpectedEof => "the other end closed the connection".to_owned(),
        _ => source.to_string(),
    }
}

fn connect_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::ConnectionRefused => {
            "nobody listens there: on that host, gradwire-xdp test receive (with the same --port)"
        }
        ErrorKind::TimedOut => "let this port and the next one through, and see if the host answers pings",
        _ => "see if the host answers pings",
    }
}

fn listen_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::AddrInUse => {
            "; another program has it: choose another --port, of which the next is free, too"
        }
        ErrorKind::AddrNotAvailable => "; --address must be one of this host's",
        ErrorKind::PermissionDenied => "; ports below 1024 need root",
        _ => "",
    }
}

fn talk_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "; is the other end busy with another test?",
        ErrorKind::InvalidData => "; the other end must be a gradwire-xdp of the same version",
        _ => "",
    }
}

/// Does a test, and reports to `out`.
///
/// # Errors
/// There was no connection, or it broke; the output cannot be written.
pub fn run(args: &TestArgs, out: &mut impl Write) -> Result<Outcome, CommandError> {
    match &args.end {
        End::Send(args) if args.baseline => {
            let compared = baseline::compare(args)?;
            show(&compared, args.json, || compared.text(), out)?;
            Ok(Outcome::from_good(compared.good))
        }
        End::Send(args) => {
            let report = send::send(args)?;
            show(&report, args.json, || report.text(), out)?;
            Ok(Outcome::from_good(report.good))
        }
        End::Receive(args) => receive_all(args, out),
    }
}

fn receive_all(args: &ReceiveArgs, out: &mut impl Write) -> Result<Outcome, CommandError> {
    let receiver = receive::Receiver::bind(args)?;
    eprintln!("gradwire-xdp: waits for `gradwire-xdp test send` on {}", receiver.address()?);
    loop {
        let outcome = receiver.serve(args).map_err(CommandError::from).and_then(|reports| {
            for report in &reports {
                show(report, args.json, || report.text(), out)?;
            }
            Ok(Outcome::from_good(reports.iter().all(|report| report.good)))
        });
        match outcome {
            Err(error @ CommandError::Traffic(_)) if !args.once && !is_no_sender(&error) => {
                eprintln!("gradwire-xdp: {error}");
            }
            Ok(_) if !args.once => {}
            outcome => return outcome,
        }
    }
}

/// Nobody came within the time that the user gave.
const fn is_no_sender(error: &CommandError) -> bool {
    matches!(error, CommandError::Traffic(TrafficError::NoSender))
}

fn show(
    report: &impl Serialize,
    json: bool,
    text: impl FnOnce() -> String,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    if json {
        serde_json::to_writer(&mut *out, report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text().as_bytes())?;
    }
    Ok(out.flush()?)
}

/// Parses a number of bytes, `2G` for example.
fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(number) => (
            number,
            [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)]
                .iter()
                .find(|(unit, _)| text.ends_with(*unit))
                .map_or(1, |(_, factor)| *factor),
        ),
        None => (text, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| *bytes >= 256)
        .ok_or_else(|| "expected bytes, at least 256: 1000000, 500k, 20M, 2G".to_owned())
}

/// Parses a bound: an exponent, a power of two, or a number below 1.
fn bound(text: &str) -> Result<f64, String> {
    let exponent = text
        .strip_prefix("2^")
        .map(str::parse::<i32>)
        .or_else(|| Some(text.parse::<u8>().map(|b| -i32::from(b))));
    let bound = match exponent {
        Some(Ok(exponent)) => Some(2f64.powi(exponent)),
        _ => text.parse().ok(),
    };
    bound
        .filter(|bound: &f64| bound.is_normal() && *bound > 0.0)
        .ok_or_else(|| "expected a bound: 10 or 2^-10, or a number such as 0.001".to_owned())
}

/// Parses a type of service, in hexadecimal or decimal.
fn tos(text: &str) -> Result<u8, String> {
    let tos = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u8::from_str_radix(hex, 16));
    tos.ok().filter(|tos| tos & 3 == 0).ok_or_else(|| {
        "expected a type of service from 0 to 0xfc whose low two bits, which are ECN's, are 0: 0x28"
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
