//! Measures what sending, encoding and decoding take on this machine or link, for the planner.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Instant;

use gradwire::codec::{Params, Split, max_encoded_len};
use gradwire::kernels::Kernel;
use gradwire_simulator::planner::cost_profile::CodecCosts;
use gradwire_simulator::planner::curve::Curve;

use crate::error::Error;

/// Runs of each measurement; its median counts.
const RUNS: usize = 9;
/// Bytes sent: 1 KiB to 16 MiB.
const SENT: [usize; 8] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];
/// Bytes encoded: 4 KiB to 4 MiB.
const ENCODED: [usize; 6] = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];

/// Steps that [`send`] reports, if it `sends`, and [`codec`] for so many `codecs`.
#[must_use]
pub fn steps(sends: bool, codecs: usize) -> u64 {
    (usize::from(sends) * SENT.len() + codecs * ENCODED.len()) as u64
}

/// Measures this machine's fastest kernel of the codec with the dense split at a bound of
/// 2^-`bound` on `values` (little-endian `f32`s), repeated as needed, and calls `step` after each
/// size.
///
/// # Errors
/// The bound is not one, there are no values, or the codec refuses them.
pub fn codec(values: &[u8], bound: u8, step: impl Fn()) -> Result<CodecCosts, Error> {
    let refused = |error: &dyn std::fmt::Display| Error::Usage(format!("bound {bound}: {error}"));
    let params = Params::new(bound, Split::Dense, 0).map_err(|error| refused(&error))?;
    if values.is_empty() {
        return Err(Error::Usage("nothing to measure a codec on".into()));
    }
    let kernel = Kernel::detect();
    let mut all = vec![0; max_encoded_len(values.len())];
    let len = kernel.encode(values, &mut all, params).map_err(|error| refused(&error))?;
    let ratio = values.len() as f64 / len as f64;
    let (mut encode, mut decode) = (Vec::new(), Vec::new());
    for bytes in ENCODED {
        let raw: Vec<u8> = values.iter().copied().cycle().take(bytes).collect();
        let mut groups = vec![0; max_encoded_len(bytes)];
        let mut restored = vec![0; bytes];
        let len = kernel.encode(&raw, &mut groups, params).map_err(|error| refused(&error))?;
        encode.push((bytes as f64, median(|| kernel.encode(&raw, &mut groups, params).is_ok())));
        decode.push((len as f64, median(|| kernel.decode(&groups[..len], &mut restored, params).is_ok())));
        step();
    }
    Ok(CodecCosts { name: "dense".into(), bound, ratio, encode: curve(encode)?, decode: curve(decode)? })
}

/// The cost of sending: of the runs at each size the median, and how far they lie apart.
#[derive(Clone, Debug)]
pub struct Sends {
    /// The curve that counts.
    pub median: Curve,
    /// The fastest run at each size.
    pub fastest: Curve,
    /// The slowest.
    pub slowest: Curve,
}

/// Measures the time from the first byte sent to the answer that all have been received, on
/// `stream` from [`connect`]; calls `step` after each size.
///
/// # Errors
/// The connection fails.
pub fn send(mut stream: TcpStream, step: impl Fn()) -> Result<Sends, Error> {
    let broken = |error| Error::io("the other end", "reach", error);
    stream.set_nodelay(true).map_err(broken)?;
    let block = vec![0x5a_u8; SENT[SENT.len() - 1]];
    let mut points = [const { Vec::new() }; 3];
    for bytes in SENT {
        let mut once = || -> io::Result<f64> {
            let start = Instant::now();
            stream.write_all(&(bytes as u64).to_be_bytes())?;
            stream.write_all(&block[..bytes])?;
            stream.read_exact(&mut [0])?;
            Ok(start.elapsed().as_secs_f64())
        };
        let mut times = (0..RUNS).map(|_| once()).collect::<io::Result<Vec<f64>>>().map_err(broken)?;
        times.sort_by(f64::total_cmp);
        for (points, run) in points.iter_mut().zip([RUNS / 2, 0, RUNS - 1]) {
            points.push((bytes as f64, times[run]));
        }
        step();
    }
    let [median, fastest, slowest] = points.map(curve);
    Ok(Sends { median: median?, fastest: fastest?, slowest: slowest? })
}

/// The curve through measured points. More bytes never take less time; if they seem to, something
/// else ran while fewer were measured.
fn curve(mut points: Vec<(f64, f64)>) -> Result<Curve, Error> {
    for at in (1..points.len()).rev() {
        points[at - 1].1 = points[at - 1].1.min(points[at].1);
    }
    Curve::try_from(points).map_err(Error::Usage)
}

/// Connects to `peer`, which runs [`listen`], or to a thread of our own over loopback.
///
/// # Errors
/// There is no connection.
pub fn connect(peer: Option<&str>) -> Result<TcpStream, Error> {
    let to = |address: &dyn std::fmt::Display, error| Error::io(address.to_string(), "connect to", error);
    if let Some(peer) = peer {
        return TcpStream::connect(peer).map_err(|error| to(&peer, error));
    }
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| to(&"loopback", error))?;
    let address = listener.local_addr().map_err(|error| to(&"loopback", error))?;
    std::thread::spawn(move || listener.accept().and_then(|(stream, _)| answer(stream)));
    TcpStream::connect(address).map_err(|error| to(&address, error))
}

/// Waits on `address` for one [`send`] and serves it.
///
/// # Errors
/// The address cannot be listened on, or the connection fails.
pub fn listen(address: impl ToSocketAddrs + std::fmt::Display) -> Result<(), Error> {
    let name = address.to_string();
    let served = TcpListener::bind(address)
        .and_then(|listener| listener.accept())
        .and_then(|(stream, _)| answer(stream));
    served.map_err(|error| Error::io(name, "listen on", error))
}

/// Answers every message with one byte, until the other end closes.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut length = [0; 8];
    loop {
        match stream.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        let bytes = u64::from_be_bytes(length);
        if io::copy(&mut (&mut stream).take(bytes), &mut io::sink())? < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        stream.write_all(&[1])?;
    }
}

fn median(mut work: impl FnMut() -> bool) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(work());
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}
