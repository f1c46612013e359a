//! Links whose connections have several TCP streams.

mod support;

use gradwire_collectives::{CollectivePlan, Layout, Listening, Options, Residuals};
use support::{Random, options, ranks};

/// The bits that each of three ranks gets of exchanges of this many values.
fn exchanged(options: &Options, plan: &str, values: usize) -> Vec<Vec<u32>> {
    let (layout, plan) = (Layout::new([("a", values)]).unwrap(), plan.parse::<CollectivePlan>().unwrap());
    ranks(3, "127.0.0.1:0", options, |mut link| {
        let mut residuals = Residuals::new();
        let round = |round: u64| {
            let mut buffer = Random(link.rank() as u64 + 10 * round).values(values);
            link.exchange(&mut buffer, &layout, &plan, &mut residuals).unwrap();
            buffer.into_iter().map(f32::to_bits)
        };
        (0..2).flat_map(round).collect()
    })
}

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
    // On a busy machine one may not have met the other within this time: then both have more.
    for seconds in [2, 4, 8, 16, 32, 64, 128] {
        let bind = |streams| {
            let timeout = std::time::Duration::from_secs(seconds);
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
        if zero.contains("rank 1 opens 1 streams, expected 4")
            && one.contains("it expects 4 streams, this rank 1: give all ranks the same")
        {
            return;
        }
        eprintln!("{seconds} s: {zero}; {one}");
    }
    panic!("no rank heard of the other's streams within 128 s");
}

#[test]
fn counts_that_no_hello_can_say_are_refused() {
    for streams in [0, 9] {
        let options = Options { streams, ..options(false) };
        let told = Listening::bind("127.0.0.1:0".parse().unwrap(), options).unwrap_err().to_string();
        assert_eq!(told, format!("{streams} streams: expected 1 to 8"));
    }
}
