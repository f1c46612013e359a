//! The Prometheus endpoint: `GET /metrics` over HTTP/1.1, in the text exposition format 0.0.4, and
//! a page for people who find it. Clients are bounded in number, length and time: it is read by a
//! scraper every few seconds, and must not become a way in.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use crate::telemetry::server::{self, Request, Terms, patience};
use crate::telemetry::{AggregatorSnapshot, Snapshot};

mod aggregator;
mod exposition;
mod landing;
#[cfg(test)]
mod monitoring;

pub use exposition::render;

const TERMS: Terms = Terms { name: "metrics endpoint", max_request: 4_096, time: patience(5) };

/// The number of ports that are tried if the configuration names none.
pub const PORTS: u16 = 16;

/// The type of a page for scrapers (the exposition format's version), and of one for people.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// A snapshot that an endpoint shows.
pub trait Shown {
    /// All of its numbers, for scrapers.
    fn metrics(&self) -> String;
    /// A summary, for people.
    fn summary(&self) -> String;
}

impl Shown for Snapshot {
    fn metrics(&self) -> String {
        render(self)
    }

    fn summary(&self) -> String {
        landing::render(self)
    }
}

impl Shown for AggregatorSnapshot {
    fn metrics(&self) -> String {
        aggregator::render(self)
    }

    fn summary(&self) -> String {
        landing::render_aggregator(self)
    }
}

/// A bound endpoint.
#[derive(Debug)]
pub struct Endpoint(TcpListener);

impl Endpoint {
    /// Binds it. To be done before privileges are dropped: the port may be a low one.
    ///
    /// # Errors
    /// The address is in use, or not this host's.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self)
    }

    /// Binds the first free port from that of `address` on, among [`PORTS`] of them: each shim of a
    /// host gets its own.
    ///
    /// # Errors
    /// All of them are in use, or the address is not this host's.
    pub fn bind_free(address: SocketAddr) -> io::Result<Self> {
        let at = |more| SocketAddr::new(address.ip(), address.port().saturating_add(more));
        let taken = |result: &io::Result<Self>| matches!(result, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
        let mut result = Self::bind(address);
        for more in 1..PORTS {
            if !taken(&result) {
                break;
            }
            result = Self::bind(at(more));
        }
        result
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers in a thread of its own for as long as the process lives.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn serve<S: Shown + 'static>(self, snapshot: impl Fn() -> S + Send + 'static) -> io::Result<()> {
        let Self(listener) = self;
        listener.set_nonblocking(true)?;
        let accept = |listener: &TcpListener| listener.accept().map(|(client, _)| client);
        let respond = move |request: &[u8]| respond(request, &snapshot);
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || server::serve(&listener, accept, TERMS, respond))?;
        Ok(())
    }
}

/// A request ends with the empty line behind its head.
fn respond<S: Shown>(request: &[u8], snapshot: &impl Fn() -> S) -> Request {
    if !request.windows(4).any(|end| end == b"\r\n\r\n") {
        return Request::Incomplete;
    }
    let head = String::from_utf8_lossy(request);
    let line = head.lines().next().unwrap_or_default();
    let (status, kind, body) = match line.split(' ').collect::<Vec<_>>()[..] {
        ["GET" | "HEAD", path, version] if version.starts_with("HTTP/1.") => match path.split('?').next() {
            Some("/metrics") => ("200 OK", TEXT, snapshot().metrics()),
            Some("/") => ("200 OK", HTML, snapshot().summary()),
            _ => ("404 Not Found", TEXT, "see /metrics\n".to_owned()),
        },
        [_, _, version] if version.starts_with("HTTP/1.") => {
            ("405 Method Not Allowed\r\nAllow: GET, HEAD", TEXT, "only GET\n".to_owned())
        }
        _ => ("400 Bad Request", TEXT, "expected GET /metrics HTTP/1.1\n".to_owned()),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !line.starts_with("HEAD ") {
        answer += &body;
    }
    Request::Answer(answer.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::telemetry::server::MAX_CLIENTS;
    use crate::telemetry::tests::example;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_scraper_gets_the_page_and_others_a_reason() {
        let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = endpoint.address().unwrap();
        endpoint.serve(example).unwrap();

        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(body, render(&example()));

        let head_only = ask(address, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(head_only.starts_with("HTTP/1.1 200 OK") && head_only.ends_with("\r\n\r\n"), "{head_only}");
        let landing = ask(address, b"GET / HTTP/1.1\r\n\r\n");
        assert!(landing.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{landing}");
        assert!(landing.contains("href=\"/metrics\""), "{landing}");
        assert!(ask(address, b"GET /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(address, b"\x16\x03\x01 hello\r\n\r\n").starts_with("HTTP/1.1 400 "));

        // One that never ends is cut off.
        let mut endless = TcpStream::connect(address).unwrap();
        endless.write_all(&vec![b'a'; TERMS.max_request + 1]).unwrap();
        // The end, or a reset if something was not read.
        assert!(matches!(endless.read(&mut [0; 1]), Ok(0) | Err(_)));
    }

    /// More than are served at once, all of them older than the scraper, and all still connected
    /// when it is answered.
    #[test]
    fn idle_clients_keep_nobody_out() {
        let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = endpoint.address().unwrap();
        endpoint.serve(example).unwrap();
        let connect = |_| TcpStream::connect(address).unwrap();
        let mut idle = (0..MAX_CLIENTS + 4).map(connect).collect::<Vec<_>>();
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        let is_open = |client: &TcpStream| {
            client.set_nonblocking(true).unwrap();
            matches!(client.peek(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        // Had the endpoint got rid of them first, this would say nothing.
        assert!(idle.iter().filter(|client| is_open(client)).count() >= MAX_CLIENTS / 2);
        // The youngest of them may still ask.
        let mut youngest = idle.pop().unwrap();
        youngest.set_nonblocking(false).unwrap();
        youngest.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        youngest.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[test]
    fn a_second_shim_takes_the_next_free_port() {
        let first = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let taken = first.address().unwrap();
        let second = Endpoint::bind_free(taken).unwrap().address().unwrap();
        assert!((1..PORTS).contains(&(second.port() - taken.port())), "{second}");
        // A port that was named is that one or none.
        assert_eq!(Endpoint::bind(taken).unwrap_err().kind(), ErrorKind::AddrInUse);
        // An address of nobody's is not looked for further.
        let nobody = Endpoint::bind_free("192.0.2.1:9407".parse().unwrap()).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::AddrNotAvailable);
    }
}
