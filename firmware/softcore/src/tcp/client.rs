//! A place for a client: its connection, what it is served, and how long it may take.

use gradwire::engine::Millis;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, State};

use super::console::Console;
use super::http::Exchange;
use super::metrics::{Counts, Facts};
use super::{CONSOLE_PORT, Line, Next};

/// Milliseconds from a client's first segment to its last; a console greets in this time.
const EXCHANGE_MS: u64 = 5_000;
/// Milliseconds that a console waits for a command, or for its answer to be read.
const CONSOLE_MS: u64 = 60_000;

/// The purpose of a client's connection.
#[derive(Debug)]
enum Session {
    Metrics(Exchange),
    Console(Console),
}

/// A place for a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) handle: SocketHandle,
    pub(super) port: u16,
    /// When the client is cut off; None while the place is free.
    until: Option<Millis>,
    session: Session,
}

impl Client {
    /// A place at a port. [`Self::listen`] opens it.
    pub(super) fn new(handle: SocketHandle, port: u16) -> Self {
        Self { handle, port, until: None, session: Self::session(port) }
    }

    fn session(port: u16) -> Session {
        if port == CONSOLE_PORT {
            Session::Console(Console::new())
        } else {
            Session::Metrics(Exchange::new())
        }
    }

    /// Whether the place is free.
    pub(super) const fn is_listening(&self) -> bool {
        self.until.is_none()
    }

    /// The earlier, the older among those at one port who have said nothing yet.
    pub(super) fn until(&self) -> u64 {
        self.until.map_or(0, |until| until.0)
    }

    /// Forgets the client without a word, and waits for the next.
    pub(super) fn listen(&mut self, socket: &mut Socket<'_>) {
        socket.abort();
        // The port is not 0, and the socket closed.
        let _ = socket.listen(self.port);
        self.until = None;
        self.session = Self::session(self.port);
    }

    /// Reads a piece, or writes a line; whether there is more to do at once.
    pub(super) fn serve(
        &mut self,
        socket: &mut Socket<'_>,
        facts: &Facts<'_>,
        counts: &mut Counts,
        now: Millis,
    ) -> bool {
        match socket.state() {
            State::Listen => {
                self.until = None; // it may have been half open
                return false;
            }
            // Nobody waits out TIME-WAIT here, as places are few. If the last acknowledgement is
            // lost, the client's FIN is answered with a reset, which takes nothing from it: it has
            // had the answer whole.
            State::Closed | State::TimeWait => {
                self.listen(socket);
                return false;
            }
            _ => {}
        }
        if now.0 >= self.until.get_or_insert(Millis(now.0 + EXCHANGE_MS)).0 {
            counts.cut_off += 1;
            socket.abort();
            return true;
        }
        let mut line = Line::new();
        if !socket.may_send() || socket.send_capacity() - socket.send_queue() < line.capacity() {
            return false;
        }
        let next = match &mut self.session {
            Session::Metrics(exchange) => exchange.next(facts, &mut line),
            Session::Console(console) => console.next(facts.aggregator, &mut line),
        };
        match next {
            Next::Line => {
                let _ = socket.send_slice(line.as_bytes()); // there is room
                if matches!(self.session, Session::Console(_)) {
                    self.until = Some(Millis(now.0 + CONSOLE_MS));
                }
                true
            }
            Next::Wait if socket.can_recv() => {
                let session = &mut self.session;
                let taken = socket.recv(|bytes| match session {
                    Session::Metrics(exchange) => (exchange.take(bytes), ()),
                    Session::Console(console) => (console.take(bytes), ()),
                });
                taken.is_ok()
            }
            Next::Wait if socket.may_recv() => false,
            // All is said, by us or by the client.
            Next::Wait | Next::End => {
                socket.close();
                true
            }
        }
    }
}
