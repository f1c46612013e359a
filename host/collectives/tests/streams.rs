//! Links whose connections have several TCP streams.

mod support;

use gradwire_collectives::{Listening, Options};
use support::{exchanged, in_time, options};

#[test]
fn results_are_those_of_one_stream() {
    for (plan, values) in [
        ("strategy = \"ring\"\ncodec = \"f32\"", 3_000_000),
        ("strategy = \"ring\"\ncodec = \"f32\"", 5),
        ("strategy = \"servers\"\ncodec = \"q8:256\"\norder = \"coordinated\"", 20_000),
    ] {
        let one = exchanged(&options(false), plan, values);
        for (streams, tls) in [(2, false), (8, false), (3, true)] {
            let several = exchanged(&Options { streams, tls, ..options(false) }, plan, values);
            assert!(several == one, "{plan}, {streams} streams, TLS: {tls}");
        }
    }
    // Tagged connections have one.
    let tagged = options(true);
    let one = exchanged(&tagged, "strategy = \"ring\"\ncodec = \"wire:2:10\"", 5000);
    let several =
        exchanged(&Options { streams: 4, ..tagged }, "strategy = \"ring\"\ncodec = \"wire:2:10\"", 5000);
    assert!(one == several);
}

#[test]
fn ranks_with_another_number_of_streams_hear_the_cause() {
    let own = options(false);
    in_time(|timeout| {
        let bind = |streams| {
            let options = Options { streams, timeout, ..own.clone() };
            Listening::bind("127.0.0.1:0".parse().unwrap(), options).unwrap()
        };
        let (zero, one) = (bind(4), bind(1));
        let root = zero.address().unwrap();
        let [zero, one] = std::thread::scope(|scope| {
            let zero = scope.spawn(move || zero.join(0, 2, root).unwrap_err().to_string());
            let one = one.join(1, 2, root).unwrap_err().to_string();
            [zero.join().unwrap(), one]
        });
        let heard = zero.contains("rank 1 opens 1 streams, expected 4")
            && one.contains("it expects 4 streams, this rank 1: give all ranks the same");
        if heard { Ok(()) } else { Err(format!("{zero}; {one}")) }
    });
}

#[test]
fn counts_that_no_hello_can_say_are_refused() {
    for streams in [0, 9] {
        let options = Options { streams, ..options(false) };
        let told = Listening::bind("127.0.0.1:0".parse().unwrap(), options).unwrap_err().to_string();
        assert_eq!(told, format!("{streams} streams: expected 1 to 8"));
    }
}
