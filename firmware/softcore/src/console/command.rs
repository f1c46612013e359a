//! The commands of the console.

use core::fmt;

use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, Split};
use gradwire::rules::{Alignment, Framing, Handshake, Heuristic, Rule};

use crate::RULE;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing: an empty line.
    Nothing,
    /// The list of commands.
    Help,
    /// The rules in force.
    Rules,
    /// Appends a rule.
    AddRule(Rule),
    /// Removes a rule by its number, from 0.
    RemoveRule(usize),
    /// The rules of the start again, and the mark.
    DefaultRules,
    /// Another mark of compressed frames.
    Mark(u8),
    /// All counters that are not zero.
    Counters,
    /// The flows known.
    Flows,
    /// Counters to zero; flows are forgotten.
    Reset,
    /// Logs on the serial line, or none.
    Logs(bool),
    /// Starts anew.
    Reboot,
}

/// The fault of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem<'a> {
    /// There is no such command.
    Unknown(&'a str),
    /// There is no such setting of a rule.
    Setting(&'a str),
    /// A setting that stands there twice.
    Twice(&'a str),
    /// A setting's value, and what was expected.
    Value(&'a str, &'static str),
    /// Something stands behind the command.
    Excess(&'a str),
    /// Something is missing.
    Missing(&'static str),
    /// Codec 1 refuses the bound or the scale.
    Params(gradwire::codec::ParamsError),
    /// Codec 2 refuses the bound that bound and scale make.
    Bound(gradwire::codec::bit_plane::BoundError),
}

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(f, "no command '{word}': help lists them"),
            Self::Setting(word) => write!(f, "no setting '{word}': help lists them"),
            Self::Twice(name) => write!(f, "'{name}' stands there twice"),
            Self::Value(value, expected) => write!(f, "'{value}': expected {expected}"),
            Self::Excess(word) => write!(f, "'{word}' is too much"),
            Self::Missing(what) => write!(f, "missing: {what}"),
            Self::Params(refused) => write!(f, "{refused}"),
            Self::Bound(refused) => write!(f, "{refused}"),
        }
    }
}

/// The lines of `help`.
pub const HELP: &[&str] = &[
    "rules                  rules in force, the first match first",
    "rule add SETTING...    append a rule; settings not given are those of the default",
    "    profile=inceptionn (first: as the NIC of the paper)",
    "    tos=0x28  mask=0xfc  codec=1|2  bound=10  split=dense|paper (codec 1)  scale=0",
    "    framing=routed|in-place  alignment=connection|payload  handshake=required|off",
    "    heuristic=on|off  udp-offset=0 (handshake off)",
    "rule remove N          remove rule N",
    "rule default           the rules and the mark of the start",
    "mark 0x30              type of service of compressed frames",
    "counters               all counts that are not zero",
    "flows                  TCP flows with a place in the table",
    "reset                  counters to zero, flows forgotten",
    "logs on|off            log frames (defmt) between the text",
    "reboot                 start anew",
];

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub fn parse(line: &str) -> Result<Command, Problem<'_>> {
    let mut words = line.split_ascii_whitespace();
    let Some(verb) = words.next() else { return Ok(Command::Nothing) };
    let command = match verb {
        "help" | "?" => Command::Help,
        "rules" => Command::Rules,
        "counters" => Command::Counters,
        "flows" => Command::Flows,
        "reset" => Command::Reset,
        "reboot" => Command::Reboot,
        "mark" => Command::Mark(byte(words.next().ok_or(Problem::Missing("a type of service"))?)?),
        "logs" => match words.next() {
            Some("on") => Command::Logs(true),
            Some("off") => Command::Logs(false),
            Some(other) => return Err(Problem::Value(other, "on or off")),
            None => return Err(Problem::Missing("on or off")),
        },
        "rule" => match words.next() {
            Some("add") => return rule(words).map(Command::AddRule),
            Some("remove") => {
                let number = words.next().ok_or(Problem::Missing("the number of a rule"))?;
                Command::RemoveRule(number.parse().map_err(|_| Problem::Value(number, "a number"))?)
            }
            Some("default") => Command::DefaultRules,
            Some(other) => return Err(Problem::Value(other, "add, remove or default")),
            None => return Err(Problem::Missing("add, remove or default")),
        },
        other => return Err(Problem::Unknown(other)),
    };
    words.next().map_or(Ok(command), |word| Err(Problem::Excess(word)))
}

