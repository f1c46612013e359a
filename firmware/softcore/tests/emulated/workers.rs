//! Workers of a job at the wire of an aggregator: frames, and an exchange whose sums are compared.

use gradwire::aggregate::{Poll, Worker, WorkerSettings};
use gradwire::codec::bit_plane::Bound;
use gradwire::engine::Millis;
use gradwire::forward::Port;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MAX_PACKET_LEN, PORT};
use gradwire_testbench::softcore::machine::{Machine, PATIENCE};
use softcore::aggregation::{IP, MAC};

use super::frames::{checksum, packet, worker_ip, worker_mac};

const WORKERS: u8 = 4;
const VALUES: usize = 12_000;
/// Chunks of an exchange, of 1024 values each.
pub(super) const CHUNKS: u64 = 12;

fn datagram(number: u8, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len() as u16).to_be_bytes();
    let udp = |sum: [u8; 2]| {
        let ports = [(4000 + u16::from(number)).to_be_bytes(), PORT.to_be_bytes()];
        [ports.as_flattened(), &len, &sum, payload].concat()
    };
    let pseudo = [&worker_ip(number)[..], &IP.octets(), &[0, 17], &len].concat();
    let sum = checksum(&[&pseudo, &udp([0; 2])]);
    // Zero says that there is no checksum (RFC 768).
    packet(number, 17, &udp(if sum == [0; 2] { [0xff; 2] } else { sum }))
}

fn input(number: u8) -> Vec<f32> {
    (0..VALUES).map(|i| ((i * 7919 + usize::from(number) * 104_729) % 4001) as f32 / 4001.0 - 0.5).collect()
}

/// The value that codec 2 restores at the bound 2^-10, in bounds.
fn units(value: f32) -> i64 {
    let bounds = (f64::from(value).abs() * 1024.0).floor() as i64;
    let odd = if bounds == 0 { 0 } else { bounds | 1 };
    if value < 0.0 { -odd } else { odd }
}

/// Four workers get the exact sum. `meanwhile` is called each time before a frame is awaited.
///
/// No time passes, so no worker gives up on an emulator that is slow.
pub(super) fn sum(aggregator: &mut Machine, epoch: u32, mut meanwhile: impl FnMut(&mut Machine)) {
    let now = Millis(5);
    let worker_settings = |child| WorkerSettings {
        job: 7,
        epoch,
        child,
        children: WORKERS,
        total: WORKERS,
        limits: Limits::MOST,
        key: 0x5eed,
    };
    let mut children: Vec<Worker<16>> =
        (0..WORKERS).map(|child| Worker::new(worker_settings(child), Kernel::detect())).collect();
    let inputs: Vec<Vec<u8>> =
        (0..WORKERS).map(|number| input(number).into_iter().flat_map(f32::to_le_bytes).collect()).collect();
    let mut outputs = vec![vec![0; 4 * VALUES]; usize::from(WORKERS)];
    let mut started = [false; WORKERS as usize];
    loop {
        let mut done = 0;
        for (number, worker) in (0u8..).zip(&mut children) {
            let at = usize::from(number);
            let mut out = [0; MAX_PACKET_LEN];
            loop {
                if !started[at] {
                    started[at] = worker.start(VALUES, Bound::new(-10).unwrap());
                }
                match worker.poll(&inputs[at], now, &mut out) {
                    Poll::Send(len) => {
                        aggregator.send(Port::Network, &datagram(number, &out[..len])).unwrap();
                    }
                    Poll::Done if started[at] => {
                        done += 1;
                        break;
                    }
                    Poll::Done | Poll::Wait(_) => break,
                    Poll::Failed(failure) => panic!("{failure:?}"),
                }
            }
        }
        if done == WORKERS {
            break;
        }
        meanwhile(aggregator);
        // Others on the wire get frames too.
        let frame = loop {
            let Some(frame) = aggregator.receive(Port::Network, PATIENCE).unwrap() else {
                panic!("no answer for {PATIENCE:?}: {:?}", aggregator.counters());
            };
            if (0..WORKERS).any(|number| frame[..6] == worker_mac(number)) && frame[23] == 17 {
                break frame;
            }
        };
        let number = frame[33] - 100;
        assert_eq!((&frame[..6], &frame[6..12]), (&worker_mac(number)[..], &MAC[..]));
        assert_eq!(checksum(&[&frame[14..34]]), [0; 2]);
        let pseudo = [&frame[26..34], &[0, 17], &frame[38..40]].concat();
        assert_eq!(checksum(&[&pseudo, &frame[34..]]), [0; 2]);
        children[usize::from(number)].handle(&frame[42..], &mut outputs[usize::from(number)], now);
    }
    let all: Vec<Vec<f32>> = (0..WORKERS).map(input).collect();
    for at in 0..VALUES {
        let sum: i64 = all.iter().map(|values| units(values[at])).sum();
        let expected = (sum as f32 / 1024.0).to_le_bytes();
        assert!(outputs.iter().all(|output| output[4 * at..4 * at + 4] == expected), "value {at}");
    }
}
