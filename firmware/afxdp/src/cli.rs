//! The command line: what there is to do, and with what. Data goes to the output given, talk to standard error.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::{Config, ConfigError};
use crate::control::{ControlError, RUN_DIR};
use crate::doctor::{self, Facts, GatherError, Status};
use crate::logging;
use crate::run::{self, RunError};
use crate::status::{self, StatusArgs};
use crate::unload::{self, UnloadArgs, UnloadError};

/// Compresses tagged gradient traffic between a container's veth and the network card, by AF_XDP.
///
/// Frames whose IP type of service matches a rule (0x28 unless configured) get smaller on the wire under a guaranteed
/// error bound, and are restored by the gradwire-xdp of the other host. All others stay in the kernel's bridge, which
/// joins both ports, and so do all when this program ends, however it ends.
#[derive(Debug, Parser)]
#[command(
    name = "gradwire-xdp",
    version,
    after_help = "\
Exit codes: 0 all is well, 1 the doctor found a fault or a shim does not answer, 2 the program could not do its work.

Examples:
  gradwire-xdp doctor --host veth0 --net eth0     what keeps it from running well, and what mends it
  gradwire-xdp run --host veth0 --net eth0        until SIGTERM or SIGINT
  gradwire-xdp status --watch                     what it does, every second
  gradwire-xdp unload veth0                       ends it, also where it hangs or crashed"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Every subcommand; each is documented where its arguments are, and the help shows that.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "documentation here would take the place of that of the arguments")]
pub enum Command {
    Run(RunArgs),
    Status(StatusArgs),
    Doctor(DoctorArgs),
    Unload(UnloadArgs),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

/// Compresses and restores between two ports, in the foreground.
///
/// Both ports must be joined by a bridge. SIGHUP reads the configuration file again and takes over its rules without
/// losing a frame or a connection; SIGTERM and SIGINT end it. Under systemd it says when it is ready and that it is
/// alive (sd_notify).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  gradwire-xdp run --host veth0 --net eth0 --config /etc/gradwire-xdp/veth0.toml")]
pub struct RunArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub ports: PortArgs,
    /// Configuration file (TOML); without one there is one rule, for type of service 0x28.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the control socket.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
    /// What is logged to standard error: off, error, warn, info, debug, trace, or such by module.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// How it is logged.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: logging::Format,
    /// Takes tagged frames and sends them on as they are: what a benchmark compares compression with.
    #[arg(long, hide = true)]
    pub plain: bool,
    /// How long after a thread's last sign of life frames go to the bridge: longer, for tests on machines where threads
    /// wait for a processor.
    #[arg(long, hide = true, value_name = "MS", default_value_t = run::LIMIT.as_millis() as u64)]
    pub limit_ms: u64,
}

/// The two ports.
#[derive(Clone, Debug, clap::Args)]
pub struct PortArgs {
    /// The port towards the host: a container's veth.
    #[arg(long, value_name = "IF")]
    pub host: String,
    /// The port towards the wire: the network card.
    #[arg(long, value_name = "IF")]
    pub net: String,
}

/// Looks for what keeps gradwire-xdp from running between two ports, or from running well.
///
/// Each fault comes with the command that mends it. Nothing is changed. As root it sees more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON: an array of {\"check\", \"port\", \"status\", \"found\", \"mend\"}; status is ok, unknown, warning or failed, port and
mend may be null.

Exit codes: 0 nothing failed, 1 something did, 2 it could not be looked at.

Example:
  gradwire-xdp doctor --host veth0 --net eth0 --config /etc/gradwire-xdp/veth0.toml")]
pub struct DoctorArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub ports: PortArgs,
    /// The configuration file that it would run with.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the control sockets: one that runs is asked for what it was set up.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Writes the manual pages to a folder, which is made where it is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  gradwire-xdp man man1 && man -l man1/gradwire-xdp.1")]
pub struct ManArgs {
    /// The folder.
    pub folder: PathBuf,
}

/// Prints the script that completes commands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  gradwire-xdp completions bash > /etc/bash_completion.d/gradwire-xdp")]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// What a command that did its work found out.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Good,
    /// A fault, or a shim that does not answer: exit code 1.
    Bad,
}

