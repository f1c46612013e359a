//! The command line: the list of commands. Data goes to the output given, talk to standard error.

use std::io::Write;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::aggregate::{self, AggregateArgs};
use crate::commands::completions::{self, CompletionsArgs};
use crate::commands::doctor::{self, DoctorArgs};
use crate::commands::man::{self, ManArgs};
use crate::commands::run::{self, RunArgs};
use crate::commands::status::{self, StatusArgs};
use crate::commands::traffic::{self, TestArgs};
use crate::commands::unload::{self, UnloadArgs};

use crate::telemetry::logging::Format;

pub use crate::commands::{CommandError, Outcome};

/// Compresses tagged gradient traffic between a container's veth and the network card, by AF_XDP.
///
/// Frames whose IP type of service matches a rule (0x28 unless configured) get smaller on the wire
/// under a guaranteed error bound, and are restored by the gradwire-xdp of the other host. All
/// others stay in the kernel's bridge, which joins both ports, and so do all when this program
/// ends, however it ends.
#[derive(Debug, Parser)]
#[command(
    name = "gradwire-xdp",
    version,
    after_help = "\
Exit codes: 0 all is well, 1 the doctor found a fault or a shim does not answer, 2 the program could not do its work,
3 `test` had no connection to the other host.

Examples:
  gradwire-xdp doctor --host veth0 --net eth0     what keeps it from running well, and what fixes it
  gradwire-xdp run --host veth0 --net eth0        until SIGTERM or SIGINT
  gradwire-xdp status --watch                     what it does, every second
  gradwire-xdp test receive                       on another host: checks what this one sends
  gradwire-xdp test send 192.0.2.20               tagged values to there, every one of them checked
  gradwire-xdp unload veth0                       ends it, also where it hangs or crashed
  gradwire-xdp aggregate --interface eth1 --address 10.0.0.9    an aggregator for training jobs"
)]
pub struct Cli {
    /// The command.
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
    Test(TestArgs),
    Unload(UnloadArgs),
    Aggregate(AggregateArgs),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

impl Cli {
    /// Whether standard error is for JSON lines only.
    #[must_use]
    pub fn logs_json(&self) -> bool {
        let service = match &self.command {
            Command::Run(args) => &args.service,
            Command::Aggregate(args) => &args.service,
            _ => return false,
        };
        service.log_format == Format::Json
    }
}

/// Does what `cli` says.
///
/// # Errors
/// The work could not be done.
pub fn run(cli: &Cli, out: &mut impl Write) -> Result<Outcome, CommandError> {
    match &cli.command {
        Command::Run(args) => run::run(args)?,
        Command::Status(args) => return status::run(args, out),
        Command::Doctor(args) => return doctor::run(args, out),
        Command::Test(args) => return traffic::run(args, out),
        Command::Unload(args) => unload::run(args, out)?,
        Command::Aggregate(args) => aggregate::run(args)?,
        Command::Man(args) => man::run(args, Cli::command())?,
        Command::Completions(args) => completions::run(args, Cli::command(), out)?,
    }
    Ok(Outcome::Good)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::config::{AggregatorConfig, AggregatorOptions, Config};
    use crate::scratch::Scratch;
    use crate::system::privileges::NEEDED;
    use crate::telemetry::control::RUN_DIR;

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

    /// The text between lines of three backquotes that name `language`.
    fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
        let start = format!("```{language}\n");
        let parts = text.split(&start).skip(1);
        parts.map(|part| part.split("```").next().unwrap()).collect()
    }

    const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy.md");
    const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/shim-reference.md");
    const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd");

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
    fn the_guides_ports_are_the_programs() {
        let guide = fs::read_to_string(GUIDE).unwrap() + &fs::read_to_string(REFERENCE).unwrap();
        let (control, tagged) = (traffic::PORT, traffic::PORT + 1);
        for words in [
            format!("TCP ports {control} (untagged"),
            format!("and {tagged} (tagged)"),
            format!("from {} on, and logs it", crate::config::METRICS_PORT),
        ] {
            assert!(guide.replace('\n', " ").contains(&words), "{words}");
        }
    }

