//! `gradwire replay`: a capture through both engines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gradwire::rules::{Alignment, DEFAULT_TOS, ECN, Framing, Handshake, Heuristic, Rule};

use super::args::codec::CodecArgs;
use crate::error::{Error, Outcome};
use crate::from_wire::{from_wire, rule_of};
use crate::input::recordings::{display, read};
use crate::input::{Capture, Writer};
use crate::replay::{Engines, Passage, Setup};
use crate::report;
use crate::report::{ProgressBar, page, pages};
use crate::rtl::{self, Costs};
use crate::verify::frame::type_of_service;
use crate::verify::usefulness::Remark;
use crate::verify::{self, Findings};

/// Sends every frame of a capture through the sender's egress engine, the wire, and the receiver's
/// ingress engine, and checks what arrives.
///
/// Checked: untagged frames arrive byte-identical; restored frames have their length, headers and
/// valid checksums, as another parser verifies; every value is within the bound; what TCP sends
/// again goes out raw, and no byte of a stream is compressed twice; nothing is dropped; each tagged
/// TCP stream, reassembled with the first and with the last copy of every byte, is within the bound
/// of what was sent.
///
/// If no tagged frame has payload, or no value was compressed, nothing was verified, and the exit
/// code is 2.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
JSON: {\"codec\", \"frames\", \"tagged\", \"compressed\", \"untouched\": {reason: n}, \"dropped\": {reason: n}, \"wire_bytes_in\",
\"wire_bytes_out\", \"values\", \"max_error\", \"norm_lost\", \"violations\", \"altered_untagged\", \"ok\", \"useful\", \"mixed\": [text], \"warnings\": [text]}.
`mixed` has the connections that carry something else than values, which must not be tagged: the exit code is then 1.
`useful` is null if no value was compressed, and false if less than half of the norm is left: the exit code is then 1.
Wire bytes are those of tagged frames with payload: at least 60 each, and 24 for preamble, FCS and gap.
`remarked` counts, where there are any, frames that carried the mark of compressed frames and lost it; `options_added` SYNs that left with the
handshake's option and arrived without; `oversized` segments longer than frames on the wire, with which the ratio is too high.

Capture whole frames on one side of the path, from before the connections open, and in both directions: where
values start is known from the SYN that the other side acknowledged. A host that leaves segmentation to its card shows frames that never were on the wire.
  tcpdump -i eth0 -s 0 -w ring.pcap

--engine rtl needs verilator, g++ and make, and builds the simulation when it is first used, in less than a minute. The table then has the
clocks of each engine for all compressed frames, back to back, the clocks in which a beat waited, and the longest time from a frame's first beat
in to its first beat out. JSON has them as \"rtl\": {\"compressor\", \"decompressor\"}, each {\"frames\", \"beats\", \"clocks\", \"stalls\", \"latency\"}.

--from-wire is for captures of the wire itself, such as those of a switch's mirror port. A receiver's ingress restores the
compressed frames; routed ones carry their parameters, and in-place ones get those that the capture's SYNs say, or else those
of the options. The report has what was restored and refused, with reasons; errors cannot be known, since the values that were
sent are not in the capture. If a compressed frame is refused, the exit code is 1; if there is none, 2.
JSON: {\"frames\", \"cut\", \"restored\", \"dropped\": {reason: n}, \"untouched\": {reason: n}, \"tagged\", \"profiles\": {name: n},
\"handshakes\": {name: n}, \"wire_bytes_in\", \"wire_bytes_out\", \"values\", \"zeros\", \"non_finite\", \"largest\", \"failures\": [text], \"ok\"}.

Examples:
  gradwire replay ring.pcap
  gradwire replay ring.pcapng --framing in-place --bound 6 --scale -3 --json
  gradwire replay ring.pcap --profile inceptionn     as the NIC of the paper would
  gradwire replay ring.pcap --write-wire wire.pcap --write-restored restored.pcap
  gradwire replay ring.pcap --engine rtl             as an FPGA card would
  gradwire replay mirror.pcap --from-wire            what a capture of the wire holds")]
pub struct Args {
    /// Capture to replay (pcap or pcapng, Ethernet), or - for standard input.
    pub capture: PathBuf,
    /// The form of headers on the wire: in-place leaves them as they are, for neighbours only;
    /// routed crosses routers.
    #[arg(long, default_value = "routed", value_parser = framing(), conflicts_with = "profile")]
    pub framing: Framing,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub codec: CodecArgs,
    /// Bytes at the start of every UDP payload that are not values.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub udp_offset: u8,
    /// Type of service that marks gradient traffic, as 0x28 or 40.
    #[arg(long, default_value = "0x28", value_parser = byte, conflicts_with = "profile")]
    pub tos: u8,
    /// Which bits of it count; 0xfc leaves out ECN.
    #[arg(long, default_value = "0xfc", value_parser = byte, conflicts_with = "profile")]
    pub mask: u8,
    /// The start of values in a TCP stream: every 4 bytes from its first, or at the start of every
    /// payload.
    #[arg(long, default_value = "connection", value_parser = alignment(), conflicts_with = "profile")]
    pub alignment: Alignment,
    /// Whether the two ends of a TCP connection agree on their SYNs, or are configured alike
    /// [default: required].
    #[arg(long, value_parser = handshake(), conflicts_with = "profile")]
    pub handshake: Option<Handshake>,
    /// The payload heuristic: whether payload that does not look like values goes untouched.
    #[arg(long, default_value = "on", value_parser = heuristic(), conflicts_with = "profile")]
    pub heuristic: Heuristic,
    /// The engine that codes the payloads: the host's engines, or also the gateware's, in a
    /// simulation that needs Verilator. The latter implies codec 1 and no handshake.
    #[arg(long, value_enum, default_value_t = Engine::Host)]
    pub engine: Engine,
    /// The capture was taken behind a shim or a card: restore its compressed frames, and report on
    /// them.
    #[arg(long, conflicts_with_all = ["write_wire", "write_restored", "html", "heuristic"])]
    pub from_wire: bool,
    /// Write the frames as they were on the wire to this pcap file.
    #[arg(long, value_name = "FILE", value_parser = report::output)]
    pub write_wire: Option<PathBuf>,
    /// Write the frames as they arrived to this pcap file.
    #[arg(long, value_name = "FILE", value_parser = report::output)]
    pub write_restored: Option<PathBuf>,
    /// Write one self-contained page with what became of the frames.
    #[arg(long, value_name = "FILE.html", value_parser = page::path)]
    pub html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The engine that codes payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// The host's engines.
    Host,
    /// The host's engines decide, and the gateware's code too; every frame is compared.
    Rtl,
}

impl Args {
    /// The arguments with what the engine implies.
    ///
    /// # Errors
    /// The engine does not do what is asked for.
    fn implied(&self) -> Result<Self, Error> {
        let mut args = self.clone();
        if args.engine == Engine::Host {
            return Ok(args);
        }
        if args.from_wire {
            return Err(Error::Usage("--engine rtl codes what hosts send: without --from-wire".into()));
        }
        if args.handshake.replace(Handshake::Off) == Some(Handshake::Required) {
            return Err(Error::Usage("the gateware has no handshake: without --handshake required".into()));
        }
        if args.codec.choice.profile.is_none() && *args.codec.choice.codec.get_or_insert(1) != 1 {
            return Err(Error::Usage("the gateware codes codec 1 alone: without --codec 2".into()));
        }
        Ok(args)
    }

    /// The rule that the options make.
    ///
    /// # Errors
    /// The codec refuses its parameters.
    pub fn rule(&self) -> Result<Rule, Error> {
        let (profile, udp_offset) = (self.codec.profile()?, self.udp_offset);
        if self.codec.choice.profile.is_some() {
            return Ok(Rule { profile, udp_offset, ..Rule::INCEPTIONN });
        }
        Ok(Rule {
            tos: self.tos,
            mask: self.mask,
            profile,
            framing: self.framing,
            alignment: self.alignment,
            handshake: self.handshake.unwrap_or_default(),
            heuristic: self.heuristic,
            udp_offset,
        })
    }
}

/// Replays what `args` name and reports to `out`. Warnings go to standard error, and failures too
/// if `out` gets JSON.
///
/// # Errors
/// The capture cannot be read, an output not be written, or the rule contradicts itself.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let args = &args.implied()?;
    let setup = Setup { kernel: args.codec.kernel(), ..Setup::new(args.rule()?) };
    let name = display(&args.capture);
    let capture = Capture::parse(&name, &read(&args.capture)?)?;
    if args.from_wire {
        return restore(args, out, &setup, &capture);
    }
    let (mut report, passages) = replay(&setup, &capture)?;
    let costs = match args.engine {
        Engine::Host => None,
        Engine::Rtl => Some(rtl::code(&setup, &capture, &passages, &mut report)?),
    };
    self::report(args, out, &capture, &report, &passages, costs.as_ref())
}

/// The findings, and what the gateware took if it was asked.
#[derive(serde::Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    findings: &'a Findings,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtl: Option<&'a Costs>,
}

