//! A connection of the protocol over one TCP stream, or over several: one alone does not fill a
//! path that is long and fast, because a system keeps only so many of its bytes under way.
//!
//! One stream has the connection's bytes as they are. With several, they travel in chunks, each on
//! a stream that has room, behind a head:
//!
//! ```text
//! number (4) | length (4) | bytes
//! ```
//! Chunks are numbered from 0, and numbers little-endian. A receiver takes them in their order, and
//! leaves on its socket what is not the next: it keeps no bytes. The next chunk is never behind
//! another one that waits, because numbers rise on each stream.

use std::io::{self, IoSlice};
use std::net::{Shutdown, TcpStream};

use crate::stream::Stream;

/// The most streams of a connection: hellos have three bits for it.
pub const MAX_STREAMS: usize = 8;
const HEAD_LEN: usize = 8;
/// The most bytes of a chunk.
const MAX_CHUNK: usize = 1 << 16;

/// Streams of a connection. Calls fail as those of a socket that does not block.
pub(crate) struct Bundle {
    stripes: Vec<Stripe>,
    /// Numbers of the next chunk to send and to take.
    sends: u32,
    takes: u32,
}

struct Stripe {
    stream: Stream,
    /// A chunk that leaves, and how much of it has.
    out: Vec<u8>,
    written: usize,
    /// The head of a chunk that comes, as far as it is here.
    head: [u8; HEAD_LEN],
    at: usize,
    /// Its number, and how much of it has not been taken.
    number: u32,
    left: usize,
    /// It can read no more, and why.
    ended: Option<io::Result<()>>,
}

impl Stripe {
    /// Does the chunk that comes have to wait for others?
    fn waits(&self, takes: u32) -> bool {
        self.at == HEAD_LEN && self.number != takes
    }

    /// Reads a head as far as it is here, and fails if it is none.
    fn read_head(&mut self, takes: u32) -> io::Result<()> {
        while self.ended.is_none() && self.at < HEAD_LEN {
            match self.stream.read(&mut self.head[self.at..]) {
                Ok(0) => self.ended = Some(Ok(())),
                Ok(len) => self.at += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => self.ended = Some(Err(error)),
            }
            if self.at == HEAD_LEN {
                let [a, b, c, d, ref len @ ..] = self.head;
                self.number = u32::from_le_bytes([a, b, c, d]);
                self.left = u32::from_le_bytes(*len) as usize;
                let behind = self.number.wrapping_sub(takes) > u32::MAX / 2;
                if behind || !(1..=MAX_CHUNK).contains(&self.left) {
                    let wrong = "a chunk that no rank of this version sends";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
                }
            }
        }
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        self.written == self.out.len() && self.stream.is_flushed()
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&[IoSlice::new(&self.out[self.written..])]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.written = self.out.len();
                    }
                    return Err(error);
                }
            }
        }
        self.stream.flush()
    }
}

impl Bundle {
    /// Of at least one stream, in the order of their numbers.
    pub(crate) fn new(streams: impl IntoIterator<Item = Stream>) -> Self {
        let stripe = |stream| Stripe {
            stream,
            out: Vec::new(),
            written: 0,
            head: [0; HEAD_LEN],
            at: 0,
            number: 0,
            left: 0,
            ended: None,
        };
        Self { stripes: streams.into_iter().map(stripe).collect(), sends: 0, takes: 0 }
    }

