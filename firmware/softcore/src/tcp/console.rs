//! The aggregator's console over TCP: lines in, lines out, no echo. It shows, and changes nothing:
//! nobody says who he is here.

use core::fmt::Write as _;

use heapless::String;

use super::{Line, Next};
use crate::aggregation::{IP, SoftAggregator, write_count};
use crate::console::PROMPT;
use crate::console::command::Problem;
use crate::console::editor::{Echo, Editor};

const HELP: &[&str] = &[
    "counters               all counts that are not zero; so does an empty line",
    "jobs                   jobs, and how many children have joined each",
    "quit                   end the connection",
];

/// The next line to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saying {
    Greeting,
    Help(usize),
    Counters(usize),
    Jobs(usize),
    /// The fault of the line.
    Problem,
    Prompt,
    Goodbye,
    Nothing,
}

/// A console.
#[derive(Debug)]
pub(super) struct Console {
    editor: Editor,
    saying: Saying,
}

impl Console {
    /// It greets.
    pub(super) const fn new() -> Self {
        Self { editor: Editor::new(), saying: Saying::Greeting }
    }

    /// Takes bytes up to the end of a line; how many. The rest is for when that line is answered.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match self.editor.byte(*byte) {
                Echo::Enter => {
                    self.saying = command(self.editor.line()).unwrap_or(Saying::Problem);
                    return at + 1;
                }
                Echo::Cancel => {
                    self.saying = Saying::Prompt;
                    return at + 1;
                }
                // What the client's terminal shows is its own affair.
                _ => {}
            }
        }
        bytes.len()
    }

    /// The next line.
    pub(super) fn next(&mut self, aggregator: &SoftAggregator, line: &mut Line) -> Next {
        // A line has room for the longest of all these; a longer word of a problem is cut.
        let (written, next) = match self.saying {
            Saying::Nothing => return Next::Wait,
            Saying::Goodbye => return Next::End,
            Saying::Prompt => (line.write_str(PROMPT).ok(), Saying::Nothing),
            Saying::Greeting => {
                let version = env!("CARGO_PKG_VERSION");
                let greeting = write!(line, "gradwire {version}, aggregator {IP}: help lists commands\r\n");
                (greeting.ok(), Saying::Prompt)
            }
            Saying::Problem => {
                if let Err(problem) = command(self.editor.line()) {
                    let _ = write!(line, "{problem}");
                }
                (line.write_str("\r\n").ok(), Saying::Prompt)
            }
            Saying::Help(at) => {
                let written = HELP.get(at).map(|help| write!(line, "{help}\r\n"));
                (written.and_then(Result::ok), Saying::Help(at + 1))
            }
            Saying::Jobs(at) => {
                let written = aggregator.engine.jobs().nth(at);
                let written =
                    written.map(|(job, children)| write!(line, "job {job} children {children}\r\n"));
                (written.and_then(Result::ok), Saying::Jobs(at + 1))
            }
            Saying::Counters(at) => {
                let mut count = String::new();
                let written = write_count(&mut count, aggregator, at);
                (written.and_then(|()| line.push_str(&count).ok()), Saying::Counters(at + 1))
            }
        };
        // Behind the last line of a list comes the prompt.
        self.saying = if written.is_some() { next } else { Saying::Prompt };
        Next::Line
    }
}

fn command(line: &str) -> Result<Saying, Problem<'_>> {
    let mut words = line.split_ascii_whitespace();
    let command = match words.next() {
        None | Some("counters") => Saying::Counters(0),
        Some("help" | "?") => Saying::Help(0),
        Some("jobs") => Saying::Jobs(0),
        Some("quit" | "exit") => Saying::Goodbye,
        #[cfg(feature = "plant-panic")]
        Some("panic") => panic!("as planted"),
        Some(other) => return Err(Problem::Unknown(other)),
    };
    words.next().map_or(Ok(command), |word| Err(Problem::Excess(word)))
}
