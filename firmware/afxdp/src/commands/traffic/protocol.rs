//! The messages of the two ends of a test on the control connection: a JSON object on each line.
//! The tagged connections carry nothing but values.
//!
//! ```text
//! sender                                   receiver
//!   Plan, and the bytes of a file ──────►
//!                                 ◄──────  Port           where tagged connections go
//!   (connects)                    ◄──────  Accepted       once for each, so that their order is known
//!   (sends values)                ◄──────  Received       every second
//!   Sent                          ──────►
//!                                 ◄──────  Result
//! ```
//!
//! If the plan says so, the next one follows.

use std::io::{self, BufRead, Read};
use std::net::TcpStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::verify::StreamTally;

/// Changes whenever the messages or the generated values do.
pub(super) const VERSION: u32 = 2;
/// The longest line.
const MAX_LINE: u64 = 16 << 10;
/// The most connections of a test.
pub(super) const MAX_CONNECTIONS: u16 = 64;

/// The data that will be sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// [`VERSION`].
    pub(super) gradwire_test: u32,
    pub(super) seed: u64,
    pub(super) connections: u16,
    /// The type of service of the tagged connections.
    pub(super) tos: u8,
    /// No error may exceed it; no bit may change if there is none.
    pub(super) bound: Option<f64>,
    /// So many bytes of a file's values follow this line; none if values are generated.
    pub(super) file_bytes: Option<u64>,
    /// Whether another plan follows on this connection, after the result.
    pub(super) more: bool,
}

/// The number of bytes that were sent on each connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sent(pub(super) Vec<u64>);

/// An answer of the receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It listens there.
    Port(u16),
    /// The next tagged connection is there.
    Accepted,
    /// So many bytes have arrived.
    Received(u64),
    /// All has arrived.
    Result(Arrived),
    /// It cannot go on.
    Failed(String),
}

/// The result of the receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Arrived {
    pub(super) tally: StreamTally,
    /// Bytes that were sent and did not arrive; those that nobody sent, if negative. Over all
    /// connections, and the largest difference of one, so that they do not cancel out.
    pub(super) missing: i64,
    /// From the first accepted connection to the last byte.
    pub(super) seconds: f64,
    /// Seconds that the receiver's processors worked meanwhile, on whatever it was; none if it
    /// cannot be read.
    pub(super) cpu_seconds: Option<f64>,
}

/// The control connection: lines both ways, each within a limit of time and length.
#[derive(Debug)]
pub(super) struct Control(io::BufReader<TcpStream>);

impl Control {
    pub(super) fn new(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        let control = Self(io::BufReader::new(stream));
        control.wait_at_most(patience)?;
        Ok(control)
    }

    /// From now on a line may take so long to come.
    pub(super) fn wait_at_most(&self, patience: Duration) -> io::Result<()> {
        self.stream().set_read_timeout(Some(patience))
    }

    pub(super) fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    pub(super) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        io::Write::write_all(&mut self.stream(), &line)
    }

    /// The next line; [`io::ErrorKind::InvalidData`] if it is none of these messages.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        if (&mut self.0).take(MAX_LINE).read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The `len` bytes behind a line.
    pub(super) fn bytes(&mut self, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.0).take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}
