//! Rules as registers, outcomes as places of counters.

use gradwire::codec::{Params, Split};
use gradwire::profile::Profile;
use gradwire::rules::{Alignment, Framing, Handshake, Heuristic, Rule, Rules};
use gradwire::verdict::{Change, DropReason, PassReason, Verdict};
use gradwire_gateware::Simulation;

pub const MARK: u8 = 0x30;

/// As many rules as there may be: both framings, both alignments, many parameters; the first is the
/// paper's, the fourth is for TCP alone, and the last matches much of what those before it match.
pub fn rules() -> Rules {
    let profile = |b, split, x| Profile::from(Params::new(b, split, x).unwrap());
    let plain = Rule { handshake: Handshake::Off, heuristic: Heuristic::Off, ..Rule::DEFAULT };
    let mut list = vec![
        Rule::INCEPTIONN,
        Rule { tos: 0x48, profile: profile(12, Split::Dense, -3), ..plain },
        Rule {
            tos: 0x68,
            framing: Framing::InPlace,
            udp_offset: 5,
            profile: profile(6, Split::Dense, 2),
            ..plain
        },
        Rule { tos: 0x88, handshake: Handshake::Required, heuristic: Heuristic::Off, ..Rule::DEFAULT },
        Rule { tos: 0xa8, alignment: Alignment::Payload, udp_offset: 250, ..plain },
    ];
    list.extend((0..10).map(|n| Rule {
        tos: 0xc0 + 4 * n,
        framing: Framing::ALL[usize::from(n % 2)],
        udp_offset: n,
        profile: profile(4 + n, Split::Dense, 60 - 14 * n as i8),
        ..plain
    }));
    list.push(Rule { tos: 0x40, mask: 0x40, ..plain });
    Rules::new(&list, MARK).unwrap()
}

/// Writes rules and MTU to the registers.
pub fn configure(simulation: &mut Simulation, rules: &Rules, mtu: u16) {
    simulation.write(0x008, rules.mark().into()).unwrap();
    simulation.write(0x00c, mtu.into()).unwrap();
    for (place, rule) in rules.as_slice().iter().enumerate() {
        let at = 0x100 + 8 * place as u16;
        let [_, bk, x] = rule.profile.to_bytes();
        let first = u32::from_be_bytes([bk, x, rule.mask, rule.tos]);
        let flags = [
            (8, rule.framing == Framing::Routed),
            (9, rule.alignment == Alignment::Payload),
            (10, rule.handshake == Handshake::Off),
            (31, true),
        ];
        let second =
            flags.iter().fold(u32::from(rule.udp_offset), |word, (bit, on)| word | u32::from(*on) << bit);
        simulation.write(at, first).unwrap();
        simulation.write(at + 4, second).unwrap();
        assert_eq!((simulation.read(at).unwrap(), simulation.read(at + 4).unwrap()), (first, second));
    }
}

/// The place of a verdict's counter.
pub fn place(verdict: Verdict) -> u8 {
    fn of<T: PartialEq>(all: &[T], one: &T) -> u8 {
        all.iter().position(|other| other == one).unwrap() as u8
    }
    match verdict {
        Verdict::Changed { change, .. } => of(Change::ALL, &change),
        Verdict::Untouched(reason) => 8 + of(PassReason::ALL, &reason),
        Verdict::Dropped(reason) => 40 + of(DropReason::ALL, &reason),
    }
}

/// A place's name.
pub fn name(place: u8) -> String {
    let at = usize::from(place);
    let name = match at {
        0..8 => Change::ALL.get(at).map(|change| change.name()),
        8..40 => PassReason::ALL.get(at - 8).map(|reason| reason.name()),
        _ => DropReason::ALL.get(at - 40).map(|reason| reason.name()),
    };
    format!("{place} {}", name.unwrap_or("?"))
}

/// A counter of a direction; the registers of egress begin at 0x200, those of ingress at 0x400.
pub fn counter(simulation: &mut Simulation, direction: u16, place: u8) -> u64 {
    let at = direction + 8 * u16::from(place);
    let low = simulation.read(at).unwrap();
    u64::from(simulation.read(at + 4).unwrap()) << 32 | u64::from(low)
}
