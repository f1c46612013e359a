//! Sums in the network against times worked out by hand.

use gradwire_simulator::{
    AggregatorRate, CHUNK_VALUES, Compression, ComputeTimes, Content, Links, Mechanism, Model, Packets,
    Picos, Racks, SECOND, Scenario, Wire, seconds,
};

/// One parameter of these values, no compute.
fn model(values: u64) -> Model {
    let csv = format!("name,values,forward_flops\np,{values},0\n");
    Model::from_csv("one", csv.as_bytes()).unwrap()
}

/// A million values at 1 Gbit/s: 32 ms on a link.
const VALUES: u64 = 1_000_000;
const LINK: Picos = 32 * SECOND / 1000;

fn scenario(mechanism: &str, workers: u32, aggregator: AggregatorRate) -> Scenario {
    Scenario {
        workers,
        aggregator,
        links: Links { bandwidth: 1_000_000_000, exceptions: Vec::new(), latency: 0, racks: None },
        ..Scenario::new(model(VALUES), mechanism.parse().unwrap())
    }
}

fn time(scenario: &Scenario) -> Picos {
    scenario.run().unwrap().iteration
}

const IDEAL: AggregatorRate = AggregatorRate { rate: 1 << 60, cores: 1 };

/// Up and down at once: the sum leaves while copies still come.
#[test]
fn an_ideal_aggregator_takes_one_transmission_however_many_the_workers() {
    for workers in [1, 2, 4, 16, 64] {
        assert_eq!(time(&scenario("ina", workers, IDEAL)), LINK, "{workers} workers");
    }
}

/// Eight workers send 8 million values. At 100 million a second and core that takes 80 ms.
#[test]
fn a_slow_aggregator_takes_its_rate_and_cores_share_it() {
    for (cores, expected) in [(1, 80), (2, 40), (4, 32), (8, 32)] {
        let aggregator = AggregatorRate { rate: 100_000_000, cores };
        assert_eq!(time(&scenario("ina", 8, aggregator)), expected * SECOND / 1000, "{cores} cores");
    }
}

/// The copies of two parameters queue up before the aggregator. It adds in the order in which they
/// come, so the times add up.
#[test]
fn an_aggregator_serves_one_parameter_after_the_other() {
    let csv = format!("name,values,forward_flops\na,{VALUES},0\nb,{VALUES},0\n");
    let two = Model::from_csv("two", csv.as_bytes()).unwrap();
    let mut scenario = scenario("ina", 4, AggregatorRate { rate: 50_000_000, cores: 1 });
    (scenario.compute_times, scenario.model) = (vec![ComputeTimes::of(&two)], two);
    assert_eq!(time(&scenario), 160 * SECOND / 1000);
}

/// Up one way with the link's latency, which counts to the far end, and from the switch nothing
/// more.
#[test]
fn the_way_by_the_aggregator_is_as_long_as_the_way_to_another_worker() {
    let mut far = scenario("ina", 4, IDEAL);
    far.links.latency = SECOND / 1000;
    assert_eq!(time(&far), LINK + SECOND / 1000);
}

/// Racks of four, 4:1: an uplink carries what one link does. Without aggregators in racks, four
/// copies share it. With them, one partial sum passes. An aggregator in a rack adds four copies,
/// the one in the core two.
#[test]
fn aggregators_in_racks_spare_narrow_uplinks() {
    let racked = |mechanism: &str, aggregator| {
        let mut scenario = scenario(mechanism, 8, aggregator);
        scenario.links.racks = Some(Racks { size: 4, oversubscription: 4.0 });
        time(&scenario)
    };
    assert_eq!(racked("ina", IDEAL), 4 * LINK);
    assert_eq!(racked("ina:rack", IDEAL), LINK);
    // 4 million values at 40 million a second, and then the core's two million, whose first come
    // with the first bits.
    assert_eq!(racked("ina:rack", AggregatorRate { rate: 40_000_000, cores: 1 }), 100 * SECOND / 1000);
    assert_eq!(racked("ina", AggregatorRate { rate: 40_000_000, cores: 1 }), 200 * SECOND / 1000);
}

/// With one switch, its aggregator is the rack's and the core's.
#[test]
fn without_racks_there_is_one_aggregator() {
    let aggregator = AggregatorRate { rate: 100_000_000, cores: 1 };
    assert_eq!(time(&scenario("ina:rack", 8, aggregator)), time(&scenario("ina", 8, aggregator)));
}

/// Racks of three, three and two.
#[test]
fn a_last_rack_may_have_fewer_workers() {
    let mut scenario = scenario("ina:rack", 8, IDEAL);
    scenario.links.racks = Some(Racks { size: 3, oversubscription: 1.0 });
    assert_eq!(time(&scenario), LINK);
}