/// Writes what `args` ask for: captures, then the table or JSON. Warnings go to standard error.
///
/// # Errors
/// An output cannot be written, or nothing was verified: then the table or the JSON is there, with
/// the reasons.
pub fn report(
    args: &Args,
    out: &mut impl Write,
    capture: &Capture,
    report: &Findings,
    passages: &[Passage],
    costs: Option<&Costs>,
) -> Result<Outcome, Error> {
    let name = display(&args.capture);
    if report.payloads() == 0 {
        let Rule { tos, mask, .. } = args.rule()?;
        let seen = seen(capture);
        return Err(Error::Usage(format!(
            "{name}: nothing was verified: no frame with payload has a type of service that the rule matches \
             ({tos:#04x} under {mask:#04x}); there are {seen}"
        )));
    }
    let frames = || capture.frames.iter().zip(passages);
    if let Some(path) = &args.write_wire {
        write(path, frames().map(|(frame, passage)| (frame.time, passage.on_wire(&frame.bytes))))?;
    }
    if let Some(path) = &args.write_restored {
        write(path, frames().map(|(frame, passage)| (frame.time, passage.delivered(&frame.bytes))))?;
    }
    for mixed in &report.mixed {
        eprintln!("gradwire: {mixed}");
    }
    if let Some(path) = &args.html {
        pages::replayed(&name, report).write(path, report)?;
    }
    for warning in report.warnings.iter().cloned().chain(report.remarks.iter().map(Remark::to_string)) {
        eprintln!("gradwire: warning: {warning}");
    }
    if args.json {
        report::json(out, &Json { findings: report, rtl: costs })?;
        for failure in &report.failures {
            eprintln!("gradwire: {failure}");
        }
    } else {
        report::replayed(out, &name, &args.rule()?, report)?;
        if let Some(costs) = costs {
            report::coded_by_rtl(out, costs)?;
        }
        writeln!(out)?;
        report::outcomes(out, &[report])?;
        let frames = format!("{} frames", report.frames);
        if report.ok && !report.mixed.is_empty() {
            writeln!(
                out,
                "NOT values alone, connections that must not be tagged: {}; every check held: {frames}",
                report.mixed.len()
            )?;
        } else if !(report.ok && report.useful.is_none()) {
            report::conclusion(out, report.ok, report.useful, &frames)?;
        }
    }
    // What held for no value is no good news.
    if report.ok && report.mixed.is_empty() && report.useful.is_none() {
        let reasons: Vec<String> =
            report.untouched.iter().map(|(reason, frames)| format!("{reason} {frames}")).collect();
        return Err(Error::Usage(format!(
            "{name}: nothing was verified: no value was compressed; tagged frames with payload went untouched: {}",
            reasons.join(", ")
        )));
    }
    Ok(Outcome::from_ok(report.ok && report.mixed.is_empty() && report.useful != Some(false)))
}

