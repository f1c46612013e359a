//! Logs, decoded as `defmt-print` would.

use std::time::{Duration, Instant};

use defmt_decoder::{DecodeError, Table};
use gradwire::forward::Port;
use gradwire_testbench::softcore::machine::{Machine, PATIENCE};
use softcore::logs::{END, START};

use super::firmware;

/// The messages of the core's log so far.
struct Log {
    table: Table,
    messages: Vec<String>,
}

impl Log {
    fn new() -> Self {
        let elf = std::fs::read(firmware().image).unwrap();
        Self { table: Table::parse(&elf).unwrap().expect("the image has logs"), messages: Vec::new() }
    }

    fn read(&mut self, core: &mut Machine) {
        for frame in core.logs() {
            let mut decoder = self.table.new_stream_decoder();
            decoder.received(&frame);
            decoder.received(&[0]);
            match decoder.decode() {
                Ok(frame) => self.messages.push(frame.display_message().to_string()),
                Err(DecodeError::UnexpectedEof) => panic!("half a frame: {frame:?}"),
                Err(DecodeError::Malformed) => panic!("malformed: {frame:?}"),
            }
        }
    }

    /// Waits for a message that contains `text`.
    fn expect(&mut self, core: &mut Machine, text: &str) {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            self.read(core);
            if self.messages.iter().any(|message| message.contains(text)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no '{text}' in {:#?}", self.messages);
    }
}

#[test]
fn outcomes_are_logged() {
    let (mut core, mut log) = (Machine::start(&firmware()).unwrap(), Log::new());
    log.expect(&mut core, "nics up");
    log.expect(&mut core, "1 rules, MTU 1500, 256 flows");
    core.send(Port::Host, &[4; 100]).unwrap();
    log.expect(&mut core, "FrameCounts { frames: 1, compressed: 0, restored: 0, dropped: 0 }");
    core.command("rule remove 0").unwrap();
    log.expect(&mut core, "console: RulesChanged");
    core.send(Port::Host, &[1; 10]).unwrap();
    log.expect(&mut core, "runts: 1");
    core.command("logs off").unwrap();
    log.read(&mut core);
    let before = log.messages.len();
    core.command("rule default").unwrap();
    core.command("rules").unwrap();
    log.read(&mut core);
    assert_eq!(log.messages.len(), before, "{:#?}", log.messages);
}

/// `defmt-print` reads the whole line: text is malformed to it, and it goes on behind the next
/// zero.
#[test]
fn a_reader_that_knows_frames_only_skips_the_text() {
    let (mut core, log) = (Machine::start(&firmware()).unwrap(), Log::new());
    let frames = core.logs();
    let line = [
        b"gradwire> rules\r\n",
        &START[..],
        &frames[0],
        &[END],
        b"mark 0x30\r\n",
        &START,
        &frames[0],
        &[END],
    ];
    let mut decoder = log.table.new_stream_decoder();
    decoder.received(&line.concat());
    let mut messages = Vec::new();
    loop {
        match decoder.decode() {
            Ok(frame) => messages.push(frame.display_message().to_string()),
            Err(DecodeError::Malformed) => {}
            Err(DecodeError::UnexpectedEof) => break,
        }
    }
    assert_eq!(messages, ["nics up", "nics up"]);
}

#[test]
fn a_link_that_goes_is_logged_counted_and_survived() {
    let (mut core, mut log) = (Machine::start(&firmware()).unwrap(), Log::new());
    core.set_link(Port::Network, false).unwrap();
    log.expect(&mut core, "Link { port: Network, up: false }");
    for _ in 0..300 {
        core.send(Port::Host, &[2; 100]).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    let lost = |core: &mut Machine| {
        let counters = core.counters().unwrap();
        counters.iter().find(|(name, _)| name == "host no-queue").map_or(0, |(_, count)| *count)
    };
    while lost(&mut core) < 300 {
        assert!(Instant::now() < until, "{:?}", core.counters());
    }
    assert!(core.counters().unwrap().contains(&("network link-lost".into(), 1)));
    core.set_link(Port::Network, true).unwrap();
    log.expect(&mut core, "Link { port: Network, up: true }");
    core.send(Port::Host, &[3; 100]).unwrap();
    assert_eq!(core.receive(Port::Network, PATIENCE).unwrap(), Some(vec![3; 100]));
}
