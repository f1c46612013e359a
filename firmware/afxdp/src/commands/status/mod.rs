//! `gradwire-xdp status`: asks running shims and aggregators what they do, once or again and again.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::arguments::seconds;
use super::{CommandError, Outcome};
use crate::telemetry::control::{self, ControlError, RUN_DIR};
use crate::telemetry::{AggregatorSnapshot, Snapshot};

mod aggregator;
mod report;
mod table;

pub(super) use report::number;
pub(super) use table::Table;

use report::render;

/// Shows what running shims do: a verdict, and counts by rule, outcome, queue and flow; and what
/// aggregators sum.
///
/// Bytes of rules are those of whole frames, bytes of flows those of payloads. With --watch, counts
/// have rates beside them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON: an object for each shim, on a line of its own: {\"version\", \"pid\", \"uptime_ms\", \"kernel\", \"config\", \"reloads\",
\"ports\": {\"host\", \"network\"}, \"mark\", \"rules\": [..], \"queues\": [..]}; and for each aggregator, with \"interface\", \"address\", \"jobs\": [..], \"frames\", \"datagrams\". All counts are
since its start.

Exit codes: 0 all answered, 1 none runs, or one does not answer, 2 they could not be asked.

Examples:
  gradwire-xdp status
  gradwire-xdp status --host veth0 --net eth0 --watch 0.5
  gradwire-xdp status --json | jq '.rules[].traffic.saved'")]
pub struct StatusArgs {
    /// Only the shim with this port towards the host.
    #[arg(long, value_name = "IF")]
    pub host: Option<String>,
    /// Only the shim with this port towards the wire.
    #[arg(long, value_name = "IF")]
    pub net: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Ask again after so many seconds, until interrupted; a terminal is redrawn.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// End after so many times.
    #[arg(long, value_name = "TIMES", requires = "watch")]
    pub count: Option<u64>,
    /// Folder of the control sockets.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
}

/// Asks, and reports to `out`.
///
/// # Errors
/// The sockets cannot be listed, or the output not be written.
pub fn run(args: &StatusArgs, out: &mut impl Write) -> Result<Outcome, CommandError> {
    let mut before = BTreeMap::new();
    let mut screen = Screen { redraws: args.watch.is_some() && !args.json && io::stdout().is_terminal() };
    for turn in 1.. {
        let (text, good) = once(args, &mut before)?;
        screen.show(&text, out)?;
        match args.watch {
            Some(interval) if good && args.count.is_none_or(|count| turn < count) => thread::sleep(interval),
            _ => return Ok(Outcome::from_good(good)),
        }
    }
    Ok(Outcome::Good)
}

/// Asks every shim once; what to show, and whether all answered. `before` holds what they told
/// last.
fn once(args: &StatusArgs, before: &mut BTreeMap<PathBuf, Snapshot>) -> Result<(String, bool), CommandError> {
    let wanted = |socket: &Path| {
        control::ports_of(socket).is_some_and(|(host, net)| {
            args.host.as_ref().is_none_or(|wanted| *wanted == host)
                && args.net.as_ref().is_none_or(|wanted| *wanted == net)
        })
    };
    let mut sockets = control::sockets(&args.run_dir)?;
    sockets.retain(|socket| wanted(socket));
    let of_all = args.host.is_none() && args.net.is_none();
    let aggregators = if of_all { control::aggregator_sockets(&args.run_dir)? } else { Vec::new() };
    if sockets.is_empty() && aggregators.is_empty() {
        eprintln!("gradwire-xdp: none runs here: no such control socket in {}", args.run_dir.display());
        return Ok((String::new(), false));
    }
    let (mut text, mut good) = (String::new(), true);
    for socket in sockets {
        let Some(snapshot) = ask::<Snapshot>(&socket)? else {
            good = false;
            continue;
        };
        good &= snapshot.queues.iter().all(|queue| queue.answered);
        let last = before.insert(socket, snapshot.clone());
        text += &if args.json { line(&snapshot)? } else { render(&snapshot, last.as_ref()) };
    }
    for socket in aggregators {
        let Some(snapshot) = ask::<AggregatorSnapshot>(&socket)? else {
            good = false;
            continue;
        };
        good &= snapshot.answered;
        text += &if args.json { line(&snapshot)? } else { aggregator::render(&snapshot) };
    }
    Ok((text, good))
}

