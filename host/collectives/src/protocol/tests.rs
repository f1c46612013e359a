//! The protocol of one rank, whose peers are the test: they prove that they know the token, and
//! then send any bytes.

use proptest::prelude::*;

use super::*;
use crate::graph::Format;
use crate::header::HEADER_LEN;
use crate::plan::Order;

const TIMEOUT: Duration = Duration::from_secs(120);

/// A message of five values, which the exchange of [`begun`] waits for.
fn header() -> Header {
    Header {
        kind: Kind::Message(Format::Raw),
        sequence: 1,
        layout: 7,
        values: 10,
        job: 0,
        part: 1,
        partitions: 2,
        tag: 0,
        elements: 5,
        len: 20,
        plan: PlanName::new("ring f32"),
    }
}

fn message(header: &Header) -> Vec<u8> {
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend([0; 20]);
    bytes
}

/// The exchange of this number, with two messages of each other rank.
fn expect(rank: Rank, ranks: usize, sequence: u64) -> Command {
    ordered(rank, ranks, sequence, Order::Turns)
}

fn ordered(rank: Rank, ranks: usize, sequence: u64, order: Order) -> Command {
    Command::Begin(Arc::new(Expect {
        sequence,
        layout: 7,
        values: 10,
        order,
        jobs: vec![ExpectJob {
            plan: PlanName::new("ring f32"),
            tagged: None,
            parts: vec![(5, 20), (5, 20)],
        }],
        messages: (0..ranks).map(|from| if from == rank { 0 } else { 2 }).collect(),
    }))
}

/// A rank in the first exchange of a job, with connections for these purposes and to these ranks.
fn begun(rank: Rank, others: &[(Purpose, Rank)]) -> (Protocol, Instant) {
    let now = Instant::now();
    let ranks = 1 + others.iter().map(|(_, peer)| *peer).fold(rank, Rank::max);
    let endpoints = others.iter().map(|&(purpose, peer)| Endpoint { purpose, peer, outgoing: false });
    let mut protocol = Protocol::new(rank, ranks, false, TIMEOUT, endpoints, now);
    protocol.handle_command(expect(rank, ranks, 1), now);
    (protocol, now)
}

/// All that leaves on a connection.
fn sent(protocol: &mut Protocol, at: ConnectionId, now: Instant) -> Vec<u8> {
    let mut all = Vec::new();
    while protocol.wants_to_send(at) {
        let bytes: Vec<u8> = protocol.poll_transmit(at).iter().flat_map(|slice| slice.to_vec()).collect();
        assert!(!bytes.is_empty(), "it wants to send nothing");
        protocol.handle_sent(at, bytes.len(), now);
        all.extend(bytes);
    }
    all
}

fn events(protocol: &mut Protocol) -> Vec<Event> {
    std::iter::from_fn(|| protocol.poll_event()).collect()
}

/// Lets time pass until it is over, and returns why it failed.
fn failure(protocol: &mut Protocol, mut now: Instant) -> Failure {
    for _ in 0..1000 {
        if let Some(Event::Failed(failure)) = events(protocol).pop() {
            return failure;
        }
        now = protocol.next_timeout().expect("a timeout or an end").max(now);
        protocol.handle_timeout(now);
    }
    panic!("a thousand timeouts without an end")
}

/// Returns the failure of one of two ranks, and how many messages it takes, if the other one sends
/// these bytes, in pieces of this length, and then closes its connections.
fn told_in_pieces(rank: Rank, data: &[u8], control: &[u8], piece: usize) -> (String, usize) {
    let (mut protocol, now) =
        begun(rank, &[Purpose::Control, Purpose::Data].map(|purpose| (purpose, 1 - rank)));
    for (at, bytes) in [control, data].into_iter().enumerate() {
        for piece in bytes.chunks(piece) {
            protocol.handle_bytes(at, piece, now);
        }
    }
    (0..2).for_each(|at| protocol.handle_end(at, "", now));
    let mut taken = 0;
    let mut cause = None;
    for event in events(&mut protocol) {
        match event {
            Event::Arrived { .. } => taken += 1,
            Event::Failed(failure) => cause = Some(failure.cause),
            Event::Alike | Event::Halt { .. } | Event::Votes { .. } | Event::Asked(_) => {}
        }
    }
    (cause.unwrap_or_else(|| failure(&mut protocol, now).cause), taken)
}

