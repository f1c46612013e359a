//! U-GAT-IT (Kim et al., ICLR 2020), which turns images of one kind into another's, as its authors'
//! PyTorch code has it, for images of 256 x 256.

use super::rows::Rows;

/// Pixels of an image's side.
const SIDE: u64 = 256;
/// Channels of each network's first convolution.
const CHANNELS: u64 = 64;

/// The two generators, and a global and a local discriminator of each kind of image. FLOPs are of
/// one image through each; a step of training sends several. `light` generators average the picture
/// before their fully connected layers.
pub(super) fn ugatit(rows: &mut Rows, light: bool) {
    for network in ["gen_a2b", "gen_b2a"] {
        generator(rows, network, light);
    }
    for (network, layers) in
        [("dis_global_a", 7), ("dis_global_b", 7), ("dis_local_a", 5), ("dis_local_b", 5)]
    {
        discriminator(rows, network, layers);
    }
}

/// An encoder of four blocks, a map of what it attends to, the decoder's normalisation from that
/// map, and the decoder of four blocks. Only the map's convolution has a bias.
fn generator(rows: &mut Rows, network: &str, light: bool) {
    let name = |what: &str| format!("{network}.{what}");
    let (width, side) = (4 * CHANNELS, SIDE / 4);
    rows.matrix(name("down.conv0"), 49 * 3, CHANNELS, SIDE * SIDE);
    rows.matrix(name("down.conv1"), 9 * CHANNELS, 2 * CHANNELS, 4 * side * side);
    rows.matrix(name("down.conv2"), 9 * 2 * CHANNELS, width, side * side);
    for block in 0..4 {
        for conv in 0..2 {
            rows.matrix(name(&format!("down.block{block}.conv{conv}")), 9 * width, width, side * side);
        }
    }
    attention_map(rows, network, width, side);
    rows.matrix(name("fc0"), if light { width } else { side * side * width }, width, 1);
    for layer in ["fc1", "gamma", "beta"] {
        rows.matrix(name(layer), width, width, 1);
    }
    for block in 0..4 {
        for conv in 0..2 {
            rows.matrix(name(&format!("up.block{block}.conv{conv}")), 9 * width, width, side * side);
            rows.tensor(name(&format!("up.block{block}.norm{conv}.rho")), width, 0);
        }
    }
    for (at, to) in [2 * CHANNELS, CHANNELS].into_iter().enumerate() {
        let side = side << (at + 1);
        rows.matrix(name(&format!("up.conv{at}")), 9 * 2 * to, to, side * side);
        for part in ["rho", "gamma", "beta"] {
            rows.tensor(name(&format!("up.norm{at}.{part}")), to, 0);
        }
    }
    rows.matrix(name("up.conv2"), 49 * CHANNELS, 3, SIDE * SIDE);
}

/// `layers` - 1 convolutions of 4 x 4, of which all but the last halve the picture, a map of what
/// they attend to, and a last convolution.
fn discriminator(rows: &mut Rows, network: &str, layers: u64) {
    let (mut from, mut to, mut side) = (3, CHANNELS, SIDE);
    for layer in 0..layers - 1 {
        side = if layer + 2 < layers { side / 2 } else { side - 1 };
        rows.matrix(format!("{network}.conv{layer}.weight"), 16 * from, to, side * side);
        rows.tensor(format!("{network}.conv{layer}.bias"), to, 0);
        (from, to) = (to, 2 * to);
    }
    attention_map(rows, network, from, side);
    side -= 1;
    rows.matrix(format!("{network}.conv"), 16 * from, 1, side * side);
}

/// The map of what a network attends to: classifiers of the averages and of the maxima, whose
/// weights scale the picture's channels.
fn attention_map(rows: &mut Rows, network: &str, width: u64, side: u64) {
    for classifier in ["average", "maximum"] {
        rows.matrix(format!("{network}.map.{classifier}"), width, 1, 1);
    }
    rows.matrix(format!("{network}.map.conv.weight"), 2 * width, width, side * side);
    rows.tensor(format!("{network}.map.conv.bias"), width, 0);
}
