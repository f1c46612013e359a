//! Random and hostile frames: the core stays alive, its memory is what it was, its stack within its
//! bounds.

use std::time::{Duration, Instant};

use gradwire::forward::Port;
use gradwire::rules::Rule;
use gradwire_testbench::replay::{Engines, Setup};
use gradwire_testbench::softcore::machine::{Machine, Options, PATIENCE};
use object::{Object, ObjectSection, ObjectSymbol};

use super::random::Random;
use super::{firmware, recording};

/// Frames to each port; SOFTCORE_HOSTILE_FRAMES asks for more.
const FRAMES: u64 = 8_000;
/// Frames sent before those that come out are taken: fewer than the core has buffers.
const BATCH: usize = 8;
const RAM: u32 = 0x8000_0000;

/// A frame that is random, or a real one that was cut, lengthened or changed in some bytes.
fn hostile(random: &mut Random, real: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = real[random.below(real.len())].clone();
    match random.below(4) {
        0 => frame = (0..random.below(1600)).map(|_| random.next() as u8).collect(),
        1 => frame.truncate(random.below(frame.len() + 1)),
        2 => frame.resize(frame.len() + random.below(40), 0xa5),
        _ => {}
    }
    for _ in 0..random.below(4) {
        if !frame.is_empty() {
            // Headers more often than payloads.
            let reach = if random.below(2) == 0 { frame.len().min(90) } else { frame.len() };
            let at = random.below(reach);
            frame[at] = random.next() as u8;
        }
    }
    // An empty frame is none to a socket.
    frame.push(0);
    frame.truncate(1526);
    frame
}

/// Frames as hosts send them, and as they are on the wire.
fn real() -> [Vec<Vec<u8>>; 2] {
    let capture = recording("ring4_loss");
    let mut engines = Engines::new(&Setup::new(Rule::DEFAULT), &capture).unwrap();
    let frames = capture.frames.iter().map(|frame| frame.bytes.clone()).collect();
    let wire = capture.frames.iter().map(|frame| engines.send(frame).on_wire(&frame.bytes).unwrap().to_vec());
    [frames, wire.collect()]
}

fn drain(core: &mut Machine, patience: Duration) -> usize {
    let mut count = 0;
    for port in Port::ALL {
        while core.receive(port, patience).unwrap().is_some() {
            count += 1;
        }
    }
    count
}

/// The parts of a core's memory that must not change.
pub(super) struct Memory {
    code: Vec<u8>,
    bss_end: u32,
    stack_start: u32,
    reserved: u32,
}

impl Memory {
    pub(super) fn of(core: &mut Machine, options: &Options) -> Self {
        let elf = std::fs::read(&options.image).unwrap();
        let elf = object::File::parse(&*elf).unwrap();
        let symbol =
            |name: &str| elf.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address() as u32;
        assert!(elf.section_by_name(".text").unwrap().size() > 10_000);
        Self {
            code: core.memory(RAM, symbol("__erodata") - RAM).unwrap(),
            bss_end: symbol("__ebss"),
            stack_start: symbol("_stack_start"),
            reserved: elf.symbol_by_name("_stack_reserved").unwrap().address() as u32,
        }
    }

    /// Code and constants are what they were; between the last variable and the stack nothing was
    /// ever written.
    pub(super) fn is_unharmed(&self, core: &mut Machine) {
        let code = core.memory(RAM, self.code.len() as u32).unwrap();
        assert!(code == self.code, "code or constants changed");
        let above = core.memory(self.bss_end, self.stack_start - self.bss_end).unwrap();
        let used = above.len() - above.iter().position(|byte| *byte != 0).unwrap();
        println!("stack: {used} bytes used, {} reserved", self.reserved);
        assert!(used > 100 && used < self.reserved as usize, "the stack took {used} of {}", self.reserved);
    }
}

#[test]
fn hostile_frames_change_nothing() {
    let options = firmware();
    let mut core = Machine::start(&options).unwrap();
    let memory = Memory::of(&mut core, &options);
    let real = real();
    let mut random = Random(0x5eed);
    let frames = std::env::var("SOFTCORE_HOSTILE_FRAMES").ok().map_or(FRAMES, |count| count.parse().unwrap());
    let (mut sent, mut received) = (0, 0);
    while sent < 2 * frames as usize {
        for (port, real) in Port::ALL.into_iter().zip(&real) {
            for _ in 0..BATCH {
                core.send(port, &hostile(&mut random, real)).unwrap();
                sent += 1;
            }
        }
        received += drain(&mut core, Duration::from_millis(1));
    }

    // Alive, and every frame is accounted for, as soon as the last ones are through.
    let end = Instant::now() + PATIENCE;
    loop {
        received += drain(&mut core, Duration::from_millis(100));
        let counters = core.counters().unwrap();
        let sum = |of: &dyn Fn(&str) -> bool| -> usize {
            counters.iter().filter(|(name, _)| of(name)).map(|(_, count)| *count as usize).sum()
        };
        let dropped = sum(&|name| name.contains(" dropped ") || name.ends_with("no-queue"));
        let refused = sum(&|name| name.ends_with(" runt") || name.ends_with(" oversize"));
        assert_eq!(sum(&|name| name.ends_with(" violation")), 0);
        if sent == received + dropped + refused {
            assert!(received > sent / 2 && dropped > 0 && refused > 0, "{counters:#?}");
            break;
        }
        assert!(Instant::now() < end, "{received} of {sent} came out: {counters:#?}");
    }
    // No buffer was lost: more frames than there are buffers still cross.
    let frame = [7; 200];
    for _ in 0..300 {
        core.send(Port::Host, &frame).unwrap();
        assert_eq!(core.receive(Port::Network, PATIENCE).unwrap().as_deref(), Some(&frame[..]));
    }
    memory.is_unharmed(&mut core);
}