fn told(rank: Rank, data: &[u8], control: &[u8]) -> (String, usize) {
    told_in_pieces(rank, data, control, usize::MAX)
}

#[test]
fn messages_that_the_exchange_does_not_wait_for_are_refused_by_their_headers() {
    type Change = fn(&mut Header);
    let cases: [(Change, &str); 11] = [
        (|header| header.len = u32::MAX, "a message of 4294967295 bytes, where 20 are the most"),
        (|header| header.len = 21, "a message of 21 bytes, where 20 are the most"),
        (|header| header.elements = u32::MAX, "a partition of 4294967295 values"),
        (|header| header.part = u32::MAX, "a partition of 5 values"),
        (|header| header.job = u32::MAX, "rank 1 has nothing"),
        (|header| header.partitions = 3, "in 3 partitions, rank 1 has 'ring f32' in 2"),
        (|header| header.plan = PlanName::new("ring q8"), "rank 0 has 'ring q8'"),
        (|header| header.layout = 8, "layout 0000000000000008 at rank 0"),
        (|header| header.values = u64::MAX, "18446744073709551615 values"),
        (|header| header.sequence = 3, "rank 0 is at exchange 3, rank 1 at 1"),
        (|header| header.kind = Kind::Bye, "rank 0 left during exchange 1"),
    ];
    for (change, says) in cases {
        let mut wrong = header();
        change(&mut wrong);
        let (told, taken) = told(1, &[message(&header()), message(&wrong)].concat(), &[]);
        assert!(told.contains(says), "{told}: expected {says}");
        assert_eq!(taken, 1, "{told}");
    }
    let (told_of_three, taken) = told(1, &message(&header()).repeat(3), &[]);
    assert!(told_of_three.contains("more messages than the exchange has"), "{told_of_three}");
    assert_eq!(taken, 2);
    assert!(told(1, &[b'x'; 500], &[]).0.contains("something that is no message"));
    let cut = told(1, &message(&header())[..HEADER_LEN + 10], &[]);
    assert!(cut.0.contains("rank 0 disconnected") && cut.1 == 0, "{cut:?}");
}

#[test]
fn control_frames_out_of_place_are_refused() {
    let at = |rank, frame: Control| (rank, frame.to_bytes());
    let vote = Vote { end: End::Complete, epoch: 1, blocks: 1, base: 1, later: 0 };
    for ((rank, bytes), says) in [
        ((1, vec![1, 0, 0, 0, 255, 255, 255, 255]), "a control frame that is too long"),
        ((1, vec![99, 0, 0, 0, 0, 0, 0, 0]), "an unknown control frame"),
        (at(1, Control::Go { to: 0, messages: 1 }), "that nobody asked for"),
        (at(1, Control::Go { to: usize::from(u16::MAX), messages: 0 }), "that nobody asked for"),
        (at(1, Control::Wish { to: 0, bytes: 1 }), "out of place"),
        (at(1, Control::Alike { number: 1 }), "out of place"),
        (at(1, Control::Halt { number: 2 }), "out of place"),
        (at(1, Control::Votes { number: 1, votes: vec![vote; 2] }), "out of place"),
        (at(0, Control::Go { to: 1, messages: 1 }), "out of place"),
        (at(0, Control::Wish { to: 1, bytes: 1 }), "out of place"),
        (at(0, Control::Wish { to: 2, bytes: 1 }), "out of place"),
        (at(0, Control::Done { to: 0 }), "out of place"),
        (at(0, Control::Ask { last: true, text: vec![0] }), "out of place"),
        (at(0, Control::Alike { number: 0 }), "out of place"),
        (at(0, Control::Compare { number: 9, checksum: 0 }), "rank 1 compares results 9"),
        (at(0, Control::Vote { number: 2, vote }), "rank 1 votes about sum 2, and all others about 1"),
    ] {
        let (told, _) = told(rank, &[], &bytes);
        assert!(told.contains(says), "{told}: expected {says}");
    }
}