/// Ratios of the table, in proportion to the gradient's 6.19: a sum of 4 has 5.57 / 6.49 of it; one
/// of 8 lies halfway to 16.
#[test]
fn sums_of_more_workers_compress_less() {
    let codec: Compression = "in-nic:b10".parse().unwrap();
    for (workers, table) in [(1, 6.49), (4, 5.57), (8, (5.57 + 5.1) / 2.0), (16, 5.1), (64, 4.0), (1000, 4.0)]
    {
        let ours = codec.ratios.of(Content::Sum(workers));
        assert!((ours - 6.19 * table / 6.49).abs() < 1e-9, "{workers}: {ours}");
    }
    // Of ratios that somebody gives nothing more is known than of partial sums.
    let given: Compression = "in-nic:8/4".parse().unwrap();
    assert_eq!(given.ratios.of(Content::Sum(64)), 4.0);
    // Down takes longer than up, so down bounds the exchange.
    let mut dense = scenario("ina", 16, IDEAL);
    dense.wire.compression = Some(codec);
    let down = LINK as f64 / (6.19 * 5.1 / 6.49);
    assert!((time(&dense) as f64 / down - 1.0).abs() < 1e-4, "{} and {down}", time(&dense));
}

/// A chunk's 8192 raw bytes are 2048 at a ratio of 4, in two packets of at most 1500 - 48 bytes.
/// Each has 48 bytes of headers inside the MTU, and 38 outside. As `f32`, a chunk takes six.
#[test]
fn chunks_have_packets_of_their_own() {
    let packets = Some(Packets::of_mtu(1500));
    let bits = 10 * CHUNK_VALUES * 32;
    let cost = |codec: &str| {
        Wire { compression: codec.parse().ok(), packets }.chunk_cost(bits, Content::Gradient).bits / 8
    };
    assert_eq!(cost("in-nic:4"), 10 * (2048 + 2 * 86));
    assert_eq!(cost("in-nic:16"), 10 * (512 + 86));
    assert_eq!(cost(""), 10 * (8192 + 6 * 86));
    // A host's codec makes the same packets, and takes its time.
    let host = Wire { compression: "on-host:4@1,2".parse().ok(), packets };
    let host = host.chunk_cost(bits, Content::Gradient);
    assert_eq!((host.bits / 8, host.encode, host.decode), (cost("in-nic:4"), 81_920 * 1000, 81_920 * 500));
}

#[test]
fn an_aggregator_without_cores_or_rate_is_refused() {
    for aggregator in [AggregatorRate { rate: 0, cores: 1 }, AggregatorRate { rate: 1, cores: 0 }] {
        let error = scenario("ina", 4, aggregator).run().unwrap_err().to_string();
        assert!(error.contains("aggregator"), "{error}");
    }
}

#[test]
fn names_are_read_back() {
    for name in ["ina", "ina:rack"] {
        assert_eq!(name.parse::<Mechanism>().unwrap().to_string(), name);
    }
    assert!("ina:4".parse::<Mechanism>().is_err());
}

/// The table of docs/aggregation.md, and what it says of ResNet-101.
#[test]
fn the_page_says_what_is_simulated() {
    let page = include_str!("../../docs/aggregation.md");
    let cluster = |model: &str, mechanism: &str, workers, bandwidth, cores| {
        let mut scenario = Scenario::new(Model::published(model).unwrap(), mechanism.parse().unwrap());
        (scenario.workers, scenario.links.bandwidth, scenario.aggregator.cores) = (workers, bandwidth, cores);
        scenario.wire =
            Wire { compression: Some("in-nic:b10".parse().unwrap()), packets: Some(Packets::of_mtu(1500)) };
        seconds(time(&scenario))
    };
    let mut rows = 0;
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, link, workers, times @ .., _] = &cells[..] else { continue };
        let (Some(digits), Ok(workers)) = (link.strip_suffix(['M', 'G']), workers.parse()) else { continue };
        let unit = if link.ends_with('G') { 1_000_000_000 } else { 1_000_000 };
        let bandwidth = digits.parse::<u64>().unwrap() * unit;
        let ours = [("ring", 1), ("ina", 1), ("ina", 4), ("ina", 16)].map(|(mechanism, cores)| {
            format!("{:.2}", cluster("vgg16", mechanism, workers, bandwidth, cores))
        });
        assert_eq!(times, ours, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 8);
    let [ring, aggregator] = ["ring", "ina"].map(|name| cluster("resnet101", name, 16, 10_000_000_000, 16));
    assert!((ring / aggregator - 1.0).abs() < 1e-3, "{ring} and {aggregator}");
}
