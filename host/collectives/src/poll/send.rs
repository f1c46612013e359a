//! What leaves, and when: in its turn, and if a coordinator decides that, on its word.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use super::conn::{Conn, Out};
use super::{Poller, Stop};
use crate::coordinator::LinkId;
use crate::graph::Rank;
use crate::handshake::Purpose;
use crate::header::Control;

/// Messages that may wait for the coordinator, so that no rank fills rank 0's memory.
const MAX_WISHES: usize = 1 << 20;
/// Slices of one `writev`.
const MAX_SLICES: usize = 64;

/// Big messages to one rank that the coordinator decides about.
#[derive(Clone, Default)]
pub(super) struct Asked {
    /// Connections of those that wait for its word, in their order.
    pub(super) waiting: VecDeque<usize>,
    /// By batch: how many may leave and have not left.
    pub(super) granted: VecDeque<u32>,
}

impl Poller {
    /// Puts a frame into the queue of a control connection.
    pub(super) fn control(&mut self, to: Rank, frame: &Control) {
        let conn = self.conns.iter_mut().find(|conn| conn.purpose == Purpose::Control && conn.peer == to);
        if let Some(conn) = conn {
            conn.out.push_back(Out { head: frame.to_bytes(), body: None, at: 0, big: false, asked: false });
        }
    }

    /// Is there a coordinator? It leaves with rank 0.
    pub(super) fn is_coordinated(&self) -> bool {
        let control = |conn: &Conn| conn.purpose == Purpose::Control && conn.peer == 0 && !conn.left;
        self.rank == 0 || self.conns.iter().any(control)
    }

    pub(super) fn ask(&mut self, to: Rank, bytes: u64) -> Result<(), Stop> {
        if self.rank == 0 {
            return self.wish(LinkId { from: 0, to }, bytes);
        }
        self.control(0, &Control::Wish { to, bytes });
        Ok(())
    }

    /// At rank 0: a rank asks.
    pub(super) fn wish(&mut self, link: LinkId, bytes: u64) -> Result<(), Stop> {
        if self.coordinator.waiting() >= MAX_WISHES {
            return Err(self.certain(format!(
                "more than {MAX_WISHES} messages wait for the coordinator, the last of rank {}: use fewer partitions, or the order turns",
                link.from
            )));
        }
        self.coordinator.wish(link, bytes, self.started.elapsed());
        Ok(())
    }

    /// At rank 0: tells ranks what they may send.
    pub(super) fn give_slots(&mut self) -> Result<(), Stop> {
        while let Some(slot) = self.coordinator.slot(self.started.elapsed()) {
            for (LinkId { from, to }, messages) in slot {
                if from == 0 {
                    self.go(to, messages)?;
                } else {
                    self.control(from, &Control::Go { to, messages });
                }
            }
        }
        Ok(())
    }

    /// The coordinator lets some messages leave.
    pub(super) fn go(&mut self, to: Rank, messages: u32) -> Result<(), Stop> {
        let asked = self.asked.get_mut(to).filter(|asked| asked.waiting.len() >= messages as usize);
        let Some(asked) = asked.filter(|_| messages > 0) else {
            return Err(self.certain("rank 0 lets messages leave that nobody asked for".to_owned()));
        };
        self.turns.extend(asked.waiting.drain(..messages as usize));
        asked.granted.push_back(messages);
        Ok(())
    }

    /// A message that the coordinator let leave has left.
    fn gone(&mut self, to: Rank) {
        let granted = &mut self.asked[to].granted;
        let Some(left) = granted.front_mut() else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        granted.pop_front();
        if self.rank == 0 {
            self.coordinator.done(LinkId { from: 0, to });
        } else {
            self.control(0, &Control::Done { to });
        }
    }

    /// There is no coordinator any more, so messages that wait for it leave in turns.
    pub(super) fn release(&mut self) {
        for asked in &mut self.asked {
            self.turns.extend(asked.waiting.drain(..));
        }
    }

    pub(super) fn may_write(&self, at: usize) -> bool {
        let first = self.conns[at].out.front();
        first.is_some_and(|out| !out.big || self.turns.front() == Some(&at))
    }

    /// Hands to the system what is ready for one connection and whose turn it is, many messages in one call.
    pub(super) fn write(&mut self, at: usize) -> Result<(), Stop> {
        while self.may_write(at) {
            let conn = &self.conns[at];
            let mut slices = Vec::with_capacity(MAX_SLICES);
            let mut turns = self.turns.iter();
            for out in &conn.out {
                if slices.len() + 2 > MAX_SLICES || out.big && turns.next() != Some(&at) {
                    break;
                }
                let head = out.head.get(out.at..).unwrap_or(&[]);
                if !head.is_empty() {
                    slices.push(IoSlice::new(head));
                }
                let body =
                    out.body.as_ref().and_then(|body| body.get(out.at.saturating_sub(out.head.len())..));
                slices.extend(body.filter(|body| !body.is_empty()).map(IoSlice::new));
            }
            let written = match (&conn.stream).write_vectored(&slices) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    self.closed(at, &error.to_string());
                    return Ok(());
                }
            };
            let conn = &mut self.conns[at];
            let (mut rest, mut messages, mut gone) = (written, 0, 0);
            while let Some(out) = conn.out.front_mut() {
                let take = rest.min(out.len() - out.at);
                out.at += take;
                rest -= take;
                if out.at < out.len() {
                    break;
                }
                messages += u64::from(out.body.is_some());
                if out.big {
                    self.turns.pop_front();
                }
                gone += u32::from(out.asked);
                conn.out.pop_front();
            }
            let peer = conn.peer;
            if conn.purpose != Purpose::Control {
                let mut traffic = self.traffic.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                traffic.sent_bytes += written as u64;
                traffic.sent_messages += messages;
                traffic.send_calls += 1;
            }
            (0..gone).for_each(|_| self.gone(peer));
        }
        Ok(())
    }
}