    fn is_one(&self) -> bool {
        self.stripes.len() == 1
    }

    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.is_one() {
            return self.stripes[0].stream.read(room);
        }
        let takes = self.takes;
        let next =
            |stripe: &Stripe| stripe.at == HEAD_LEN && stripe.number == takes && stripe.ended.is_none();
        let mut found = self.stripes.iter().position(next);
        if found.is_none() {
            self.stripes.iter_mut().try_for_each(|stripe| stripe.read_head(takes))?;
            found = self.stripes.iter().position(next);
        }
        let Some(stripe) = found.map(|at| &mut self.stripes[at]) else {
            // As long as a stream may have the next one, its end, or another's, may be in order.
            let hopeless = |stripe: &Stripe| stripe.ended.is_some() || stripe.waits(takes);
            if !self.stripes.iter().all(hopeless) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let wrong = self.stripes.iter_mut().find_map(|stripe| stripe.ended.take_if(|end| end.is_err()));
            return wrong.unwrap_or(Ok(())).map(|()| 0);
        };
        let most = room.len().min(stripe.left);
        let len = stripe.stream.read(&mut room[..most])?;
        stripe.left -= len;
        if stripe.left == 0 {
            stripe.at = 0;
            self.takes = takes.wrapping_add(1);
        }
        Ok(len)
    }

    /// May `read` give bytes though no socket has any?
    pub(crate) fn has_more(&self) -> bool {
        self.stripes.iter().any(|stripe| self.may_read(stripe) && stripe.stream.has_more())
    }

    fn may_read(&self, stripe: &Stripe) -> bool {
        stripe.ended.is_none() && !stripe.waits(self.takes)
    }

    /// Takes bytes, of which some may wait here for a socket.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_one() {
            return self.stripes[0].stream.write(slices);
        }
        self.flush()?;
        // Streams with room have their turns.
        let (count, first) = (self.stripes.len(), self.sends as usize);
        let free = (first..first + count).map(|at| at % count).find(|&at| self.stripes[at].is_flushed());
        let stripe = free.map(|at| &mut self.stripes[at]).ok_or(io::ErrorKind::WouldBlock)?;
        stripe.out.clear();
        stripe.out.resize(HEAD_LEN, 0);
        for slice in slices {
            let room = HEAD_LEN + MAX_CHUNK - stripe.out.len();
            stripe.out.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let len = stripe.out.len() - HEAD_LEN;
        stripe.out[..4].copy_from_slice(&self.sends.to_le_bytes());
        stripe.out[4..HEAD_LEN].copy_from_slice(&(len as u32).to_le_bytes());
        stripe.written = 0;
        self.sends = self.sends.wrapping_add(1);
        match stripe.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(len),
        }
    }

    /// Writes what waits, as far as sockets take it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        for stripe in &mut self.stripes {
            match stripe.flush() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Has the system all that was taken?
    pub(crate) fn is_flushed(&self) -> bool {
        self.stripes.iter().all(Stripe::is_flushed)
    }

    /// Its sockets: may this be read, and does something wait to be written to it?
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (&TcpStream, bool, bool)> {
        self.stripes.iter().map(|stripe| (stripe.stream.tcp(), self.may_read(stripe), !stripe.is_flushed()))
    }

    /// Nothing more is written.
    pub(crate) fn finish(&self) {
        self.stripes.iter().for_each(|stripe| _ = stripe.stream.tcp().shutdown(Shutdown::Write));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    /// The streams of both ends.
    fn pairs(count: usize) -> [Vec<TcpStream>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = |_| {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let far = listener.accept().unwrap().0;
            [&near, &far].iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
            (near, far)
        };
        let (near, far) = (0..count).map(pair).unzip();
        [near, far]
    }

    fn bundle(sockets: Vec<TcpStream>) -> Bundle {
        Bundle::new(sockets.into_iter().map(|socket| Stream::new(socket, None)))
    }

    /// As many bytes as sockets hold, and more, arrive in their order, in both directions.
    #[test]
    fn bytes_arrive_in_order_whatever_the_streams_hold() {
        for count in 1..=4 {
            let [near, far] = pairs(count);
            let [mut near, mut far] = [near, far].map(bundle);
            let bytes: Vec<u8> = (0..5_000_000u32).flat_map(u32::to_le_bytes).collect();
            for back in [false, true] {
                let (from, to) = if back { (&mut far, &mut near) } else { (&mut near, &mut far) };
                let (mut sent, mut got, mut room) = (0, Vec::<u8>::new(), [0; 70_001]);
                while got.len() < bytes.len() {
                    // Reads only when sockets are full.
                    let slices = [sent..bytes.len().min(sent + 5), bytes.len().min(sent + 5)..bytes.len()];
                    let written = if sent < bytes.len() {
                        from.write(&slices.map(|range| IoSlice::new(&bytes[range])))
                    } else {
                        from.flush().and(Err(io::ErrorKind::WouldBlock.into()))
                    };
                    match written {
                        Ok(len) => {
                            sent += len;
                            continue;
                        }
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                    match to.read(&mut room) {
                        Ok(len) => got.extend(&room[..len]),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                }
                assert!(got == bytes, "{count} streams");
                assert!(from.is_flushed() && to.read(&mut room).is_err());
            }
        }
    }

    fn chunk(number: u32, bytes: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
    }

    /// Reads to the end, which may be an error.
    fn rest(bundle: &mut Bundle) -> (Vec<u8>, Option<io::ErrorKind>) {
        let (mut got, mut room) = (Vec::new(), [0; 3]);
        loop {
            match bundle.read(&mut room) {
                Ok(0) => return (got, None),
                Ok(len) => got.extend(&room[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return (got, Some(error.kind())),
            }
        }
    }

    #[test]
    fn chunks_wait_for_those_before_them_and_a_stream_may_end_early() {
        let [near, mut far] = pairs(3);
        let mut near = bundle(near);
        far[1].write_all(&[chunk(1, b"bc"), chunk(2, b"d")].concat()).unwrap();
        far[1].shutdown(Shutdown::Write).unwrap();
        while near.stripes[1].at < HEAD_LEN {
            assert_eq!(near.read(&mut [0; 9]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        let waits: Vec<bool> = near.sockets().map(|(_, reads, _)| reads).collect();
        assert_eq!(waits, [true, false, true], "nothing asks again and again for a chunk that waits");
        far[2].write_all(&chunk(3, b"ef")[..9]).unwrap();
        far[0].write_all(&chunk(0, b"a")).unwrap();
        far[2].write_all(b"f").unwrap();
        far.iter().for_each(|far| _ = far.shutdown(Shutdown::Write));
        assert_eq!(rest(&mut near), (b"abcdef".to_vec(), None));
    }

    #[test]
    fn other_bytes_end_a_connection() {
        for bytes in [chunk(u32::MAX, b"x"), chunk(0, b""), [&chunk(0, b"")[..4], &[1, 0, 1, 0]].concat()] {
            let [near, mut far] = pairs(2);
            // The other stream stays open.
            far[1].write_all(&bytes).unwrap();
            assert_eq!(rest(&mut bundle(near)), (Vec::new(), Some(io::ErrorKind::InvalidData)), "{bytes:?}");
        }
        // The next chunk never comes: what is there is left there.
        let [near, mut far] = pairs(2);
        far[0].write_all(&chunk(1, b"x")).unwrap();
        far.iter().for_each(|far| _ = far.shutdown(Shutdown::Write));
        assert_eq!(rest(&mut bundle(near)), (Vec::new(), None));
    }
}
