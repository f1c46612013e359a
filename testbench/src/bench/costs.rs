//! Measures what sending, encoding and decoding take on this machine or link, for the planner.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Instant;

use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire_codecs::{Chosen, Codec};
use gradwire_collectives::Wire;
use gradwire_simulator::planner::cost_profile::CodecCosts;
use gradwire_simulator::planner::curve::Curve;

use super::floats;
use crate::error::Error;
use crate::input::recordings::Recording;

/// Runs of each measurement; its median counts.
const RUNS: usize = 9;
/// Bytes sent: 1 KiB to 16 MiB.
const SENT: [usize; 8] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];
/// Bytes encoded: 4 KiB to 4 MiB.
const ENCODED: [usize; 6] = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];

/// Steps that [`send`] reports, if it `sends`, and [`host`] and [`wire`] for so many `codecs`.
#[must_use]
pub fn steps(sends: bool, codecs: usize) -> u64 {
    (usize::from(sends) * SENT.len() + codecs * ENCODED.len()) as u64
}

/// One way from values to bytes and back, to measure.
trait Coder {
    /// Encodes afresh, as a first message, and returns the bytes and how long it took.
    fn encode(&self, values: &[u8]) -> Result<(Vec<u8>, f64), Error>;
    /// Restores so many bytes of values from the message, and returns how long it took.
    fn decode(&self, message: &[u8], values: usize) -> Result<(Vec<u8>, f64), Error>;
}

/// Zeros in memory that is there: its first use would count as the codec's time.
fn zeros<T: Copy + Default>(touched: T, len: usize) -> Vec<T> {
    let mut zeros = vec![touched; len];
    black_box(&mut zeros[..]).fill(T::default());
    zeros
}

struct OfWire(Profile);

impl OfWire {
    fn timed(result: Result<usize, impl std::fmt::Display>, start: Instant) -> Result<(usize, f64), Error> {
        let time = start.elapsed().as_secs_f64();
        result.map(|len| (len, time)).map_err(|error| Error::Usage(error.to_string()))
    }
}

impl Coder for OfWire {
    fn encode(&self, values: &[u8]) -> Result<(Vec<u8>, f64), Error> {
        let mut message = zeros(1, self.0.max_encoded_len(values.len()));
        let start = Instant::now();
        let (len, time) = Self::timed(Kernel::detect().encode(values, &mut message, self.0), start)?;
        message.truncate(len);
        Ok((message, time))
    }

    fn decode(&self, message: &[u8], values: usize) -> Result<(Vec<u8>, f64), Error> {
        let mut restored = zeros(1, values);
        let start = Instant::now();
        let (_, time) = Self::timed(Kernel::detect().decode(message, &mut restored, self.0), start)?;
        Ok((restored, time))
    }
}

struct OfHost(Chosen);

impl Coder for OfHost {
    fn encode(&self, values: &[u8]) -> Result<(Vec<u8>, f64), Error> {
        let gradient = floats(values);
        let mut acc = zeros(1.0, gradient.len());
        let mut state = zeros(1.0, self.0.state_len(gradient.len()));
        let mut message = zeros(1, self.0.bound(gradient.len()));
        self.0.give(&gradient, &mut acc, &mut state);
        let start = Instant::now();
        let len = self.0.encode(black_box(&mut acc), &mut state, 1, &mut message);
        let time = start.elapsed().as_secs_f64();
        message.truncate(len);
        Ok((message, time))
    }

    fn decode(&self, message: &[u8], values: usize) -> Result<(Vec<u8>, f64), Error> {
        let mut sum = zeros(1.0, values / 4);
        let start = Instant::now();
        let merged = self.0.merge(black_box(message), &mut sum);
        let time = start.elapsed().as_secs_f64();
        merged.map_err(|error| Error::Usage(format!("{}: {error}", self.0)))?;
        Ok((sum.iter().flat_map(|value| value.to_le_bytes()).collect(), time))
    }
}

/// Measures a host codec on `gradients`, and calls `step` after each size.
///
/// # Errors
/// There are no values.
pub fn host(gradients: &[Recording], codec: Chosen, step: impl Fn()) -> Result<CodecCosts, Error> {
    costs(codec.to_string(), None, gradients, &OfHost(codec), step)
}

/// Measures this machine's fastest kernel of the dataplane's codec `wire` with a bound of
/// 2^-`bound` on `gradients`, and calls `step` after each size.
///
/// # Errors
/// The bound is not one, there are no values, or the codec refuses them.
pub fn wire(gradients: &[Recording], codec: u8, bound: u8, step: impl Fn()) -> Result<CodecCosts, Error> {
    let wire = Wire::new(codec, bound.into(), 0);
    let wire = wire.ok_or_else(|| Error::Usage(format!("wire:{codec}:{bound}: expected {}", Wire::USAGE)))?;
    costs(wire.to_string(), Some(bound), gradients, &OfWire(wire.profile()), step)
}

/// The ratio and what is lost, on each gradient; and times on the first values of all of them,
/// repeated as needed.
fn costs(
    name: String,
    bound: Option<u8>,
    gradients: &[Recording],
    coder: &dyn Coder,
    step: impl Fn(),
) -> Result<CodecCosts, Error> {
    let values: Vec<u8> = gradients.iter().flat_map(|gradient| &gradient.values).copied().collect();
    if values.is_empty() {
        return Err(Error::Usage("nothing to measure a codec on".into()));
    }
    let (mut bytes, mut lost) = (0, 0.0);
    for gradient in gradients {
        let (message, _) = coder.encode(&gradient.values)?;
        let (restored, _) = coder.decode(&message, gradient.values.len())?;
        bytes += message.len();
        lost += part_lost(&floats(&gradient.values), &floats(&restored)) / gradients.len() as f64;
    }
    let (mut encode, mut decode) = (Vec::new(), Vec::new());
    for bytes in ENCODED {
        let raw: Vec<u8> = values.iter().copied().cycle().take(bytes).collect();
        let (message, _) = coder.encode(&raw)?;
        encode.push((bytes as f64, median(|| Ok(coder.encode(&raw)?.1))?));
        let time = median(|| Ok(coder.decode(&message, bytes)?.1))?;
        // A few codecs make one message of several sizes.
        decode.retain(|point: &(f64, f64)| point.0 < message.len() as f64);
        decode.push((message.len() as f64, time));
        step();
    }
    if let &[(bytes, time)] = &decode[..] {
        decode.push((bytes + 1.0, time));
    }
    let ratio = values.len() as f64 / bytes as f64;
    Ok(CodecCosts { name, bound, lost, ratio, encode: curve(encode)?, decode: curve(decode)? })
}

/// The norm of what is missing, over the gradient's; 0 of a gradient of zeros.
fn part_lost(gradient: &[f32], restored: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let all = squares(&mut gradient.iter().map(|&value| f64::from(value)));
    let pairs = gradient.iter().zip(restored);
    let lost = squares(&mut pairs.map(|(&value, &got)| f64::from(value) - f64::from(got)));
    if all > 0.0 { (lost / all).sqrt() } else { 0.0 }
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

/// The median of the times of some runs.
fn median(mut run: impl FnMut() -> Result<f64, Error>) -> Result<f64, Error> {
    let mut times = (0..RUNS).map(|_| run()).collect::<Result<Vec<f64>, _>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}
