//! How the other ranks fare: who is silent, who has left, and what all are told when something fails.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::conn::{Conn, Input, NEW, Out, head};
use super::{Poller, Stop};
use crate::failure::{Failure, Weight, list};
use crate::graph::Rank;
use crate::handshake::Purpose;
use crate::header::{CONTROL_HEAD, Control, Header};

/// How long rank 0 waits for a better cause than a closed connection.
const GRACE: Duration = Duration::from_millis(300);
/// How long a rank that leaves waits for the others to hear of it.
const FAREWELL: Duration = Duration::from_secs(2);

/// The longest that ranks wait to agree on a cause.
const MAX_EXPLANATION: Duration = Duration::from_secs(10);

/// How long a rank that reported a failure waits for what rank 0 makes of it, and rank 0 for all to hear of it, in a job with this
/// timeout. Who closes its connections before others have heard is taken for the cause. A rank that is stopped hears nothing, so all others
/// wait so long for it: never more than some seconds.
pub(crate) fn explanation(timeout: Duration) -> Duration {
    (timeout / 10).clamp(FAREWELL, MAX_EXPLANATION).min(timeout)
}

fn closed(peer: Rank) -> String {
    format!("rank {peer} disconnected without goodbye (was it killed?)")
}

impl Poller {
    /// A rank said on a connection of messages that no more come there.
    pub(super) fn left(&mut self, peer: Rank) -> Result<(), Stop> {
        let more = |conn: &Conn| conn.peer == peer && conn.purpose != Purpose::Control && !conn.left;
        if self.active && self.left[peer] > 0 && !self.conns.iter().any(more) {
            let sequence = self.expect.as_ref().map_or(0, |expect| expect.sequence);
            return Err(self.certain(format!("rank {peer} left during exchange {sequence}")));
        }
        Ok(())
    }

    /// A connection closed without farewell. That may have a better reason, which is still on its way.
    pub(super) fn closed(&mut self, at: usize, why: &str) {
        self.turns.retain(|turn| *turn != at);
        self.asked.iter_mut().for_each(|asked| asked.waiting.retain(|waits| *waits != at));
        let conn = &mut self.conns[at];
        let peer = conn.peer;
        conn.out.clear();
        if std::mem::replace(&mut conn.left, true) {
            return;
        }
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let cause = closed(peer) + &why;
        let failure = Failure { reporter: self.rank, cause, weight: Weight::Closed };
        self.suspect.get_or_insert((failure, Instant::now()));
    }

