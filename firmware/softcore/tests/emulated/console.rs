//! The console, typed at.

use gradwire::forward::Port;
use gradwire::rules::Rule;
use gradwire_testbench::softcore::machine::{Machine, Options, PATIENCE};
use gradwire_testbench::softcore::rule_command;
use softcore::console::command::HELP;

use super::{firmware, image};

const DEFAULT: &str = "rule 0 tos=0x28 mask=0xfc codec=1 bound=10 split=dense scale=0 framing=routed alignment=connection handshake=required heuristic=off udp-offset=0\n";

#[test]
fn rules_are_shown_added_refused_and_removed() {
    let mut core = Machine::start(&firmware()).unwrap();
    assert_eq!(core.command("rules").unwrap(), format!("mark 0x30\n{DEFAULT}"));
    assert_eq!(core.command("rule add tos=0x50 framing=in-place bound=6 scale=-3").unwrap(), "");
    let second = "rule 1 tos=0x50 mask=0xfc codec=1 bound=6 split=dense scale=-3 framing=in-place alignment=connection handshake=required heuristic=off udp-offset=0\n";
    assert_eq!(core.command("rules").unwrap(), format!("mark 0x30\n{DEFAULT}{second}"));
    assert_eq!(core.command("rule add tos=0x30").unwrap(), "rule 2: matches the mark 0x30\n");
    assert_eq!(core.command("rule add").unwrap(), "rule 2: earlier rules match all of it\n");
    assert_eq!(core.command("rule add bound=15").unwrap(), "bound exponent 15, expected 1 to 14\n");
    assert_eq!(core.command("rule remove 2").unwrap(), "no rule 2: there are 2\n");
    assert_eq!(core.command("rule remove 0").unwrap(), "");
    assert_eq!(core.command("mark 0x28").unwrap(), "");
    assert_eq!(core.command("rules").unwrap(), format!("mark 0x28\n{}", second.replace("rule 1", "rule 0")));
    assert_eq!(core.command("rule default").unwrap(), "");
    assert_eq!(core.command("rules").unwrap(), format!("mark 0x30\n{DEFAULT}"));
    assert_eq!(core.command("ruels").unwrap(), "no command 'ruels': help lists them\n");
    for number in 1..16 {
        let rule = Rule { tos: 4 * number + 0x40, ..Rule::DEFAULT };
        assert_eq!(core.command(&rule_command(&rule).unwrap()).unwrap(), "");
    }
    assert_eq!(core.command("rule add tos=0xfc").unwrap(), "no room: 16 rules are the most\n");
}

#[test]
fn help_lists_the_commands_and_lines_can_be_edited() {
    let mut core = Machine::start(&firmware()).unwrap();
    assert_eq!(core.command("help").unwrap().lines().collect::<Vec<_>>(), HELP);
    core.type_in(b"rulx\x7f\x1b[Des\r").unwrap();
    assert!(core.prompt().unwrap().contains(DEFAULT.trim_end()));
    core.type_in(b"reboot\x03").unwrap();
    assert!(core.prompt().unwrap().ends_with("^C\r\n"));
    core.type_in(&[b'x'; 200]).unwrap();
    core.type_in(b"\x15rules\r").unwrap();
    assert!(core.prompt().unwrap().contains(DEFAULT.trim_end()));
}

#[test]
fn flows_and_counters_show_traffic_until_a_reset() {
    let mut core = Machine::start(&firmware()).unwrap();
    assert_eq!(core.command("flows").unwrap(), "");
    let capture = super::recording("ring4_mtu1450");
    for frame in capture.frames.iter().take(200) {
        core.send(Port::Host, &frame.bytes).unwrap();
        assert!(core.receive(Port::Network, PATIENCE).unwrap().is_some());
    }
    let counters = core.command("counters").unwrap();
    assert!(
        counters.contains("egress untouched no-rule ") && counters.contains("rule 0 frames "),
        "{counters}"
    );
    let flows = core.command("flows").unwrap();
    assert!(flows.lines().count() >= 2 && flows.contains(" > "), "{flows}");
    assert_eq!(core.command("reset").unwrap(), "");
    assert_eq!(core.command("flows").unwrap(), "");
    let counters = core.command("counters").unwrap();
    assert!(!counters.contains("egress"), "{counters}");
}

#[test]
fn a_reboot_starts_anew() {
    let mut core = Machine::start(&firmware()).unwrap();
    assert_eq!(core.command("rule remove 0").unwrap(), "");
    assert_eq!(core.command("reboot").unwrap(), "");
    assert!(core.prompt().unwrap().contains("help lists commands"));
    assert_eq!(core.command("rules").unwrap(), format!("mark 0x30\n{DEFAULT}"));
    core.send(Port::Host, &[1; 100]).unwrap();
    assert_eq!(core.receive(Port::Network, PATIENCE).unwrap(), Some(vec![1; 100]));
}

/// `reset` hangs in this image: nobody feeds the watchdog any more.
#[test]
fn the_watchdog_ends_a_hang() {
    let mut core = Machine::start(&Options::new(image("stall", "softcore"))).unwrap();
    core.type_in(b"reset\r").unwrap();
    // It hangs before it asks for another command, so the next prompt is that of the new start.
    assert!(core.prompt().unwrap().contains("help lists commands"));
    assert!(core.command("rules").unwrap().contains(DEFAULT.trim_end()));
}