/// A setting that is written a second time would be ignored the first time.
fn once<'a, T>(setting: &mut Option<T>, name: &'a str, value: T) -> Result<(), Problem<'a>> {
    match setting.replace(value) {
        Some(_) => Err(Problem::Twice(name)),
        None => Ok(()),
    }
}

/// The default rule with the settings given.
fn rule<'a>(settings: impl Iterator<Item = &'a str>) -> Result<Rule, Problem<'a>> {
    let mut settings = settings.peekable();
    // All settings of one system; those behind it may differ.
    let (of, split_of) = match settings.next_if_eq(&"profile=inceptionn") {
        Some(_) => (Rule::INCEPTIONN, Split::Paper),
        None => (RULE, Split::Dense),
    };
    let (mut tos, mut mask, mut framing, mut alignment) = (None, None, None, None);
    let (mut handshake, mut heuristic, mut udp_offset) = (None, None, None);
    let (mut codec, mut bound, mut split, mut scale) = (None, None, None, None);
    for setting in settings {
        let (name, value) = setting.split_once('=').ok_or(Problem::Setting(setting))?;
        let other = |expected| Problem::Value(value, expected);
        match name {
            "tos" => once(&mut tos, name, byte(value)?)?,
            "mask" => once(&mut mask, name, byte(value)?)?,
            "codec" => {
                let bit_plane = match value {
                    "1" => false,
                    "2" => true,
                    _ => return Err(other("1 or 2")),
                };
                once(&mut codec, name, bit_plane)?;
            }
            "bound" => once(&mut bound, name, value.parse().map_err(|_| other("a number"))?)?,
            "scale" => {
                let number = value.parse().map_err(|_| other("a number from -128 to 127"))?;
                once(&mut scale, name, number)?;
            }
            "heuristic" => {
                let heuristic_of = Heuristic::from_name(value).ok_or(other("on or off"))?;
                once(&mut heuristic, name, heuristic_of)?;
            }
            "handshake" => {
                let handshake_of = Handshake::from_name(value).ok_or(other("required or off"))?;
                once(&mut handshake, name, handshake_of)?;
            }
            "udp-offset" => once(&mut udp_offset, name, byte(value)?)?,
            "split" if value == "none" => once(&mut split, name, None)?,
            "split" => {
                let split_of = Split::from_name(value).ok_or(other("dense or paper"))?;
                once(&mut split, name, Some(split_of))?;
            }
            "framing" => {
                let framing_of = Framing::from_name(value).ok_or(other("routed or in-place"))?;
                once(&mut framing, name, framing_of)?;
            }
            "alignment" => {
                let alignment_of = Alignment::from_name(value).ok_or(other("connection or payload"))?;
                once(&mut alignment, name, alignment_of)?;
            }
            other => return Err(Problem::Setting(other)),
        }
    }
    let (bound, scale) = (bound.unwrap_or(Params::DEFAULT.b().into()), scale.unwrap_or(Params::DEFAULT.x()));
    let profile = match (codec.unwrap_or(false), split) {
        (true, None | Some(None)) => {
            Bound::from_exponents(i16::saturating_neg(bound), scale).map_err(Problem::Bound)?.into()
        }
        (true, Some(Some(split))) => return Err(Problem::Value(split.name(), "none: codec 2 has no split")),
        (false, Some(None)) => return Err(Problem::Value("none", "dense or paper, or codec=2")),
        (false, split) => {
            // What does not fit into the type is as wrong as 0.
            let split = split.flatten().unwrap_or(split_of);
            Params::new(u8::try_from(bound).unwrap_or(0), split, scale).map_err(Problem::Params)?.into()
        }
    };
    Ok(Rule {
        tos: tos.unwrap_or(of.tos),
        mask: mask.unwrap_or(of.mask),
        profile,
        framing: framing.unwrap_or(of.framing),
        alignment: alignment.unwrap_or(of.alignment),
        handshake: handshake.unwrap_or(of.handshake),
        heuristic: heuristic.unwrap_or(of.heuristic),
        udp_offset: udp_offset.unwrap_or(of.udp_offset),
    })
}