    /// At rank 0: who is behind something that came late?
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        let Weight::Late { sequence } = failure.weight else { return failure };
        // This rank may have all that it needs, and look after nobody any more.
        if let Some(rank) = (1..self.ranks).find(|&rank| self.is_silent(rank)) {
            return Failure { cause: self.silence(rank), ..failure };
        }
        // A server begins when it is asked to, so it is never the one behind.
        let first = usize::from(self.served);
        let behind: Vec<Rank> = (first..self.ranks).filter(|&rank| self.heard[rank].1 < sequence).collect();
        if behind.is_empty() {
            return failure;
        }
        let cause =
            format!("rank {} did not begin exchange {sequence} within {:?}", list(&behind), self.timeout);
        Failure { cause, ..failure }
    }

    fn ping_every(&self) -> Duration {
        (self.timeout / 10).clamp(Duration::from_millis(20), Duration::from_secs(2))
    }

    pub(super) fn next_timer(&self) -> Instant {
        let suspect = self.suspect.as_ref().map_or(Duration::from_secs(3600), |_| Duration::from_millis(10));
        let timer = Instant::now() + self.ping_every().min(suspect);
        self.coordinator.timer().map_or(timer, |at| timer.min(self.started + at))
    }

    pub(super) fn timers(&mut self) -> Result<(), Stop> {
        let now = Instant::now();
        if let Some((failure, since)) = &self.suspect
            && (self.rank != 0 || now.duration_since(*since) > GRACE)
        {
            return Err(Stop::Failed(failure.clone()));
        }
        if self.rank == 0 && now.duration_since(self.pinged) > self.ping_every() {
            self.pinged = now;
            (1..self.ranks).for_each(|rank| self.control(rank, &Control::Ping));
        }
        self.give_slots()?;
        // Rank 0 looks after all, and all look after rank 0.
        let mut watched = if self.rank == 0 { 1..self.ranks } else { 0..1 };
        let waits = self.active || self.compare.waits;
        match watched.find(|rank| waits && self.is_silent(*rank)) {
            Some(rank) => Err(self.certain(self.silence(rank))),
            None => Ok(()),
        }
    }

    /// Has a rank that has not left been silent for too long?
    fn is_silent(&self, rank: Rank) -> bool {
        let here = self.conns.iter().all(|conn| conn.peer != rank || !conn.left);
        here && self.heard[rank].0.elapsed() > self.timeout / 2
    }

    fn silence(&self, rank: Rank) -> String {
        let silent = self.timeout / 2;
        format!(
            "rank {rank} gave no sign of life for {silent:?}: it is stopped, or its host or the network between is down"
        )
    }

    /// Tells everybody about a failure, and returns what everybody is told.
    pub(super) fn tell(&mut self, failure: Failure) -> Failure {
        let until = Instant::now() + explanation(self.timeout);
        // The other connections close last. If they closed now, whoever has not yet heard of the failure would blame this rank.
        let all = std::mem::take(&mut self.conns).into_iter();
        let (control, _open): (Vec<Conn>, Vec<Conn>) = all.partition(|conn| conn.purpose == Purpose::Control);
        self.conns = control;
        self.turns.clear();
        if self.rank == 0 {
            let failure = self.explain(failure);
            for rank in 1..self.ranks {
                self.control(rank, &Control::Failed(failure.clone()));
            }
            self.drain(until, |_| None::<()>);
            return failure;
        }
        if failure.reporter != self.rank {
            // Rank 0 said so; there is nobody left to tell.
            return failure;
        }
        let has_rank_0 = |poller: &Self| poller.conns.iter().any(|conn| conn.peer == 0 && !conn.left);
        let had_rank_0 = has_rank_0(self);
        self.control(0, &Control::Failed(failure.clone()));
        let told = self.drain(until, |frame| match frame {
            Control::Failed(first) => Some(Some(first)),
            Control::Bye => Some(None),
            _ => None,
        });
        match told {
            Some(Some(first)) => first,
            // Rank 0 would have answered. If it was killed, it is the cause: another rank may have heard of that first, and gone.
            None if failure.weight == Weight::Closed && had_rank_0 && !has_rank_0(self) => {
                Failure { cause: closed(0), ..failure }
            }
            _ => failure,
        }
    }

    /// Sends what is left on the control connections, and reads until `wanted` is there or all are closed.
    fn drain<T>(&mut self, until: Instant, wanted: impl Fn(Control) -> Option<T>) -> Option<T> {
        while Instant::now() < until && self.conns.iter().any(|conn| !conn.left) {
            for at in 0..self.conns.len() {
                if self.write(at).is_err() {
                    return None;
                }
                if self.rank == 0 && self.conns[at].out.is_empty() {
                    // The others close when they have read it.
                    _ = self.conns[at].stream.shutdown(std::net::Shutdown::Write);
                }
            }
            let ready = self.wait(until.min(Instant::now() + Duration::from_millis(50)));
            for (at, flags) in ready {
                let conn = &mut self.conns[at];
                if !flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    continue;
                }
                let (into, control) = match &mut conn.input {
                    Input::Head { bytes, at } => (&mut bytes[*at..CONTROL_HEAD], true),
                    Input::Control { bytes, at, .. } => (&mut bytes[*at..], true),
                    Input::Message { bytes, at, .. } => (&mut bytes[*at..], false),
                };
                let len = match (&conn.stream).read(into) {
                    Ok(len) if len > 0 && control => len,
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                    {
                        continue;
                    }
                    _ => {
                        conn.left = true;
                        continue;
                    }
                };
                match &mut conn.input {
                    Input::Head { at, .. } | Input::Message { at, .. } | Input::Control { at, .. } => {
                        *at += len;
                    }
                }
                if let Input::Head { bytes, at: CONTROL_HEAD } = &conn.input {
                    let head = bytes.first_chunk().expect("longer");
                    let len = Control::body_len(head).unwrap_or(0);
                    conn.input = Input::Control { kind: head[0], bytes: vec![0; len], at: 0 };
                }
                if let Input::Control { kind, bytes, at } = &conn.input
                    && *at == bytes.len()
                {
                    let frame = Control::parse(*kind, bytes);
                    conn.input = NEW;
                    if let Some(found) = frame.and_then(&wanted) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// Sends what is left, and says goodbye.
    pub(super) fn farewell(&mut self) {
        self.release();
        let sequence = self.expect.as_ref().map_or(0, |expect| expect.sequence);
        for conn in &mut self.conns {
            let head = match conn.purpose {
                Purpose::Control => Control::Bye.to_bytes(),
                Purpose::Data | Purpose::Tagged => head(conn.purpose, &Header::bye(sequence)),
            };
            conn.out.push_back(Out { head, body: None, at: 0, big: false, asked: false });
        }
        let until = Instant::now() + self.timeout;
        while Instant::now() < until && self.conns.iter().any(|conn| !conn.out.is_empty()) {
            for at in 0..self.conns.len() {
                if self.write(at).is_err() {
                    return;
                }
            }
            self.wait(until.min(Instant::now() + Duration::from_millis(50)));
        }
        for conn in &self.conns {
            _ = conn.stream.shutdown(std::net::Shutdown::Write);
        }
        // What is unread when a socket closes makes it reset the connection, and then the goodbye may be lost.
        let until = Instant::now() + FAREWELL.min(self.timeout);
        let mut bin = vec![0; 1 << 16];
        while Instant::now() < until && self.conns.iter().any(|conn| !conn.left) {
            for conn in self.conns.iter_mut().filter(|conn| !conn.left) {
                match (&conn.stream).read(&mut bin) {
                    Ok(0) => conn.left = true,
                    Ok(_) => {}
                    Err(error) => conn.left = error.kind() != io::ErrorKind::WouldBlock,
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_on_a_cause_within_seconds_whatever_the_timeout_is() {
        let seconds = |timeout| explanation(Duration::from_secs(timeout)).as_secs();
        assert_eq!([1, 10, 60, 300, 1800, 86_400].map(seconds), [1, 2, 6, 10, 10, 10]);
    }
}
