//! A session at the console of a soft core that has its two peers: the hosts of a capture on one
//! side, and another core with the capture's other hosts behind it on the other.
//!
//! Lines go to the console. Those that begin with a colon are for the session: they send frames,
//! pull cables, and talk to the other core.

use std::io::{BufRead, Write};

use gradwire::forward::Port;

use super::{Pair, side};
use crate::error::Error;
use crate::input::Capture;

/// So many frames in a row that do not arrive end a `:send`: each of them takes a while.
const LOST_IN_A_ROW: u32 = 3;
/// Log frames on the serial line stand between these (docs/firmware.md).
const START: [u8; 2] = [1, 0];
const END: u8 = 0;

const HELP: &str = "\
:send [N]                       the next N frames of the capture, or all that are left
:far COMMAND                    a command for the other core's console
:link host|network up|down      pulls a cable of this core, or plugs it in
:quit                           or the end of the input
other lines                     go to this core's console: `help` lists its commands
";

/// The input and output of a session.
pub struct Session<'a> {
    /// Both cores; the first one's console is the user's.
    pub pair: &'a mut Pair,
    /// The frames of `:send`.
    pub capture: &'a Capture,
    /// The destination of the first core's log, as it was on the serial line.
    pub logs: Option<&'a mut dyn Write>,
    sent: usize,
}

impl<'a> Session<'a> {
    /// A session that has sent nothing.
    pub fn new(pair: &'a mut Pair, capture: &'a Capture, logs: Option<&'a mut dyn Write>) -> Self {
        Self { pair, capture, logs, sent: 0 }
    }

    /// Does what `input` says, line by line, until `:quit` or its end.
    ///
    /// # Errors
    /// An emulator has gone, or an output cannot be written.
    pub fn run(&mut self, input: &mut impl BufRead, out: &mut impl Write) -> Result<(), Error> {
        let frames = self.capture.frames.len();
        writeln!(
            out,
            "two soft cores, back to back; {frames} frames to send. `:help` says how, `help` asks the core."
        )?;
        let mut line = String::new();
        loop {
            write!(out, "gradwire> ")?;
            out.flush()?;
            line.clear();
            let ended = input.read_line(&mut line)? == 0;
            if ended || line.trim() == ":quit" {
                writeln!(out)?;
                return self.keep_logs();
            }
            let answer = self.line(line.trim());
            self.keep_logs()?;
            match answer {
                Ok(answer) => write!(out, "{answer}")?,
                // A wrong word is no reason to end.
                Err(Error::Usage(why)) => writeln!(out, "{why}")?,
                Err(other) => return Err(other),
            }
        }
    }

    fn line(&mut self, line: &str) -> Result<String, Error> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => Ok(String::new()),
            [":help"] => Ok(HELP.into()),
            [":send"] => self.send(usize::MAX),
            [":send", count] => match count.parse() {
                Ok(count) => self.send(count),
                Err(_) => Err(Error::Usage(format!("{count}: expected a number of frames"))),
            },
            [":far", ..] => self.pair.cores[1].command(line.trim_start_matches(":far").trim()).map(whole),
            [":link", port @ ("host" | "network"), state @ ("up" | "down")] => {
                let port = if port == "host" { Port::Host } else { Port::Network };
                self.pair.cores[0].set_link(port, state == "up")?;
                Ok(String::new())
            }
            [word, ..] if word.starts_with(':') => {
                Err(Error::Usage(format!("{line}: no such command; `:help` lists them")))
            }
            _ => self.pair.cores[0].command(line).map(whole),
        }
    }

    /// Sends up to `count` frames; what became of them.
    fn send(&mut self, count: usize) -> Result<String, Error> {
        let (mut arrived, mut changed, mut lost) = (0u32, 0u32, 0u32);
        let (mut host_bytes, mut wire_bytes) = (0, 0);
        let first = self.sent;
        for frame in self.capture.frames.iter().skip(first).take(count) {
            self.sent += 1;
            let [wire, delivered] = self.pair.send(side(&frame.bytes), &frame.bytes)?;
            host_bytes += frame.bytes.len();
            changed += u32::from(wire.as_ref().is_some_and(|wire| *wire != frame.bytes));
            wire_bytes += wire.map_or(0, |wire| wire.len());
            if delivered.is_some() {
                (arrived, lost) = (arrived + 1, 0);
            } else {
                lost += 1;
            }
            if lost == LOST_IN_A_ROW {
                break;
            }
        }
        let (sent, left) = (self.sent - first, self.capture.frames.len() - self.sent);
        let mut text = format!(
            "{sent} frames sent, {arrived} arrived; {changed} of them were others on the wire; {host_bytes} bytes became {wire_bytes}; {left} left\n"
        );
        if lost == LOST_IN_A_ROW {
            text += "the last ones did not arrive: is a cable out?\n";
        }
        Ok(text)
    }

    fn keep_logs(&mut self) -> Result<(), Error> {
        let frames = self.pair.cores[0].logs();
        let Some(logs) = &mut self.logs else { return Ok(()) };
        for frame in frames {
            logs.write_all(&START)?;
            logs.write_all(&frame)?;
            logs.write_all(&[END])?;
        }
        logs.flush()?;
        Ok(())
    }
}

/// The answer as whole lines.
fn whole(mut answer: String) -> String {
    if !answer.is_empty() && !answer.ends_with('\n') {
        answer.push('\n');
    }
    answer
}
