//! Checks that both directions of a card's path share.

use gradwire::rules::{Heuristic, Rule, Rules};
use gradwire_gateware::{Batch, Design, Outcome, Pauses, Simulation};

use super::compare::{Expected, batch, run};
use super::settings::{MARK, configure, counter, rules};
use super::traffic::{PAUSES, both_ways, from_wire, full_frames, of_host};
use crate::support::Random;

/// A direction of a card's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Egress,
    Ingress,
}

impl Direction {
    pub fn design(self) -> Design {
        Design::new(match self {
            Self::Egress => "gw_egress",
            Self::Ingress => "gw_ingress",
        })
    }

    /// Random frames for it, up to so many bytes of payload, an MTU of 1500.
    fn frames(self, random: &mut Random, count: usize, longest: usize) -> Vec<Expected> {
        match self {
            Self::Egress => of_host(random, count, longest),
            Self::Ingress => from_wire(random, count, longest, 1500),
        }
    }

    /// The address of its counters.
    pub const fn counters(self) -> u16 {
        match self {
            Self::Egress => 0x200,
            Self::Ingress => 0x400,
        }
    }

    /// The counter of frames that it codes.
    fn coded(self) -> u8 {
        match self {
            Self::Egress => 0,
            Self::Ingress => 2,
        }
    }

    /// The frames that enter it, of those that a host sent and those that were on the wire.
    fn entering(self, (sent, received): (Vec<Expected>, Vec<Expected>)) -> Vec<Expected> {
        match self {
            Self::Egress => sent,
            Self::Ingress => received,
        }
    }
}

/// The paper's rule, and one with routed framing.
pub fn framings() -> [Rules; 2] {
    let routed = Rule { heuristic: Heuristic::Off, ..Rule::STATIC };
    [Rule::INCEPTIONN, routed].map(|rule| Rules::new(&[rule], MARK).unwrap())
}

/// Beats of a frame before compression: those that the engine's other side has, if it is coded.
pub fn beats(expected: &Expected) -> usize {
    let out = expected.out.as_ref().map_or(0, Vec::len);
    expected.bytes.len().max(out).div_ceil(32)
}

/// Clocks from the first beat in to the last beat out of a port.
pub fn clocks(outcome: &Outcome, port: u8) -> u64 {
    let frames = outcome.frames.iter().filter(|frame| frame.port == port);
    frames.map(|frame| frame.last).max().unwrap() - outcome.sent[0].first
}

/// The number that are to be counted at a place.
fn of(expected: &[Expected], place: u8) -> usize {
    expected.iter().filter(|one| one.place == place).count()
}

/// Both recordings in both framings, back to back: a clock for each beat of the uncompressed
/// frames, and one for each frame, which is the engine's. `and` looks at each run.
pub fn recordings_pass_a_beat_a_clock(direction: Direction, and: impl Fn(&mut Simulation, &[Expected])) {
    let mut simulation = direction.design().start().unwrap();
    for name in ["ring4_mtu1450.pcap", "ring4_loss.pcap"] {
        for rules in framings() {
            simulation.reset().unwrap();
            configure(&mut simulation, &rules, 1500);
            let (sent, received) = both_ways(name, &rules);
            assert_eq!(of(&sent, 0), of(&received, 2));
            assert!(of(&sent, 0) > 100);
            let expected = direction.entering((sent, received));
            let outcome = run(&mut simulation, &expected, Pauses::NONE, 1)
                .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            let (clocks, beats) = (clocks(&outcome, 0), expected.iter().map(beats).sum::<usize>());
            let frames = expected.len();
            println!(
                "{direction:?}, {name}, {:?}: {clocks} clocks, {beats} beats, {frames} frames",
                rules.as_slice()[0].framing
            );
            assert!(clocks <= (beats + frames + 500) as u64, "{clocks} clocks, {beats} beats");
            and(&mut simulation, &expected);
        }
    }
}

