//! All 2^32 values: the model's lane blocks against the definition, with a sample of the parameters
//! or with all that `dataplane/tests/exhaustive.csv` records.
//!
//! `GRADWIRE_BOUNDS=10,11` runs those bounds; `.ci/exhaustive` does so for all and writes the
//! record.

use gradwire::codec::{decode_lane, encode_lane};
use gradwire_gateware_model::{compression_block, decompression_block};

#[path = "../../../../dataplane/tests/common/every_value.rs"]
mod every_value;
use every_value::{BLOCK, NO_SCALE, on_every_value};

#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire-gateware-model --test exhaustive -- --ignored --nocapture"]
fn lane_blocks() {
    on_every_value("lane-blocks", &NO_SCALE, |params, block| {
        for value in block * BLOCK..=block * BLOCK + (BLOCK - 1) {
            let lane = compression_block(value, params);
            assert!(lane == encode_lane(value, params), "{value:#010x} {params:?}");
            assert!(
                decompression_block(lane, params) == decode_lane(lane, params),
                "{value:#010x} {params:?}"
            );
        }
    });
}
