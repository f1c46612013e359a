//! Four ranks of a collective on two hosts, so that each hop of their ring goes through both shims.

mod support;

use std::net::SocketAddr;

use gradwire_collectives::{Link, LinkError, Listening, Options, Token, Wire};

use support::shim::Shim;
use support::traffic::gradients;
use support::{Lab, PATIENCE, Plan, Side};

const RANKS: usize = 4;
const VALUES: usize = 250_000;

/// A rank's gradient: its own part of the recordings.
fn gradient(rank: usize) -> Vec<f32> {
    let bytes = gradients(4 * VALUES * RANKS);
    let values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    values.skip(rank * VALUES).take(VALUES).collect()
}

/// One call of each rank, and the bytes that it put on the wire.
fn all(
    lab: &Lab,
    port: u16,
    call: fn(&mut Link, &mut [f32]) -> Result<(), LinkError>,
) -> (Vec<Result<Vec<f32>, String>>, u64) {
    let token = Token::random().unwrap();
    let wire_bytes = || Side::BOTH.iter().map(|side| lab.wire_count(*side).0).sum::<u64>();
    let root: SocketAddr = ([10, 77, 0, 1], port).into();
    let before = wire_bytes();
    let ranks = (0..RANKS).map(|rank| {
        let token = token.clone();
        // Neighbours in the ring are on different hosts.
        let (host, ip) = if rank % 2 == 0 { ("ha", [10, 77, 0, 1]) } else { ("hb", [10, 77, 0, 2]) };
        let own = if rank == 0 { root } else { (ip, 0).into() };
        lab.enter(host, move || {
            let options = Options { timeout: PATIENCE, tagged: true, ..Options::new(token) };
            let mut link = Listening::bind(own, options).unwrap().join(rank, RANKS, root).unwrap();
            let mut values = gradient(rank);
            call(&mut link, &mut values).map_err(|error| error.to_string())?;
            link.close();
            Ok(values)
        })
    });
    let ranks: Vec<_> = ranks.collect();
    let results = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    (results, wire_bytes() - before)
}

fn comp(link: &mut Link, values: &mut [f32]) -> Result<(), LinkError> {
    link.all_reduce_comp(values, Wire::new(2, 10, 0).expect("a profile")).map(drop)
}

#[test]
fn a_tagged_ring_sends_less_and_stays_within_its_bounds() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, "[[rule]]\ntos = 0x28\n"));
    let (exact, plain) = all(&lab, 7000, |link, values| link.all_reduce(values).map(drop));
    let (coded, compressed) = all(&lab, 7100, comp);
    eprintln!("{plain} bytes on the wire as f32, {compressed} as wire:2:10");
    assert!(compressed < plain * 2 / 3, "{compressed} {plain}");

    let gradients: Vec<Vec<f32>> = (0..RANKS).map(gradient).collect();
    let (exact, coded) =
        (exact[0].clone().unwrap(), coded.into_iter().map(Result::unwrap).collect::<Vec<_>>());
    assert!(
        coded.iter().all(|other| other.iter().map(|v| v.to_bits()).eq(coded[0].iter().map(|v| v.to_bits())))
    );
    let mut changed = 0;
    for (at, (exact, coded)) in exact.into_iter().zip(&coded[0]).enumerate() {
        let sum: f64 = gradients.iter().map(|gradient| f64::from(gradient[at])).sum();
        let size: f64 = gradients.iter().map(|gradient| f64::from(gradient[at]).abs()).sum();
        let rounding = RANKS as f64 * f64::from(f32::EPSILON) * size;
        assert!((f64::from(exact) - sum).abs() <= rounding, "value {at}: {exact}, not {sum}");
        // Three hops of the sum and the result's coding may lose 2^-10 each.
        let bound = RANKS as f64 / 1024.0 + rounding;
        assert!((f64::from(*coded) - sum).abs() <= bound, "value {at}: {coded}, not {sum}");
        changed += usize::from(*coded != exact);
    }
    assert!(changed > VALUES / 10, "the network changed only {changed} values: it did not compress");

    // Shims with another profile than the plan says: nobody goes on with what they made of it.
    for shim in &mut shims {
        shim.reload("[[rule]]\ntos = 0x28\ncodec = 2\nbound = 6\n");
    }
    for result in all(&lab, 7200, comp).0 {
        let error = result.unwrap_err();
        assert!(error.contains("checksums differ") && error.contains("wire: codec"), "{error}");
    }
}