/// Frames of 1514 bytes full of recorded values, back to back: at 100 MHz at least 24 Gbit/s of
/// uncompressed frames, in both framings.
pub fn full_frames_pass_at_24_gbit_per_second(direction: Direction) {
    let mut simulation = direction.design().start().unwrap();
    for rules in framings() {
        simulation.reset().unwrap();
        configure(&mut simulation, &rules, 1500);
        let expected = direction.entering(full_frames(&rules, 500));
        assert!(expected.iter().all(|one| one.place == direction.coded()));
        let outcome = run(&mut simulation, &expected, Pauses::NONE, 1).unwrap();
        let bits = 8 * expected
            .iter()
            .map(|one| one.bytes.len().max(one.out.as_ref().unwrap().len()))
            .sum::<usize>();
        // From end to end, so that the way through the empty path does not count.
        let mut ends = outcome.frames.iter().filter(|frame| frame.port == 0).map(|frame| frame.last);
        let (first, last) = (ends.next().unwrap(), ends.next_back().unwrap());
        let frames = expected.len();
        let clocks_a_frame = (last - first) as f64 / (frames - 1) as f64;
        let gbits = bits as f64 / frames as f64 / clocks_a_frame / 10.0;
        println!(
            "{direction:?}, {:?}: {clocks_a_frame:.2} clocks a frame, {gbits:.1} Gbit/s",
            rules.as_slice()[0].framing
        );
        assert!(gbits >= 24.0, "{gbits} Gbit/s");
    }
}

/// A frame alone in the path waits for its own beats, and a number of clocks.
pub fn a_lone_frame_waits_no_longer_than_the_readme_says(direction: Direction) {
    let mut simulation = direction.design().start().unwrap();
    let rules = Rules::new(&[Rule::INCEPTIONN], MARK).unwrap();
    configure(&mut simulation, &rules, 1500);
    let expected = direction.entering(both_ways("ring4_mtu1450.pcap", &rules));
    for (coded, most) in [(false, 24), (true, 75)] {
        let long = |one: &&Expected| {
            (one.place == direction.coded()) == coded
                && one.out.as_ref().is_some_and(|out| out.len() + one.bytes.len() > 1200)
        };
        let one = expected.iter().find(long).unwrap();
        let outcome = run(&mut simulation, std::slice::from_ref(one), Pauses::NONE, 1).unwrap();
        let frame = outcome.frames.iter().find(|frame| frame.port == 0).unwrap();
        let clocks = frame.first - outcome.sent[0].first;
        let (len_in, len_out) = (one.bytes.len().div_ceil(32), one.out.as_ref().unwrap().len().div_ceil(32));
        // It is stored once, or twice: beats that the engine works on count where there are more of
        // them.
        let stored = len_in + if coded { len_in.max(len_out) } else { 0 };
        println!(
            "{len_in} beats in, {len_out} out: {clocks} clocks from first to first, {stored} of them beats"
        );
        assert!(clocks <= (stored + most) as u64);
    }
}

pub fn a_reset_in_mid_frame_leaves_nothing_behind(direction: Direction) {
    let mut simulation = direction.design().start().unwrap();
    let mut random = Random::new(99);
    for round in 0..20 {
        let (pauses, seed) = (PAUSES[round as usize % 3], round + 1);
        configure(&mut simulation, &rules(), 1500);
        let expected = direction.frames(&mut random, 40, 1460);
        let cut = Batch { reset_at: Some(30 + 97 * round), ..batch(&expected, pauses, seed) };
        assert_eq!(simulation.run(&cut).unwrap().broken, "");
        configure(&mut simulation, &rules(), 1500);
        let expected = direction.frames(&mut random, 40, 1460);
        run(&mut simulation, &expected, pauses, seed)
            .unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        simulation.reset().unwrap();
    }
}

pub fn planted_faults_are_found(direction: Direction, faults: &[&str]) {
    for fault in faults {
        let mut simulation = direction.design().plant(fault).start().unwrap();
        configure(&mut simulation, &rules(), 1500);
        let mut seen = [0; 50];
        // A lost carry shows in one frame of some thousand.
        let found = (1..30).any(|seed| {
            let expected = direction.frames(&mut Random::new(seed), 400, 1460);
            expected.iter().for_each(|one| seen[usize::from(one.place)] += 1);
            run(&mut simulation, &expected, Pauses::NONE, 1).is_err()
                || (0..)
                    .zip(seen)
                    .any(|(place, count)| counter(&mut simulation, direction.counters(), place) != count)
        });
        assert!(found, "{fault} was not found");
    }
}
