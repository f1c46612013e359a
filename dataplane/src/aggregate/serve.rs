//! An aggregator behind a device's port: the loop of firmware whose port mostly has room for a
//! frame's answers. Firmware with a few buffers does better to wait for room before it takes the
//! next frame, as the soft core's image does.

use super::ethernet::EthernetAggregator;
use crate::engine::Millis;
use crate::forward::{Buffer, Device};

/// Counts of a batch of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Served {
    /// Frames taken from the port.
    pub received: usize,
    /// Frames queued for sending.
    pub sent: u64,
    /// The number of times that no buffer was free, or the port had no room. The frame is lost like
    /// one on the wire: a child asks again.
    pub lost: u64,
}

impl<const JOBS: usize, const SLOTS: usize, const BLOCKS: usize> EthernetAggregator<JOBS, SLOTS, BLOCKS> {
    /// Takes at most `budget` frames that `port` received, and sends there what they call for. A
    /// frame calls for at most a copy of each of the result's packets to each child.
    pub fn serve<D: Device>(&mut self, device: &mut D, port: D::Port, budget: usize, now: Millis) -> Served {
        let mut served = Served::default();
        while served.received < budget
            && let Some(mut buffer) = device.receive(port)
        {
            served.received += 1;
            device.finish(port, &mut buffer);
            let _ = self.process(buffer.frame(), now);
            // The frame's own buffer has room for the first answer: there is one even if no other
            // is free.
            let mut own = Some(buffer);
            loop {
                let Some(mut buffer) = own.take().or_else(|| device.take()) else {
                    served.lost += 1;
                    break;
                };
                let Some(len) = self.emit(buffer.room()) else {
                    device.release(buffer);
                    break;
                };
                buffer.set_len(len);
                match device.transmit(port, buffer) {
                    Ok(()) => served.sent += 1,
                    Err(buffer) => {
                        served.lost += 1;
                        device.release(buffer);
                    }
                }
            }
        }
        if served.sent > 0 {
            device.kick(port);
        }
        served
    }
}
