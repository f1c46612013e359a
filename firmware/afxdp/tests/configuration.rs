//! The fuzzer's corpus of configuration files, and files made of lines that have to do with one.

use gradwire_testbench::oracle::corpus;
use proptest::prelude::*;

#[path = "../../../fuzz/oracles/configuration.rs"]
mod configuration;

#[test]
fn the_corpus_holds() {
    corpus::replay("configuration", configuration::verify);
}

/// A list of settings, each any number of times.
fn settings(each: &'static [&'static str]) -> impl Strategy<Value = String> {
    let any: Vec<_> = each.iter().map(Strategy::boxed).collect();
    prop::collection::vec(proptest::strategy::Union::new(any), 0..4).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_lines_hold(
        top in settings(&["mark = 0x[34][048]", "marks = 1", "rule = \\[\\]", ".{0,12}"]),
        rules in prop::collection::vec(
            ("tos = (0x28|0x50|40|[0-9]{1,3})", settings(&[
                "codec = [0-3]", "profile = \"(inceptionn|x)\"", "mask = 0xf[cf]", "bound = (-?[0-9]{1,2}|1[0-4])", "scale = -?[0-9]{1,2}", "split = \"(dense|paper|x)\"",
                "framing = \"(routed|in-place)\"", "alignment = '(connection|payload)'", "udp = true", "handshake = \"(required|off)\"", "heuristic = \"(on|off)\"",
                "udp-offset = [0-9]{1,3}",
            ])),
            0..3,
        ),
        aggregator in settings(&[
            "[aggregator]", "interface = \"eth1\"", "address = \"([0-9.]{0,9}|::1)\"", "port = [0-9]{1,6}",
            "group = \"(22[0-9]|239)\\.0\\.[01]\\.1\"",
        ]),
        path in settings(&[
            "[path]", "mode = \"(auto|native|generic)\"", "zero-copy = (true|\"(auto|on|off)\")", "threads = [0-9]",
            "busy-poll-us = [0-9]{1,11}", "bypass-filter = (true|false)",
        ]),
        metrics in settings(&["[metrics]", "port = [0-9]{1,6}", "address = \"(::1|[0-9.]{0,9})\"", ".{0,12}"]),
    ) {
        let rules: String = rules.iter().map(|(tos, rest)| format!("[[rule]]\n{tos}\n{rest}\n")).collect();
        configuration::verify(format!("{top}\n{rules}{aggregator}\n{path}\n{metrics}\n").as_bytes());
    }
}