impl Outcome {
    /// `Good` where `good`.
    pub(crate) const fn from_good(good: bool) -> Self {
        if good { Self::Good } else { Self::Bad }
    }
}

/// Why a command could not do its work: exit code 2.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The shim did not start, or a part of it failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// `--log` is no filter.
    #[error("--log {filter}: {source}; expected a level, or module=level, separated by commas")]
    Log {
        /// What was given.
        filter: String,
        /// Why it is none.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The kernel does not tell of its devices.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// A shim could not be ended.
    #[error(transparent)]
    Unload(#[from] UnloadError),
    /// A file cannot be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CliError {
    /// Whether this is the reader of the output having gone, which deserves no message.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Does what `cli` says.
///
/// # Errors
/// The work could not be done.
pub fn run(cli: &Cli, out: &mut impl Write) -> Result<Outcome, CliError> {
    match &cli.command {
        Command::Run(args) => {
            logging::start(&args.log, args.log_format)
                .map_err(|source| CliError::Log { filter: args.log.clone(), source })?;
            run::run(args)?;
            Ok(Outcome::Good)
        }
        Command::Status(args) => status::run(args, out),
        Command::Doctor(args) => examine(args, out),
        Command::Unload(args) => {
            unload::run(args, out)?;
            Ok(Outcome::Good)
        }
        Command::Man(args) => man(&args.folder),
        Command::Completions(args) => completions(args.shell, out),
    }
}

/// The configuration in a file, or the default.
///
/// # Errors
/// [`ConfigError`].
pub fn config(file: Option<&Path>) -> Result<Config, ConfigError> {
    file.map_or_else(|| Ok(Config::default()), Config::load)
}

fn examine(args: &DoctorArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    let config = config(args.config.as_deref())?;
    let facts = Facts::gather(Path::new("/"), &args.run_dir, &args.ports.host, &args.ports.net)?;
    let findings = doctor::examine(&facts, &config);
    if args.json {
        serde_json::to_writer(&mut *out, &findings).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        doctor::print(&findings, out)?;
    }
    Ok(Outcome::from_good(findings.iter().all(|finding| finding.status != Status::Failed)))
}

fn man(folder: &Path) -> Result<Outcome, CliError> {
    let write = || fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    write().map_err(|source| CliError::Write { path: folder.to_owned(), source })?;
    Ok(Outcome::Good)
}

fn completions(shell: Shell, out: &mut impl Write) -> Result<Outcome, CliError> {
    // The generator panics where a write fails; a vector does not.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "gradwire-xdp", &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Good)
}

/// Parses seconds, also fractions of them.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0.01 to 86400".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::NEEDED;
    use crate::scratch::Scratch;

    fn output(words: &[&str]) -> (Outcome, String) {
        let cli = Cli::try_parse_from([&["gradwire-xdp"], words].concat()).unwrap();
        let mut out = Vec::new();
        let outcome = run(&cli, &mut out).unwrap();
        (outcome, String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_a_manual_page_and_an_example() {
        let folder = Scratch::new();
        let (outcome, _) = output(&["man", folder.path().to_str().unwrap()]);
        assert_eq!(outcome, Outcome::Good);
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let page = fs::read_to_string(folder.path().join(format!("gradwire-xdp-{name}.1"))).unwrap();
            assert!(page.contains(&format!("gradwire\\-xdp {name}")), "{name}: {page}");
        }
        assert!(folder.path().join("gradwire-xdp.1").exists());
    }

    #[test]
    fn completions_know_every_subcommand() {
        for shell in ["bash", "zsh", "fish"] {
            let (_, script) = output(&["completions", shell]);
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }

    /// What stands between lines of three backquotes that name `language`.
    fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
        let start = format!("```{language}\n");
        let parts = text.split(&start).skip(1);
        parts.map(|part| part.split("```").next().unwrap()).collect()
    }

    const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy.md");
    const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/gradwire-xdp@.service");

    #[test]
    fn commands_of_the_guide_exist() {
        let guide = fs::read_to_string(GUIDE).unwrap();
        let lines = blocks(&guide, "sh").into_iter().flat_map(str::lines);
        let commands = lines.filter_map(|line| {
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            line.starts_with("gradwire-xdp ").then(|| line.split(['#', '|']).next().unwrap())
        });
        let mut count = 0;
        for command in commands {
            Cli::try_parse_from(command.split_whitespace())
                .unwrap_or_else(|error| panic!("{command}: {error}"));
            count += 1;
        }
        assert!(count >= 5);
    }

    #[test]
    fn the_guides_configuration_is_the_default() {
        let guide = fs::read_to_string(GUIDE).unwrap();
        let [toml] = blocks(&guide, "toml")[..] else { panic!("one configuration") };
        let folder = Scratch::new();
        let file = folder.path().join("xdp.toml");
        let load = |text: &str| {
            fs::write(&file, text).unwrap();
            Config::load(&file).unwrap()
        };
        let (shown, default) = (load(toml), Config::default());
        assert!(shown.needs_restart(&default).is_empty());
        assert_eq!(shown.rules.as_slice(), default.rules.as_slice());
        assert_eq!(shown.rules.mark(), default.rules.mark());
        // What is commented out is valid, and each of it changes something.
        let uncommented = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        };
        let all = load(&toml.lines().map(uncommented).collect::<String>());
        assert_eq!(all.needs_restart(&default), ["path.threads", "path.busy-poll-us", "metrics"]);
        assert_eq!(all.metrics.unwrap().to_string(), format!("127.0.0.1:{}", crate::config::METRICS_PORT));
    }

    #[test]
    fn the_unit_starts_what_exists_with_what_it_needs() {
        let unit = fs::read_to_string(UNIT).unwrap();
        let setting = |name: &str| {
            let found = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("no {name}"))
        };
        let start = setting("ExecStart").replace("${HOST}", "veth0").replace("${NET}", "eth0");
        let cli = Cli::try_parse_from(start.split_whitespace()).unwrap();
        let Command::Run(args) = cli.command else { panic!("{start}") };
        // `status` and `unload` look there.
        assert_eq!(args.run_dir.parent(), Some(Path::new(RUN_DIR)));
        assert_eq!(Path::new("/run").join(setting("RuntimeDirectory")), args.run_dir);
        for set in ["AmbientCapabilities", "CapabilityBoundingSet"] {
            let mut names: Vec<_> = setting(set).split_whitespace().map(str::to_owned).collect();
            names.sort();
            let mut needed: Vec<_> = NEEDED.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
            needed.sort();
            assert_eq!(names, needed);
        }
    }

    #[test]
    fn the_doctor_fails_where_there_is_no_port() {
        let (outcome, json) = output(&["doctor", "--host", "gw-missing", "--net", "lo", "--json"]);
        assert_eq!(outcome, Outcome::Bad);
        let findings: serde_json::Value = serde_json::from_str(&json).unwrap();
        let link = |port: &str| {
            let of_port = |f: &&serde_json::Value| f["check"] == "link" && f["port"] == port;
            findings.as_array().unwrap().iter().find(of_port).unwrap()["status"].clone()
        };
        assert_eq!((link("gw-missing"), link("lo")), ("failed".into(), "failed".into()));

        let (_, text) = output(&["doctor", "--host", "gw-missing", "--net", "lo"]);
        assert!(text.contains("FAIL  link gw-missing"), "{text}");
    }

    #[test]
    fn a_configuration_that_is_refused_ends_the_work() {
        let folder = Scratch::new();
        let file = folder.path().join("xdp.toml");
        fs::write(&file, "\n[[rule]]\ntos = 0x31\n").unwrap();
        let file = file.to_str().unwrap();
        for words in [&["doctor"][..], &["run", "--log", "off"]] {
            let words = [&["gradwire-xdp"], words, &["--host", "a", "--net", "b", "--config", file]].concat();
            let cli = Cli::try_parse_from(words).unwrap();
            let error = run(&cli, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{file}: line 3: ")), "{error}");
        }
    }
}