/// Asks who serves a socket. One that does not answer is named, and must not hide the others.
fn ask<S: DeserializeOwned>(socket: &Path) -> Result<Option<S>, CommandError> {
    match control::query(socket) {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(
            error @ (ControlError::Gone { .. } | ControlError::Silent { .. } | ControlError::Answer { .. }),
        ) => {
            eprintln!("gradwire-xdp: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn line(snapshot: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(snapshot)? + "\n")
}

/// The output of reports, one after the other or, on a terminal, one over the other.
struct Screen {
    redraws: bool,
}

impl Screen {
    fn show(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        if self.redraws {
            // Home, clear the rest of each line, then what is below: without flicker (ECMA-48, CUP,
            // EL, ED).
            write!(out, "\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))?;
        } else {
            out.write_all(text.as_bytes())?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::telemetry::control::Control;
    use crate::telemetry::tests::{aggregator_example, example};

    fn asked(run_dir: &Scratch, change: impl FnOnce(&mut StatusArgs)) -> (Outcome, String) {
        let mut args = StatusArgs {
            host: None,
            net: None,
            json: false,
            watch: None,
            count: None,
            run_dir: run_dir.path().to_owned(),
        };
        change(&mut args);
        let mut out = Vec::new();
        let outcome = run(&args, &mut out).unwrap();
        (outcome, String::from_utf8(out).unwrap())
    }

    fn answering() -> Snapshot {
        let mut snapshot = example();
        snapshot.queues.iter_mut().for_each(|queue| queue.answered = true);
        snapshot
    }

    #[test]
    fn running_shims_are_found_and_asked() {
        let run_dir = Scratch::new();
        assert_eq!(asked(&run_dir, |_| {}), (Outcome::Bad, String::new()));
        let _file = Control::bind(run_dir.path(), "veth0", "eth0").unwrap().serve(answering).unwrap();
        let (outcome, text) = asked(&run_dir, |_| {});
        assert_eq!((outcome, text), (Outcome::Good, render(&answering(), None)));

        let (_, json) = asked(&run_dir, |args| args.json = true);
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), answering());
        assert_eq!(json.lines().count(), 1);

        let (outcome, _) = asked(&run_dir, |args| args.host = Some("veth1".to_owned()));
        assert_eq!(outcome, Outcome::Bad);
        let (outcome, lines) = asked(&run_dir, |args| {
            args.json = true;
            args.net = Some("eth0".to_owned());
            (args.watch, args.count) = (Some(Duration::from_millis(10)), Some(3));
        });
        assert_eq!((outcome, lines.lines().count()), (Outcome::Good, 3));
    }

    #[test]
    fn aggregators_are_shown_beside_shims() {
        let run_dir = Scratch::new();
        let _file = Control::bind(run_dir.path(), "veth0", "eth0").unwrap().serve(answering).unwrap();
        let _aggregator =
            Control::bind_aggregator(run_dir.path(), "eth1").unwrap().serve(aggregator_example).unwrap();
        let (outcome, text) = asked(&run_dir, |_| {});
        assert_eq!(outcome, Outcome::Good);
        assert!(text.contains("veth0") && text.contains("aggregator 10.0.0.9:59255"), "{text}");
        let (_, json) = asked(&run_dir, |args| args.json = true);
        let aggregator = json.lines().nth(1).unwrap();
        assert_eq!(
            serde_json::from_str::<AggregatorSnapshot>(aggregator).unwrap().jobs,
            aggregator_example().jobs
        );
        let (_, text) = asked(&run_dir, |args| args.host = Some("veth0".to_owned()));
        assert!(!text.contains("aggregator 10.0.0.9"), "{text}");
    }

    #[test]
    fn one_that_does_not_answer_is_a_fault_and_hides_no_other() {
        let run_dir = Scratch::new();
        let _file = Control::bind(run_dir.path(), "veth0", "eth0").unwrap().serve(answering).unwrap();
        drop(std::os::unix::net::UnixListener::bind(control::socket_path(run_dir.path(), "a", "b")).unwrap());
        let (outcome, text) = asked(&run_dir, |_| {});
        assert_eq!(outcome, Outcome::Bad);
        assert!(text.contains("veth0"), "{text}");
        // Nor does a queue that hangs go unnoticed.
        let other = Scratch::new();
        let _file = Control::bind(other.path(), "veth0", "eth0").unwrap().serve(example).unwrap();
        assert_eq!(asked(&other, |_| {}).0, Outcome::Bad);
    }

    #[test]
    fn a_terminal_is_redrawn_in_place() {
        let mut out = Vec::new();
        Screen { redraws: true }.show("a\nb\n", &mut out).unwrap();
        assert_eq!(out, b"\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