/// Reports on a capture that was taken on the wire.
fn restore(args: &Args, out: &mut impl Write, setup: &Setup, capture: &Capture) -> Result<Outcome, Error> {
    let setup = Setup { rules: vec![rule_of(capture, args.rule()?)], ..setup.clone() };
    let name = display(&args.capture);
    let report = from_wire(&setup, capture).map_err(|refused| Error::Usage(refused.to_string()))?;
    if report.compressed() == 0 {
        let seen = seen(capture);
        return Err(Error::Usage(format!(
            "{name}: nothing was verified: no frame carries the mark of compressed frames ({:#04x}), and none is shorter than its \
             IP packet under an in-place rule; there are {seen}",
            setup.mark
        )));
    }
    if args.json {
        report::json(out, &report)?;
    } else {
        report::from_wire(out, &name, &report)?;
    }
    Ok(Outcome::from_ok(report.ok))
}

/// The types of service in a capture, for who asked for another.
fn seen(capture: &Capture) -> String {
    let mut seen = BTreeMap::<u8, u64>::new();
    for tos in capture.frames.iter().filter_map(|frame| type_of_service(&frame.bytes)) {
        *seen.entry(tos).or_default() += 1;
    }
    if capture.frames.is_empty() {
        return "no frames".into();
    }
    if seen.is_empty() {
        return format!("{} frames, and none of them IP", capture.frames.len());
    }
    let counts: Vec<String> = seen.iter().map(|(tos, frames)| format!("{tos:#04x} in {frames}")).collect();
    format!("{} frames, with type of service {}", capture.frames.len(), counts.join(", "))
}

