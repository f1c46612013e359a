//! Four ranks of a collective on two hosts, so that each hop of their ring, or between their
//! groups, goes through both shims.

mod support;

use std::net::SocketAddr;

use gradwire_collectives::{
    Between, Coding, GraphPlan, Layout, Link, LinkError, Listening, Options, Residuals, Strategy, Token, Wire,
};

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

/// One call of each rank, and the bytes that it put on the wire. Neighbouring groups of ranks are
/// on different hosts.
fn all(
    lab: &Lab,
    port: u16,
    group: usize,
    call: fn(&mut Link, &mut [f32]) -> Result<(), LinkError>,
) -> (Vec<Result<Vec<f32>, String>>, u64) {
    let token = Token::random().unwrap();
    let wire_bytes = || Side::BOTH.iter().map(|side| lab.wire_count(*side).0).sum::<u64>();
    let root: SocketAddr = ([10, 77, 0, 1], port).into();
    let before = wire_bytes();
    let ranks = (0..RANKS).map(|rank| {
        let token = token.clone();
        let (host, ip) =
            if (rank / group).is_multiple_of(2) { ("ha", [10, 77, 0, 1]) } else { ("hb", [10, 77, 0, 2]) };
        let own = if rank == 0 { root } else { (ip, 0).into() };
        lab.enter(host, move || {
            let options = Options { timeout: PATIENCE, tagged: Some(group), ..Options::new(token) };
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
    link.all_reduce_comp(values, Wire::default()).map(drop)
}

fn hierarchy(link: &mut Link, values: &mut [f32], coding: Coding) -> Result<(), LinkError> {
    let plan = GraphPlan::of(coding, Strategy::Hierarchy { group: 2, between: Between::Rings });
    let layout = Layout::new([("values", VALUES)])?;
    link.exchange(values, &layout, &plan.into(), &mut Residuals::new()).map(drop)
}

/// Checks that all ranks have the sums, within the bound of `wire:2:10` for each of so many hops.
/// Returns how many values the network changed.
fn changed(exact: &[f32], coded: &[Vec<f32>], hops: usize) -> usize {
    let gradients: Vec<Vec<f32>> = (0..RANKS).map(gradient).collect();
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert!(coded.iter().all(|other| bits(other) == bits(&coded[0])));
    for (at, (exact, coded)) in exact.iter().zip(&coded[0]).enumerate() {
        let sum: f64 = gradients.iter().map(|gradient| f64::from(gradient[at])).sum();
        let size: f64 = gradients.iter().map(|gradient| f64::from(gradient[at]).abs()).sum();
        let rounding = RANKS as f64 * f64::from(f32::EPSILON) * size;
        assert!((f64::from(*exact) - sum).abs() <= rounding, "value {at}: {exact}, not {sum}");
        let bound = hops as f64 / 1024.0 + rounding;
        assert!((f64::from(*coded) - sum).abs() <= bound, "value {at}: {coded}, not {sum}");
    }
    exact.iter().zip(&coded[0]).filter(|(exact, coded)| exact != coded).count()
}

#[test]
fn a_tagged_ring_sends_less_and_stays_within_its_bounds() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, "[[rule]]\ntos = 0x28\n"));
    let (exact, plain) = all(&lab, 7000, 1, |link, values| link.all_reduce(values).map(drop));
    let (coded, compressed) = all(&lab, 7100, 1, comp);
    eprintln!("{plain} bytes on the wire as f32, {compressed} as wire:2:10");
    assert!(compressed < plain * 2 / 3, "{compressed} {plain}");
    let (exact, coded) =
        (exact[0].clone().unwrap(), coded.into_iter().map(Result::unwrap).collect::<Vec<_>>());
    // Three hops of the sum and the result's coding may lose 2^-10 each.
    let changed = changed(&exact, &coded, RANKS);
    assert!(changed > VALUES / 10, "the network changed only {changed} values: it did not compress");

    // Shims with another profile than the plan says: nobody goes on with what they made of it.
    for shim in &mut shims {
        shim.reload("[[rule]]\ntos = 0x28\ncodec = 2\nbound = 6\n");
    }
    for result in all(&lab, 7200, 1, comp).0 {
        let error = result.unwrap_err();
        assert!(error.contains("checksums differ") && error.contains("wire: codec"), "{error}");
    }
}

/// INCEPTIONN's rings of groups: ranks of a host sum as `f32` on connections that no shim touches.
#[test]
fn a_hierarchy_is_compressed_between_hosts() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let _shims = Side::BOTH.map(|side| Shim::start(&lab, side, "[[rule]]\ntos = 0x28\n"));
    let (exact, plain) = all(&lab, 7000, 2, |link, values| hierarchy(link, values, Coding::exact()));
    let (coded, compressed) =
        all(&lab, 7100, 2, |link, values| hierarchy(link, values, Coding::Wire(Wire::default())));
    eprintln!("{plain} bytes on the wire as f32, {compressed} as wire:2:10");
    assert!(compressed < plain * 2 / 3, "{compressed} {plain}");
    let (exact, coded) =
        (exact[0].clone().unwrap(), coded.into_iter().map(Result::unwrap).collect::<Vec<_>>());
    // One hop of the sum between the hosts, and the result's coding.
    let changed = changed(&exact, &coded, 2);
    assert!(changed > VALUES / 10, "the network changed only {changed} values: it did not compress");
}