fn byte(text: &str) -> Result<u8, Problem<'_>> {
    let number = match text.strip_prefix("0x") {
        // A sign would be taken for part of the number.
        Some(hex) if !hex.starts_with('+') => u8::from_str_radix(hex, 16),
        _ => text.parse(),
    };
    number.map_err(|_| Problem::Value(text, "a number from 0 to 255 or from 0x00 to 0xff"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_help_names_is_one() {
        let examples = [
            ("", Command::Nothing),
            (" help ", Command::Help),
            ("rules", Command::Rules),
            ("rule add", Command::AddRule(RULE)),
            ("rule remove 3", Command::RemoveRule(3)),
            ("rule default", Command::DefaultRules),
            ("mark 0x38", Command::Mark(0x38)),
            ("mark 56", Command::Mark(0x38)),
            ("counters", Command::Counters),
            ("flows", Command::Flows),
            ("reset", Command::Reset),
            ("logs off", Command::Logs(false)),
            ("logs\ton", Command::Logs(true)),
            ("reboot", Command::Reboot),
        ];
        for (line, command) in examples {
            assert_eq!(parse(line), Ok(command), "{line}");
        }
        for line in HELP.iter().filter(|line| !line.starts_with(' ')) {
            let words: Vec<_> = line.split_whitespace().take(2).collect();
            let known =
                examples.iter().any(|(example, _)| example.split_whitespace().next() == Some(words[0]));
            assert!(known, "{line}");
        }
    }

    #[test]
    fn a_rule_takes_its_settings_and_the_default_for_the_rest() {
        let line = "rule add tos=0x50 bound=6 split=paper scale=-3 framing=in-place alignment=payload handshake=off heuristic=off udp-offset=8";
        let params = Params::new(6, Split::Paper, -3).unwrap();
        let rule = Rule {
            tos: 0x50,
            mask: 0xfc,
            profile: params.into(),
            framing: Framing::InPlace,
            alignment: Alignment::Payload,
            handshake: Handshake::Off,
            heuristic: Heuristic::Off,
            udp_offset: 8,
        };
        assert_eq!(parse(line), Ok(Command::AddRule(rule)));
        let rule = Rule { profile: Bound::new(-7).unwrap().into(), ..RULE };
        assert_eq!(parse("rule add codec=2 bound=10 scale=3"), Ok(Command::AddRule(rule)));
        // As the answer to `rules` has it, which is a command again.
        assert_eq!(parse("rule add codec=2 bound=7 split=none"), Ok(Command::AddRule(rule)));
        assert_eq!(parse("rule add profile=inceptionn"), Ok(Command::AddRule(Rule::INCEPTIONN)));
        let rule = Rule { profile: Params::new(8, Split::Paper, 0).unwrap().into(), ..Rule::INCEPTIONN };
        assert_eq!(parse("rule add profile=inceptionn bound=8"), Ok(Command::AddRule(rule)));
        // What is written counts also if it is the default.
        let heuristic = Heuristic::On;
        let rule = Rule { mask: 0xfc, handshake: Handshake::Required, heuristic, ..Rule::INCEPTIONN };
        let line = "rule add profile=inceptionn mask=0xfc handshake=required heuristic=on";
        assert_eq!(parse(line), Ok(Command::AddRule(rule)));
        assert_eq!(parse("rule add bound=8 profile=inceptionn"), Err(Problem::Setting("profile")));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (line, message) in [
            ("rulez", "no command 'rulez': help lists them"),
            ("rules now", "'now' is too much"),
            ("rule", "missing: add, remove or default"),
            ("rule remove", "missing: the number of a rule"),
            ("rule remove x", "'x': expected a number"),
            ("rule add tos", "no setting 'tos': help lists them"),
            ("rule add color=red", "no setting 'color': help lists them"),
            ("rule add tos=0x100", "'0x100': expected a number from 0 to 255 or from 0x00 to 0xff"),
            ("rule add tos=0x+1", "'0x+1': expected a number from 0 to 255 or from 0x00 to 0xff"),
            ("rule add codec=3", "'3': expected 1 or 2"),
            ("rule add split=half", "'half': expected dense or paper"),
            ("rule add handshake=1", "'1': expected required or off"),
            ("rule add heuristic=1", "'1': expected on or off"),
            ("mark", "missing: a type of service"),
            // Nothing that is written is ignored.
            ("rule add bound=8 tos=0x50 bound=10", "'bound' stands there twice"),
            ("rule add handshake=off handshake=required", "'handshake' stands there twice"),
            ("rule add profile=inceptionn profile=inceptionn", "no setting 'profile': help lists them"),
            ("rule add codec=2 split=dense", "'dense': expected none: codec 2 has no split"),
            ("rule add split=none", "'none': expected dense or paper, or codec=2"),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), message);
        }
        assert!(matches!(parse("rule add bound=15"), Err(Problem::Params(_))));
        assert!(matches!(parse("rule add codec=2 bound=95"), Err(Problem::Bound(_))));
        assert!(matches!(parse("rule add scale=-81"), Err(Problem::Params(_))));
    }
}
