//! All counts in Prometheus' text format 0.0.4, line by line. What means the same as in
//! `gradwire-xdp aggregate` has the same name, so that one dashboard shows both.

use core::fmt::{self, Write as _};

use gradwire::aggregate::{Arrival, Outcome};
use gradwire::engine::Millis;

use super::Line;
use crate::aggregation::{IP, KERNEL, SoftAggregator};
use crate::board::Faults;

/// Counts of segments and clients, and of frames that the aggregator sent; they wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that the aggregator sent.
    pub sent: u64,
    /// Segments that the stack got.
    pub segments: u64,
    /// Segments that were dropped because too many waited.
    pub no_queue: u64,
    /// Segments, in or out, for which there was no buffer or no room at the NIC, or nobody known to
    /// send them to.
    pub no_room: u64,
    /// Connections that were half open when another client wanted their place.
    pub displaced: u64,
    /// Clients that took too long.
    pub cut_off: u64,
}

/// The facts that metrics show.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The aggregator.
    pub aggregator: &'a SoftAggregator,
    /// Since the start.
    pub now: Millis,
    /// Faults at the network's NIC.
    pub faults: Faults,
    /// Whether that NIC has a link.
    pub link: bool,
    /// Restarts by a panic.
    pub panics: u32,
    /// The rest.
    pub counts: Counts,
}

/// Counts of one name.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: usize,
    /// Of the sample at this place: its labels beside that of the interface, and its value.
    sample: fn(&Facts<'_>, usize) -> (Labels, u64),
}

/// Labels of a sample beside `interface`.
enum Labels {
    None,
    One(&'static str, &'static str),
    /// The version and the place of what runs.
    Info,
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::One(name, value) => write!(f, ",{name}=\"{value}\""),
            Self::Info => {
                let (version, kernel) = (env!("CARGO_PKG_VERSION"), KERNEL.name());
                let port = gradwire::wire::chunk::PORT;
                write!(f, ",version=\"{version}\",kernel=\"{kernel}\",address=\"{IP}:{port}\"")
            }
        }
    }
}

const FAULTS: [&str; 5] = ["overrun", "oversize", "runt", "violation", "link-lost"];
const TCP: [&str; 5] = ["taken", "no-queue", "no-room", "displaced", "cut-off"];

const FAMILIES: &[Family] = &[
    Family {
        name: "gradwire_aggregator_info",
        kind: "gauge",
        help: "What runs; always 1.",
        samples: 1,
        sample: |_, _| (Labels::Info, 1),
    },
    Family {
        name: "gradwire_aggregator_uptime_seconds",
        kind: "gauge",
        help: "How long the aggregator has run.",
        samples: 1,
        sample: |facts, _| (Labels::None, facts.now.0 / 1000),
    },
    Family {
        name: "gradwire_aggregator_jobs",
        kind: "gauge",
        help: "Jobs that have a place.",
        samples: 1,
        sample: |facts, _| (Labels::None, facts.aggregator.engine.jobs().count() as u64),
    },
    Family {
        name: "gradwire_aggregator_children",
        kind: "gauge",
        help: "Children, workers or lower aggregators, that have joined them.",
        samples: 1,
        sample: |facts, _| {
            let children = facts.aggregator.engine.jobs().map(|(_, children)| children as u64);
            (Labels::None, children.sum())
        },
    },
    Family {
        name: "gradwire_aggregator_frames_total",
        kind: "counter",
        help: "Frames that the aggregator got, by what they were.",
        samples: Arrival::ALL.len(),
        sample: |facts, at| {
            let arrival = Arrival::ALL[at];
            (Labels::One("what", arrival.name()), facts.aggregator.count(arrival))
        },
    },
    Family {
        name: "gradwire_aggregator_datagrams_total",
        kind: "counter",
        help: "Datagrams among them, by what they did.",
        samples: Outcome::ALL.len(),
        sample: |facts, at| {
            let outcome = Outcome::ALL[at];
            (Labels::One("what", outcome.name()), facts.aggregator.engine.count(outcome))
        },
    },
    Family {
        name: "gradwire_aggregator_chunks_total",
        kind: "counter",
        help: "Chunks summed.",
        samples: 1,
        sample: |facts, _| (Labels::None, facts.aggregator.engine.count(Outcome::Completed)),
    },
    Family {
        name: "gradwire_aggregator_sent_frames_total",
        kind: "counter",
        help: "Frames that the aggregator sent.",
        samples: 1,
        sample: |facts, _| (Labels::None, facts.counts.sent),
    },
    Family {
        name: "gradwire_aggregator_link",
        kind: "gauge",
        help: "1 if the network's NIC has a link.",
        samples: 1,
        sample: |facts, _| (Labels::None, facts.link.into()),
    },
    Family {
        name: "gradwire_aggregator_faults_total",
        kind: "counter",
        help: "What went wrong at the network's NIC.",
        samples: FAULTS.len(),
        sample: |facts, at| {
            let Faults { overruns, oversize, runts, violations, links_lost } = facts.faults;
            (Labels::One("what", FAULTS[at]), [overruns, oversize, runts, violations, links_lost][at].into())
        },
    },
    Family {
        name: "gradwire_aggregator_tcp_total",
        kind: "counter",
        help: "Segments, and clients that lost their place.",
        samples: TCP.len(),
        sample: |facts, at| {
            let Counts { segments, no_queue, no_room, displaced, cut_off, .. } = facts.counts;
            (Labels::One("what", TCP[at]), [segments, no_queue, no_room, displaced, cut_off][at])
        },
    },
    Family {
        name: "gradwire_aggregator_panics_total",
        kind: "counter",
        help: "Restarts by a panic since the power came on.",
        samples: 1,
        sample: |facts, _| (Labels::None, facts.panics.into()),
    },
];

/// Writes the piece at this place: a sample, or what stands before a name's first. None behind the
/// last one.
pub fn write(at: usize, facts: &Facts<'_>, line: &mut Line) -> Option<()> {
    let mut at = at;
    for Family { name, kind, help, samples, sample } in FAMILIES {
        // What does not fit is left out; a test has the longest.
        if at == 0 {
            let _ = write!(line, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            return Some(());
        }
        if at <= *samples {
            let (labels, value) = sample(facts, at - 1);
            let _ = writeln!(line, "{name}{{interface=\"network\"{labels}}} {value}");
            return Some(());
        }
        at -= 1 + samples;
    }
    None
}