#[test]
fn rank_0_that_was_killed_is_named_though_another_one_heard_of_it_first() {
    for (farewell, says) in [(None, "rank 0 disconnected"), (Some(Control::Bye), "rank 1 disconnected")] {
        let others = [(Purpose::Control, 0), (Purpose::Data, 0), (Purpose::Data, 1)];
        let (mut protocol, now) = begun(2, &others);
        protocol.handle_end(2, "", now);
        protocol.handle_timeout(now);
        // The rank has reported it, and waits for what rank 0 says.
        assert!(!sent(&mut protocol, 0, now).is_empty() && events(&mut protocol).is_empty());
        if let Some(farewell) = farewell {
            protocol.handle_bytes(0, &farewell.to_bytes(), now);
        }
        protocol.handle_end(0, "", now);
        let failure = failure(&mut protocol, now);
        assert!(failure.cause.starts_with(says), "{failure}");
    }
}

/// Rank 0 may have all that it needs of an exchange when another one still waits for somebody, who
/// is stopped.
#[test]
fn a_silent_rank_is_named_though_rank_0_waits_for_nobody() {
    for (silent, says) in [(true, "rank 2 gave no sign of life for 60s"), (false, "nothing came of rank 3")] {
        let (mut root, start) = begun(0, &[1, 2, 3].map(|peer| (Purpose::Control, peer)));
        root.owed.fill(0);
        root.handle_command(Command::End, start);
        let now = start + Duration::from_secs(100);
        for (at, peer) in (0..3).zip(1..) {
            root.handle_bytes(
                at,
                &Control::Pong { sequence: 1 }.to_bytes(),
                if silent && peer == 2 { start } else { now },
            );
        }
        let late = Failure {
            reporter: 1,
            cause: "nothing came of rank 3".to_owned(),
            weight: Weight::Late { sequence: 1 },
        };
        root.handle_bytes(0, &Control::Failed(late).to_bytes(), now);
        // All are told, and leave.
        for at in 0..3 {
            assert!(!sent(&mut root, at, now).is_empty());
            root.handle_end(at, "", now);
        }
        let failure = failure(&mut root, now);
        assert!(failure.cause.starts_with(says), "{failure}");
    }
}

#[test]
fn a_message_of_the_next_exchange_waits_for_it_and_so_does_all_behind_it() {
    let (mut protocol, now) = begun(1, &[(Purpose::Control, 0), (Purpose::Data, 0)]);
    let next = Header { sequence: 2, ..header() };
    let bytes = [message(&header()), message(&header()), message(&next), message(&next)].concat();
    let taken = protocol.handle_bytes(1, &bytes, now);
    assert_eq!(taken, 2 * message(&header()).len() + HEADER_LEN);
    assert!(!protocol.wants_bytes(1) && protocol.wants_bytes(0));
    protocol.handle_command(Command::End, now);
    protocol.handle_command(expect(1, 2, 2), now);
    assert_eq!(protocol.handle_bytes(1, &bytes[taken..], now), bytes.len() - taken);
    assert_eq!(events(&mut protocol).len(), 4);
}

