//! A firmware as small as it gets: both directions, and both roles of aggregation; C calling
//! convention.
//!
//! It links only if the dataplane needs neither std (which brings a panic handler of its own) nor
//! an allocator (there is none), nor can panic: the handler calls a function that nobody defines,
//! and is gone only if no path to it is left.
#![no_std]

use gradwire::aggregate::{EthernetAggregator, Event, Poll, Worker};
use gradwire::codec::bit_plane::Bound;
use gradwire::engine::{CapabilityTable, Egress, Ingress, Millis};
use gradwire::flow::capabilities::Slot;
use gradwire::verdict::Verdict;

#[cfg(feature = "plant-alloc")]
extern crate alloc;
#[cfg(feature = "plant-std")]
extern crate std;

unsafe extern "C" {
    safe fn a_panic_path_is_left() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    a_panic_path_is_left()
}

fn len(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Changed { len, .. } => len,
        Verdict::Untouched(_) | Verdict::Dropped(_) => 0,
    }
}

/// Host to wire.
#[unsafe(no_mangle)]
pub extern "C" fn egress(
    engine: &mut Egress<8>,
    frame: &[u8; 1514],
    out: &mut [u8; 2048],
    used: usize,
    now: u64,
    capabilities: &CapabilityTable<[Slot; 256]>,
) -> usize {
    #[cfg(feature = "plant-panic")]
    assert!(used < 1514);
    #[cfg(feature = "plant-alloc")]
    core::mem::forget(alloc::boxed::Box::new(used));
    len(engine.process(frame.get(..used).unwrap_or(frame), out, Millis(now), capabilities))
}

/// Wire to host.
#[unsafe(no_mangle)]
pub extern "C" fn ingress(
    engine: &mut Ingress,
    frame: &[u8; 1514],
    out: &mut [u8; 2048],
    used: usize,
    capabilities: &CapabilityTable<[Slot; 256]>,
) -> usize {
    len(engine.process(frame.get(..used).unwrap_or(frame), out, capabilities))
}

/// A frame to an aggregator that adds; the first frame that it sends.
#[unsafe(no_mangle)]
pub extern "C" fn aggregate(
    aggregator: &mut EthernetAggregator<1, 32, 2>,
    frame: &[u8; 1514],
    out: &mut [u8; 1514],
    used: usize,
    now: u64,
) -> usize {
    let _ = aggregator.process(frame.get(..used).unwrap_or(frame), Millis(now));
    aggregator.emit(out).unwrap_or(0)
}

/// A datagram to a worker, then the next one that it sends.
#[unsafe(no_mangle)]
pub extern "C" fn worker(
    worker: &mut Worker<16>,
    values: &mut [[u8; 4096]; 2],
    datagram: &[u8; 1472],
    out: &mut [u8; 1472],
    used: usize,
    now: u64,
) -> usize {
    let [input, output] = values;
    if let Ok(bound) = Bound::new(now as i8)
        && worker.start(used, bound)
    {
        return 0;
    }
    match worker.handle(datagram.get(..used).unwrap_or(datagram), output, Millis(now)) {
        Event::Chunk { chunk, .. } if worker.holds(chunk) => return chunk,
        _ => {}
    }
    match worker.poll(input, Millis(now), out) {
        Poll::Send(len) => len,
        Poll::Wait(_) | Poll::Done | Poll::Failed(_) => 0,
    }
}
