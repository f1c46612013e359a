//! The fuzzer's corpus of typing, and lines made of the console's words.

use gradwire_testbench::oracle::corpus;
use proptest::prelude::*;

#[path = "../../../fuzz/oracles/console.rs"]
mod console;

#[test]
fn the_corpus_holds() {
    corpus::replay("console", console::verify);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_words_hold(
        verb in "(rule (add|remove|default)?|rules|mark|logs|help|[a-z]{1,8})?",
        words in prop::collection::vec(
            prop_oneof![
                "(tos|mask|bound|udp-offset)=(0x)?[0-9a-f]{1,3}", "scale=-?[0-9]{1,3}", "split=(dense|paper|none)", "codec=[123]", "profile=inceptionn",
                "framing=(routed|in-place)", "alignment=(connection|payload)", "handshake=(required|off)", "heuristic=(on|off)", "[+]?[0-9]{1,4}", "on|off", "[ -~]{0,8}",
            ],
            0..5,
        ),
        end in "[\r\n\u{3}\u{15}\u{7f}\u{1b}]{1,3}",
        more in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let line = format!("{verb} {}{end}", words.join(" "));
        console::verify(&[line.as_bytes(), &more].concat());
    }

    #[test]
    fn any_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        console::verify(&bytes);
    }
}