/// Sends all of `capture` through the engines, and verifies.
///
/// # Errors
/// The rule contradicts itself.
pub fn replay(setup: &Setup, capture: &Capture) -> Result<(Findings, Vec<Passage>), Error> {
    let mut engines = Engines::new(setup, capture).map_err(|refused| Error::Usage(refused.to_string()))?;
    let progress = ProgressBar::new("frames", capture.frames.len() as u64);
    let send = |frame| {
        progress.step();
        engines.send(frame)
    };
    let passages: Vec<Passage> = capture.frames.iter().map(send).collect();
    Ok((verify::verify(setup, capture, &passages), passages))
}

fn write<'a>(
    path: &Path,
    frames: impl Iterator<Item = (std::time::Duration, Option<&'a [u8]>)>,
) -> Result<(), Error> {
    let refused = |source| Error::io(path.display().to_string(), "write", source);
    let mut writer = Writer::new(BufWriter::new(File::create(path).map_err(refused)?)).map_err(refused)?;
    for (time, bytes) in frames {
        if let Some(bytes) = bytes {
            writer.frame(time, bytes).map_err(refused)?;
        }
    }
    writer.finish().map_err(refused)
}

fn byte(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| "expected a number from 0 to 255 or from 0x00 to 0xff".into())
}

fn framing() -> impl TypedValueParser<Value = Framing> {
    PossibleValuesParser::new(Framing::ALL.map(Framing::name))
        .try_map(|name| Framing::from_name(&name).ok_or("no framing"))
}

fn heuristic() -> impl TypedValueParser<Value = Heuristic> {
    PossibleValuesParser::new(Heuristic::ALL.map(Heuristic::name))
        .try_map(|name| Heuristic::from_name(&name).ok_or("no such setting"))
}

fn handshake() -> impl TypedValueParser<Value = Handshake> {
    PossibleValuesParser::new(Handshake::ALL.map(Handshake::name))
        .try_map(|name| Handshake::from_name(&name).ok_or("no handshake"))
}

fn alignment() -> impl TypedValueParser<Value = Alignment> {
    PossibleValuesParser::new(Alignment::ALL.map(Alignment::name))
        .try_map(|name| Alignment::from_name(&name).ok_or("no alignment"))
}

// The texts of the options' defaults are those of the dataplane.
const _: () = assert!(DEFAULT_TOS == 0x28 && !ECN == 0xfc);