/// A peer that is stopped, or that only writes, leaves unread whatever it is answered.
#[test]
fn no_frames_make_a_rank_keep_answers_without_end() {
    let flood = |rank: Rank, frames: &[Control]| {
        let (mut protocol, now) = begun(rank, &[(Purpose::Control, 1 - rank), (Purpose::Data, 1 - rank)]);
        for frame in frames.iter().cycle().take(3 * MAX_ANSWERS) {
            protocol.handle_bytes(0, &frame.to_bytes(), now);
            protocol.handle_timeout(now);
        }
        assert!(protocol.connections[0].out.len() <= MAX_ANSWERS + 1);
        failure(&mut protocol, now).cause
    };
    assert!(flood(1, &[Control::Ping]).contains("rank 0 leaves 16384 control frames unread"));
    let asks = [Control::Wish { to: 0, bytes: 1 << 30 }, Control::Done { to: 0 }];
    assert!(flood(0, &asks).contains("rank 1 leaves 16384 control frames unread"));
}

#[test]
fn a_rank_that_leaves_sends_what_waits_and_says_goodbye() {
    let others = [(Purpose::Control, 0), (Purpose::Data, 0)];
    let (mut protocol, now) = begun(1, &others);
    let body = Arc::new(vec![7; 20]);
    let message = Message { tag: 3, format: Format::Raw };
    protocol.handle_command(Command::Send { to: 0, job: 0, part: 1, message, body, big: true }, now);
    protocol.handle_command(Command::Close, now);
    assert!(protocol.poll_finish().is_none());
    assert_eq!(sent(&mut protocol, 0, now), Control::Bye.to_bytes());
    let data = sent(&mut protocol, 1, now);
    let own = Header { tag: 3, ..header() };
    assert_eq!(data, [&own.to_bytes()[..], &[7; 20], &Header::bye(1).to_bytes()].concat());
    assert_eq!(std::iter::from_fn(|| protocol.poll_finish()).collect::<Vec<_>>(), [0, 1]);
    // What others still send is read, and thrown away.
    assert_eq!(protocol.handle_bytes(1, &[b'x'; 1000], now), 1000);
    assert!(!protocol.is_closed());
    protocol.handle_end(0, "", now);
    protocol.handle_end(1, "", now);
    assert!(protocol.is_closed() && events(&mut protocol).is_empty());
}

#[test]
fn a_coordinated_message_leaves_when_the_plan_says() {
    let ms = Duration::from_millis;
    for (enough, patience, leaves_at) in
        [(1 << 20, ms(40), ms(40)), (1 << 20, ms(7), ms(7)), (1, ms(40), ms(0))]
    {
        let start = Instant::now();
        let end = |purpose| Endpoint { purpose, peer: 1, outgoing: false };
        let ends = [Purpose::Control, Purpose::Data].map(end);
        let mut protocol = Protocol::new(0, 2, false, TIMEOUT, ends, start);
        let order = format!("coordinated:{enough}:{}", patience.as_micros());
        protocol.handle_command(ordered(0, 2, 1, order.parse().unwrap()), start);
        let (message, body) = (Message { tag: 0, format: Format::Raw }, Arc::new(vec![7; 20]));
        protocol.handle_command(Command::Send { to: 1, job: 0, part: 1, message, body, big: true }, start);
        let mut now = start;
        while !protocol.wants_to_send(1) {
            now = protocol.next_timeout().expect("a message waits").max(now);
            protocol.handle_timeout(now);
        }
        assert!((leaves_at..leaves_at + ms(1)).contains(&(now - start)), "{order}: {:?}", now - start);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_of_a_peer_make_a_rank_hang_or_panic(
        data in prop::collection::vec(any::<u8>(), 0..300),
        control in prop::collection::vec(any::<u8>(), 0..60),
        good in 0usize..3,
        rank in 0usize..2,
        piece in 1usize..200,
    ) {
        let data = [message(&header()).repeat(good), data].concat();
        let whole = told(rank, &data, &control);
        prop_assert!(whole.1 <= good);
        prop_assert_eq!(told_in_pieces(rank, &data, &control, piece), whole);
    }
}