    #[test]
    fn the_references_configuration_is_the_default() {
        let reference = fs::read_to_string(REFERENCE).unwrap();
        let [toml, _] = blocks(&reference, "toml")[..] else { panic!("one configuration of each kind") };
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
        let all = load(&uncommented(toml));
        assert_eq!(all.needs_restart(&default), ["path.threads", "path.busy-poll-us", "metrics"]);
        assert_eq!(all.metrics.unwrap().to_string(), format!("127.0.0.1:{}", crate::config::METRICS_PORT));
    }

    /// A configuration with all that is commented out.
    fn uncommented(toml: &str) -> String {
        let line = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        };
        toml.lines().map(line).collect()
    }

    #[test]
    fn the_references_aggregator_has_every_setting() {
        let reference = fs::read_to_string(REFERENCE).unwrap();
        let [_, toml] = blocks(&reference, "toml")[..] else { panic!("one configuration of each kind") };
        let parse = |text: &str| {
            AggregatorConfig::parse(text, Path::new("aggregator.toml"), &AggregatorOptions::default())
        };
        let shown = parse(toml).unwrap();
        // But for its place, it shows the defaults.
        let place = AggregatorOptions {
            interface: Some(shown.interface.clone()),
            address: shown.address.to_string().parse().ok(),
            ..AggregatorOptions::default()
        };
        assert_eq!(shown, AggregatorConfig::load(None, &place).unwrap());
        let all = parse(&uncommented(toml)).unwrap();
        assert!(
            all.group.is_some() && all.metrics == Config::parse("[metrics]", Path::new("")).unwrap().metrics
        );
        let command = Cli::command();
        let aggregate = command.find_subcommand("aggregate").unwrap();
        for setting in ["interface", "address", "port", "group", "mode"] {
            assert!(toml.contains(&format!("{setting} = ")), "{setting}");
            assert!(aggregate.get_arguments().any(|arg| arg.get_long() == Some(setting)), "{setting}");
        }
    }

    /// The command of a unit, and a reader of its settings.
    fn unit(name: &str) -> (Command, impl Fn(&str) -> String) {
        let text = fs::read_to_string(format!("{UNITS}/{name}@.service")).unwrap();
        let setting = move |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("no {name}")).to_owned()
        };
        let start = setting("ExecStart").replace("${HOST}", "veth0").replace("${NET}", "eth0");
        (Cli::try_parse_from(start.split_whitespace()).unwrap().command, setting)
    }

    #[test]
    fn units_start_what_exists_with_what_it_needs() {
        for name in ["gradwire-xdp", "gradwire-aggregator"] {
            let (command, setting) = unit(name);
            let (service, config) = match command {
                Command::Run(args) if name == "gradwire-xdp" => (args.service, args.config),
                Command::Aggregate(args) if name == "gradwire-aggregator" => (args.service, args.config),
                other => panic!("{name}: {other:?}"),
            };
            // `status` and `unload` look there.
            assert_eq!(service.run_dir.parent(), Some(Path::new(RUN_DIR)));
            assert_eq!(Path::new("/run").join(setting("RuntimeDirectory")), service.run_dir);
            assert_eq!(config.unwrap().parent(), Some(Path::new("/etc/gradwire-xdp")));
            for set in ["AmbientCapabilities", "CapabilityBoundingSet"] {
                let set = setting(set);
                let mut names: Vec<_> = set.split_whitespace().map(str::to_owned).collect();
                names.sort();
                let mut needed: Vec<_> = NEEDED.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
                needed.sort();
                assert_eq!(names, needed);
            }
        }
    }

    /// The confinement of a service is written twice, since systemd has no way to share it.
    #[test]
    fn both_units_are_confined_alike() {
        let confined = |name: &str| {
            let text = fs::read_to_string(format!("{UNITS}/{name}@.service")).unwrap();
            text[text.find("# Set-up needs these").unwrap()..].to_owned()
        };
        assert_eq!(confined("gradwire-xdp"), confined("gradwire-aggregator"));
        assert!(confined("gradwire-aggregator").contains("SystemCallFilter="));
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
