//! Packets that an aggregator and a worker refuse or ignore (docs/aggregation-protocol.md §4 and
//! §5). Nothing else changes by it.

mod aggregator;
mod disagreements;
mod reflection;
mod strangers;
mod worker;

use gradwire::Millis;
use gradwire::aggregate::WorkerSettings;
use gradwire::codec::bit_plane::Bound;
use gradwire::kernels::Kernel;
use gradwire::sums::Summable;
use gradwire::wire::chunk::{Blocks, Body, Head, Limits, NO_COOKIE, Packet, Part, Refusal, values_of_block};

/// Small, so that a place soon has its next chunk: two blocks a chunk, eight slots.
const LIMITS: Limits = Limits { blocks: 2, window: 4, mtu: 1500 };
/// A worker of two at its aggregator, of four in all.
const US: WorkerSettings =
    WorkerSettings { job: 7, epoch: 100, child: 0, children: 2, total: 4, limits: LIMITS, key: 42 };

/// A worker of two, which are all workers of the job.
const TWO: WorkerSettings = WorkerSettings { total: 2, ..US };

/// The chunk of a packet: some of its blocks, in which each sum is 1.
#[derive(Clone, Copy)]
struct Chunk {
    values: usize,
    first: usize,
    count: usize,
    y: i8,
}

const WHOLE: Chunk = Chunk { values: 256, first: 0, count: 2, y: -10 };
/// Those that are not parts of [`WHOLE`]: another number of values, another bound.
const OTHERS: [Chunk; 3] =
    [Chunk { values: 255, ..WHOLE }, Chunk { values: 257, ..WHOLE }, Chunk { y: -9, ..WHOLE }];

impl Chunk {
    const fn block(first: usize) -> Self {
        Self { first, count: 1, ..WHOLE }
    }

    fn profile(self) -> Summable {
        Bound::new(self.y).unwrap().into()
    }

    fn sections(self) -> Vec<u8> {
        let section = |block| {
            let mut section = [0; 1024];
            let sums = vec![1; values_of_block(self.values, block)];
            let len = Kernel::PORTABLE.encode_sums(&sums, &mut section).unwrap();
            section[..len].to_vec()
        };
        (self.first..self.first + self.count).flat_map(section).collect()
    }

    fn part(self, sections: &[u8]) -> Part<'_> {
        let blocks = Blocks::new(self.values, self.first, self.count).unwrap();
        Part { blocks, peak: 127, profile: self.profile(), sections }
    }
}

fn packet(head: Head, body: Body<'_>) -> Vec<u8> {
    let mut out = [0; 1500];
    let len = Packet { head, body }.write(&mut out).unwrap();
    out[..len].to_vec()
}

/// A packet of our job.
fn say(seq: u32, body: Body<'_>) -> Vec<u8> {
    packet(Head { job: US.job, epoch: US.epoch, seq }, body)
}

fn hello(of: WorkerSettings) -> Vec<u8> {
    let WorkerSettings { job, epoch, child, children, total, limits, key } = of;
    let body = Body::Hello { child, children, total, is_aggregator: false, limits, key, cookie: NO_COOKIE };
    packet(Head { job, epoch, seq: 0 }, body)
}

/// A hello once more, with the cookie of the welcome that answered it.
fn with_cookie(hello: &[u8], welcome: &[u8]) -> Vec<u8> {
    [&hello[..14], &welcome[14..20], &hello[20..]].concat()
}

fn welcome(limits: Limits, key: u64) -> Vec<u8> {
    say(0, Body::Welcome { limits, group: [0; 4], key, cookie: NO_COOKIE })
}

fn refuse(seq: u32, reason: Refusal) -> Vec<u8> {
    say(seq, Body::Refuse { reason, epoch: US.epoch })
}

fn query(seq: u32, is_overtaken: bool) -> Vec<u8> {
    say(seq, Body::Query { child: US.child, is_overtaken })
}

fn contribute(seq: u32, child: u8, chunk: Chunk) -> Vec<u8> {
    say(seq, Body::Contribute { child, part: chunk.part(&chunk.sections()) })
}

/// The sum of all workers.
fn result(seq: u32, chunk: Chunk) -> Vec<u8> {
    say(seq, Body::Result { workers: US.total, part: chunk.part(&chunk.sections()) })
}
