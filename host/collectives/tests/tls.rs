//! Links with TLS: results, and what those without the job's key get.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use gradwire_collectives::{CollectivePlan, Layout, LinkError, Listening, Options, Residuals, Token};
use support::{exchanged, in_time, options, ranks};

fn secure() -> Options {
    Options { tls: true, ..options(false) }
}

/// With messages that sockets take at once, and such as they do not.
#[test]
fn results_are_those_without_tls() {
    for (plan, values) in [
        ("strategy = \"ring\"\ncodec = \"f32\"", 3_000_000),
        ("strategy = \"ring\"\ncodec = \"f32\"", 5),
        ("strategy = \"servers\"\ncodec = \"q8:256\"", 20_000),
        ("strategy = \"all-gather\"\ncodec = \"3lc:1:1024\"", 20_000),
        ("strategy = \"servers\"\ncodec = \"f32\"\norder = \"coordinated\"", 20_000),
    ] {
        let clear = exchanged(&options(false), plan, values);
        assert!(exchanged(&secure(), plan, values) == clear, "{plan}");
        assert!(clear[0] == clear[1] && clear[0].iter().any(|bits| *bits != 0));
    }
}

/// The errors of rank 0 and of rank 1 that have these options, or of a stranger in its place.
fn refused(zero: &Options, one: Result<&Options, &[u8]>) -> [String; 2] {
    let told = |timeout| {
        let bind = |options: &Options| {
            Listening::bind("127.0.0.1:0".parse().unwrap(), Options { timeout, ..options.clone() }).unwrap()
        };
        let zero = bind(zero);
        let root = zero.address().unwrap();
        std::thread::scope(|scope| {
            let zero = scope.spawn(move || zero.join(0, 2, root).unwrap_err());
            let one = match one {
                Ok(one) => bind(one).join(1, 2, root).unwrap_err().to_string(),
                Err(bytes) => {
                    let mut stream = TcpStream::connect(root).unwrap();
                    stream.write_all(bytes).unwrap();
                    let mut answer = Vec::new();
                    // Whoever refuses the first bytes may reset the connection for the others.
                    _ = stream.read_to_end(&mut answer);
                    format!("{answer:?}")
                }
            };
            let zero = zero.join().unwrap();
            assert!(matches!(zero, LinkError::Missing { .. }), "{zero}");
            [zero.to_string(), one]
        })
    };
    let late = |told: &[String; 2]| !told[0].contains("refused: 127.0.0.1:") || told[1].contains("timed out");
    in_time(|timeout| {
        let told = told(timeout);
        if late(&told) { Err(told.join("; ")) } else { Ok(told) }
    })
}

#[test]
fn ranks_without_the_same_options_hear_the_cause() {
    let (secure, clear) = (secure(), options(false));
    let same_token = Options { tls: true, ..clear.clone() };
    let [zero, one] = refused(&secure, Ok(&clear));
    assert!(zero.contains("it speaks no TLS, and this rank does"), "{zero}");
    assert!(
        one.contains("speaks TLS, and this rank does not: give all ranks of a job TLS, or none"),
        "{one}"
    );
    let [zero, one] = refused(&clear, Ok(&same_token));
    assert!(zero.contains("it speaks TLS, and this rank does not"), "{zero}");
    assert!(one.contains("speaks no TLS, and this rank does: give all ranks of a job TLS, or none"), "{one}");
    let [zero, one] = refused(&secure, Ok(&Options { token: Token::random().unwrap(), ..secure.clone() }));
    assert!(zero.contains("another token"), "{zero}");
    assert!(one.contains("knows another token: start all ranks of a job with the same one"), "{one}");
}

#[test]
fn strangers_are_refused_and_told_nothing() {
    let secure = secure();
    let [zero, answer] = refused(&secure, Err(&[b'x'; 200]));
    assert!(zero.contains("it speaks no TLS, and this rank does"), "{zero}");
    // Nothing but an alert.
    assert!(answer.starts_with("[21, 3, ") && answer.split(',').count() == 7, "{answer}");
    // A ClientHello that ends too soon.
    let [zero, _] = refused(&secure, Err(&[22, 3, 1, 0, 4, 1, 0, 0, 0]));
    assert!(zero.contains("TLS's handshake not finished"), "{zero}");
}

#[test]
fn what_cannot_be_encrypted_is_refused() {
    let tagged = Options { tagged: Some(1), ..secure() };
    let told = Listening::bind("127.0.0.1:0".parse().unwrap(), tagged).unwrap_err().to_string();
    assert!(told.contains("TLS, and tagged connections"), "{told}");
    let (layout, plan) = (Layout::new([("a", 100)]).unwrap(), "strategy = \"in-network:127.0.0.1:9\"");
    let plan: CollectivePlan = plan.parse().unwrap();
    for told in ranks(2, "127.0.0.1:0", &secure(), |mut link| {
        link.exchange(&mut [0.0; 100], &layout, &plan, &mut Residuals::new()).unwrap_err().to_string()
    }) {
        assert!(told.contains("TLS, and a plan in-network"), "{told}");
    }
}
