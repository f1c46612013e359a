//! Packets that an attacker can have an aggregator send to an address that is not its own: no more
//! than it sends itself.

use gradwire::aggregate::{Outcome, To};
use gradwire::wire::chunk::MAX_PACKET_LEN;

use super::aggregator::{OTHER_AT, TestAggregator, US_AT, aggregator, outcome, receive, receive_once};
use super::*;

/// Somebody who never says anything. A forger writes this address as its own.
const VICTIM: u8 = 99;

/// Hands over a packet in the victim's name. How many bytes the victim gets for it.
fn forge(aggregator: &mut TestAggregator, packet: &[u8], now: u64) -> usize {
    let _ = aggregator.process(packet, VICTIM, Millis(now));
    let (mut out, mut bytes, mut answers) = ([0; MAX_PACKET_LEN], 0, 0);
    while let Some(emitted) = aggregator.emit(&mut out) {
        let times = match emitted.to {
            To::One(to) => usize::from(to == VICTIM),
            To::Each { job } => aggregator.children(job).filter(|to| *to == VICTIM).count(),
            To::Group(_) => unreachable!("no group"),
        };
        (bytes, answers) = (bytes + times * emitted.len, answers + times);
    }
    // Each packet has headers as well.
    assert!(answers <= 1);
    bytes
}

/// All that a worker may say, and what an aggregator may, with numbers that are right as far as a
/// forger can know them.
fn any_packet(mut random: impl FnMut(usize) -> usize, cookies: &[[u8; 6]]) -> Vec<u8> {
    let (seq, child) = ([0, 1, 8][random(3)], random(2) as u8);
    let chunk = [WHOLE, Chunk::block(0), Chunk::block(1), OTHERS[0]][random(4)];
    match random(8) {
        0 | 1 => {
            let (children, total) = [(1, 1), (2, 2)][random(2)];
            let child = child % children;
            let packet =
                hello(WorkerSettings { child, children, total, epoch: US.epoch + random(2) as u32, ..US });
            let cookie = cookies[random(cookies.len())];
            [&packet[..14], &cookie, &packet[20..]].concat()
        }
        2 | 3 => contribute(seq, child, chunk),
        4 => say(seq, Body::Partial { child, workers: 1, part: chunk.part(&chunk.sections()) }),
        5 | 6 => say(seq, Body::Query { child, is_overtaken: random(2) == 1 }),
        _ => result(seq, chunk),
    }
}

#[test]
fn a_forged_source_does_not_get_more_than_it_sent() {
    // A job of its own for the victim, and then question after question about a whole chunk.
    let alone = WorkerSettings { children: 1, total: 1, ..US };
    let mut aggregator_of_its_own = aggregator(None);
    let (mut sent, mut got) = (0, 0);
    let first = [hello(alone), contribute(0, 0, WHOLE)];
    for (now, packet) in (0..).zip(first.into_iter().chain((0..10_000).map(|_| query(0, true)))) {
        sent += packet.len();
        got += forge(&mut aggregator_of_its_own, &packet, now);
        assert!(got <= sent, "{now}: {got} bytes for {sent}");
    }
    assert_eq!(aggregator_of_its_own.children(US.job).count(), 0);

    // Or a place in a job that runs, with cookies that the forger was sent, or guesses. Its own
    // address is taken.
    let mut aggregator = aggregator(None);
    assert_eq!(outcome(&mut aggregator, US_AT, &hello(TWO)), Outcome::Started);
    let other = hello(WorkerSettings { child: 1, ..TWO });
    let (_, sent) = receive_once(&mut aggregator, OTHER_AT, &other, 0);
    let mine = *sent[0].1[14..].first_chunk().unwrap();
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
        got += forge(&mut aggregator, &packet, now / 10);
        assert!(got <= sent, "{now}: {got} bytes for {sent}");
    }
    assert!(got > 0, "it is answered with what is shorter");
    assert!(aggregator.children(US.job).all(|worker| worker != VICTIM));
}

/// It is good at the address that it was sent to, and for as long as a hello takes, whatever job it
/// is for.
#[test]
fn a_cookie_belongs_to_its_address() {
    let mut aggregator = aggregator(None);
    let (outcome, sent) = receive_once(&mut aggregator, US_AT, &hello(US), 0);
    assert_eq!(
        (outcome, sent.len(), sent[0].0, sent[0].1.len()),
        (Outcome::Challenged, 1, To::One(US_AT), 36)
    );
    assert_eq!(aggregator.jobs().count(), 0, "a stranger takes no place");
    let with = with_cookie(&hello(US), &sent[0].1);
    assert_ne!(with, hello(US));
    for bit in 0..48 {
        let mut other = with.clone();
        other[14 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(receive_once(&mut aggregator, US_AT, &other, 0).0, Outcome::Challenged);
    }
    assert_eq!(receive_once(&mut aggregator, OTHER_AT, &with, 0).0, Outcome::Challenged);
    assert_eq!(receive_once(&mut aggregator, US_AT, &with, 119_999).0, Outcome::Started);
    assert_eq!(receive_once(&mut aggregator, US_AT, &with, 120_000).0, Outcome::Challenged);
    // None is all zeros, which would be no cookie.
    for from in 0..=u8::MAX {
        let (_, sent) = receive_once(&mut aggregator, from, &hello(US), 0);
        assert_eq!(sent[0].1[14] & 1, 1, "{from}");
    }
    // A worker says hello as often as it likes.
    assert_eq!(receive(&mut aggregator, US_AT, &hello(US), 1_000_000).0, Outcome::Joined);
}

/// A stranger learns no reason, if the refusal takes more bytes than it sent. Whoever contributes
/// is.
#[test]
fn a_strangers_query_stays_without_an_answer() {
    let mut aggregator = aggregator(None);
    assert_eq!(receive(&mut aggregator, US_AT, &query(0, false), 0), (Outcome::UnknownJob, vec![]));
    let unknown = vec![(To::One(US_AT), refuse(0, Refusal::UnknownJob))];
    assert_eq!(receive(&mut aggregator, US_AT, &contribute(0, 0, WHOLE), 0), (Outcome::UnknownJob, unknown));
    assert_eq!(outcome(&mut aggregator, US_AT, &hello(TWO)), Outcome::Started);
    assert_eq!(receive(&mut aggregator, OTHER_AT, &query(0, false), 0), (Outcome::Taken, vec![]));
}
