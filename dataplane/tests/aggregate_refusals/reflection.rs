//! What somebody can have an aggregator send to an address that is not its own: no more than it sends itself.

use gradwire::aggregate::{Outcome, To};
use gradwire::wire::chunk::MAX_PACKET_LEN;

use super::node::{Node, OTHER_AT, US_AT, hear, hear_once, node, outcome};
use super::*;

/// Somebody who never says anything. A forger writes this address as its own.
const VICTIM: u8 = 99;

/// Hands over a packet in the victim's name. How many bytes the victim gets for it.
fn forge(node: &mut Node, packet: &[u8], now: u64) -> usize {
    let _ = node.process(packet, VICTIM, Millis(now));
    let (mut out, mut bytes, mut answers) = ([0; MAX_PACKET_LEN], 0, 0);
    while let Some(emitted) = node.emit(&mut out) {
        let times = match emitted.to {
            To::One(to) => usize::from(to == VICTIM),
            To::Each { job } => node.members(job).filter(|to| *to == VICTIM).count(),
            To::Group(_) => unreachable!("no group"),
        };
        (bytes, answers) = (bytes + times * emitted.len, answers + times);
    }
    // Each packet has headers as well.
    assert!(answers <= 1);
    bytes
}

/// All that a member may say, and what an aggregator may, with numbers that are right as far as a forger can know them.
fn any_packet(mut random: impl FnMut(usize) -> usize, cookies: &[[u8; 6]]) -> Vec<u8> {
    let (seq, worker) = ([0, 1, 8][random(3)], random(2) as u8);
    let chunk = [WHOLE, Chunk::block(0), Chunk::block(1), OTHERS[0]][random(4)];
    match random(8) {
        0 | 1 => {
            let (members, total) = [(1, 1), (2, 2)][random(2)];
            let worker = worker % members;
            let packet =
                hello(Membership { worker, members, total, epoch: US.epoch + random(2) as u32, ..US });
            let cookie = cookies[random(cookies.len())];
            [&packet[..14], &cookie, &packet[20..]].concat()
        }
        2 | 3 => contribute(seq, worker, chunk),
        4 => say(seq, Body::Partial { worker, workers: 1, part: chunk.part(&chunk.sections()) }),
        5 | 6 => say(seq, Body::Query { worker, is_overtaken: random(2) == 1 }),
        _ => result(seq, chunk),
    }
}

#[test]
fn a_forged_source_does_not_get_more_than_it_sent() {
    // A job of its own for the victim, and then question after question about a whole chunk.
    let alone = Membership { members: 1, total: 1, ..US };
    let mut node_of_its_own = node(None);
    let (mut sent, mut got) = (0, 0);
    let first = [hello(alone), contribute(0, 0, WHOLE)];
    for (now, packet) in (0..).zip(first.into_iter().chain((0..10_000).map(|_| query(0, true)))) {
        sent += packet.len();
        got += forge(&mut node_of_its_own, &packet, now);
        assert!(got <= sent, "{now}: {got} bytes for {sent}");
    }
    assert_eq!(node_of_its_own.members(US.job).count(), 0);

    // Or a place in a job that runs, with cookies that the forger was sent, or guesses. Its own address is taken.
    let mut node = node(None);
    assert_eq!(outcome(&mut node, US_AT, &hello(TWO)), Outcome::Started);
    let other = hello(Membership { worker: 1, ..TWO });
    let (_, said) = hear_once(&mut node, OTHER_AT, &other, 0);
    let mine = *said[0].1[14..].first_chunk().unwrap();
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut sent, mut got) = (0, 0);
    for now in 0..100_000 {
        let guess = [(); 6].map(|()| random(256) as u8);
        let packet = any_packet(&mut random, &[NO_COOKIE, mine, guess]);
        sent += packet.len();
        got += forge(&mut node, &packet, now / 10);
        assert!(got <= sent, "{now}: {got} bytes for {sent}");
    }
    assert!(got > 0, "it is answered with what is shorter");
    assert!(node.members(US.job).all(|member| member != VICTIM));
}

/// It is good at the address that it was sent to, and for as long as a hello takes, whatever job it is for.
#[test]
fn a_cookie_belongs_to_its_address() {
    let mut node = node(None);
    let (outcome, said) = hear_once(&mut node, US_AT, &hello(US), 0);
    assert_eq!(
        (outcome, said.len(), said[0].0, said[0].1.len()),
        (Outcome::Challenged, 1, To::One(US_AT), 36)
    );
    assert_eq!(node.jobs().count(), 0, "a stranger takes no place");
    let with = with_cookie(&hello(US), &said[0].1);
    assert_ne!(with, hello(US));
    for bit in 0..48 {
        let mut other = with.clone();
        other[14 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(hear_once(&mut node, US_AT, &other, 0).0, Outcome::Challenged);
    }
    assert_eq!(hear_once(&mut node, OTHER_AT, &with, 0).0, Outcome::Challenged);
    assert_eq!(hear_once(&mut node, US_AT, &with, 119_999).0, Outcome::Started);
    assert_eq!(hear_once(&mut node, US_AT, &with, 120_000).0, Outcome::Challenged);
    // None is all zeros, which would be no cookie.
    for from in 0..=u8::MAX {
        let (_, said) = hear_once(&mut node, from, &hello(US), 0);
        assert_eq!(said[0].1[14] & 1, 1, "{from}");
    }
    // A member says hello as often as it likes.
    assert_eq!(hear(&mut node, US_AT, &hello(US), 1_000_000).0, Outcome::Joined);
}

/// Who has not joined is not told why, if that takes more bytes than it sent. Whoever contributes is.
#[test]
fn a_strangers_query_stays_without_an_answer() {
    let mut node = node(None);
    assert_eq!(hear(&mut node, US_AT, &query(0, false), 0), (Outcome::UnknownJob, vec![]));
    let unknown = vec![(To::One(US_AT), refuse(0, Refusal::UnknownJob))];
    assert_eq!(hear(&mut node, US_AT, &contribute(0, 0, WHOLE), 0), (Outcome::UnknownJob, unknown));
    assert_eq!(outcome(&mut node, US_AT, &hello(TWO)), Outcome::Started);
    assert_eq!(hear(&mut node, OTHER_AT, &query(0, false), 0), (Outcome::Taken, vec![]));
}
