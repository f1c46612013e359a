//! The models that HiPress (SOSP 2021, Table 6) measures besides VGG-19, which `derived` has, and
//! those of `ugatit`: their tensors follow from their architectures and from the sizes that its
//! table prints.

use super::rows::{Rows, attention_flops};

/// ResNet-50 as MXNet has it: of He et al. 2016 ('identity mappings'), with normalisation before
/// each convolution, for an image of 224 x 224 and 1000 classes. The scale of the first
/// normalisation of the image is fixed.
pub(super) fn resnet50(rows: &mut Rows) {
    let norm = |rows: &mut Rows, name: String, channels: u64| {
        rows.tensor(format!("{name}.gamma"), channels, 0);
        rows.tensor(format!("{name}.beta"), channels, 0);
    };
    rows.matrix("conv0.weight".into(), 49 * 3, 64, 112 * 112);
    norm(rows, "bn0".into(), 64);
    let (mut from, mut size) = (64, 56);
    for (stage, (width, units)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate() {
        for unit in 0..units {
            let name = |what: &str| format!("stage{}.unit{}.{what}", stage + 1, unit + 1);
            // The second convolution of a stage's first unit halves the picture.
            let halves = unit == 0 && stage > 0;
            let small = if halves { size / 2 } else { size };
            norm(rows, name("bn1"), from);
            rows.matrix(name("conv1.weight"), from, width, size * size);
            norm(rows, name("bn2"), width);
            rows.matrix(name("conv2.weight"), 9 * width, width, small * small);
            norm(rows, name("bn3"), width);
            rows.matrix(name("conv3.weight"), width, 4 * width, small * small);
            if unit == 0 {
                rows.matrix(name("shortcut.weight"), from, 4 * width, small * small);
            }
            (from, size) = (4 * width, small);
        }
    }
    norm(rows, "bn1".into(), from);
    rows.matrix("fc.weight".into(), from, 1000, 1);
    rows.tensor("fc.bias".into(), 1000, 0);
}

/// A matrix with its bias.
fn linear(rows: &mut Rows, name: &str, from: u64, to: u64, times: u64) {
    rows.matrix(format!("{name}.weight"), from, to, times);
    rows.tensor(format!("{name}.bias"), to, 0);
}

/// A normalisation's scale and shift.
fn layer_norm(rows: &mut Rows, name: &str, width: u64) {
    rows.tensor(format!("{name}.weight"), width, 0);
    rows.tensor(format!("{name}.bias"), width, 0);
}

/// BERT of so many layers, with the heads of its training (Devlin et al. 2019), for a sequence of
/// 512 tokens. HiPress counts one gradient more than these.
pub(super) fn bert(rows: &mut Rows, layers: u32, width: u64) {
    const VOCABULARY: u64 = 30_522;
    const TOKENS: u64 = 512;
    rows.tensor("embeddings.word".into(), VOCABULARY * width, 0);
    rows.tensor("embeddings.position".into(), TOKENS * width, 0);
    rows.tensor("embeddings.token_type".into(), 2 * width, 0);
    layer_norm(rows, "embeddings.norm", width);
    for layer in 0..layers {
        let name = |what: &str| format!("layer{layer}.{what}");
        for part in ["query", "key", "value"] {
            linear(rows, &name(part), width, width, TOKENS);
        }
        rows.matrix(name("output.weight"), width, width, TOKENS);
        rows.tensor(name("output.bias"), width, attention_flops(TOKENS, width));
        layer_norm(rows, &name("attention_norm"), width);
        linear(rows, &name("intermediate"), width, 4 * width, TOKENS);
        linear(rows, &name("output_dense"), 4 * width, width, TOKENS);
        layer_norm(rows, &name("output_norm"), width);
    }
    linear(rows, "pooler", width, width, 1);
    linear(rows, "head.transform", width, width, TOKENS);
    layer_norm(rows, "head.norm", width);
    // The product is with the table of words.
    rows.tensor("head.bias".into(), VOCABULARY, 2 * VOCABULARY * width * TOKENS);
    linear(rows, "head.next_sentence", width, 2, 1);
}

/// The language model of PyTorch's examples on WikiText-2, its largest size: two LSTM layers of
/// 1500, the table of words used twice, for a sequence of 35 words.
pub(super) fn lstm(rows: &mut Rows) {
    const VOCABULARY: u64 = 33_278;
    const WIDTH: u64 = 1500;
    const WORDS: u64 = 35;
    rows.tensor("encoder.weight".into(), VOCABULARY * WIDTH, 0);
    for layer in 0..2 {
        for from in ["ih", "hh"] {
            rows.matrix(format!("rnn.weight_{from}_l{layer}"), WIDTH, 4 * WIDTH, WORDS);
            rows.tensor(format!("rnn.bias_{from}_l{layer}"), 4 * WIDTH, 0);
        }
    }
    rows.tensor("decoder.bias".into(), VOCABULARY, 2 * VOCABULARY * WIDTH * WORDS);
}

/// The base Transformer (Vaswani et al. 2017) as Tensor2Tensor has it: attention without biases,
/// one table of 33,708 words for all, for sentences of 64 words.
pub(super) fn transformer(rows: &mut Rows) {
    const VOCABULARY: u64 = 33_708;
    const WIDTH: u64 = 512;
    const WORDS: u64 = 64;
    rows.tensor("words".into(), VOCABULARY * WIDTH, 0);
    for (stack, attentions) in [("encoder", &["self"][..]), ("decoder", &["self", "across"])] {
        for layer in 0..6 {
            let name = |what: &str| format!("{stack}{layer}.{what}");
            for attention in attentions {
                layer_norm(rows, &name(&format!("{attention}.norm")), WIDTH);
                for part in ["q", "k", "v", "output"] {
                    rows.matrix(name(&format!("{attention}.{part}")), WIDTH, WIDTH, WORDS);
                }
            }
            layer_norm(rows, &name("ffn.norm"), WIDTH);
            linear(rows, &name("ffn.in"), WIDTH, 4 * WIDTH, WORDS);
            linear(rows, &name("ffn.out"), 4 * WIDTH, WIDTH, WORDS);
        }
        rows.tensor(
            format!("{stack}.norm.weight"),
            WIDTH,
            if stack == "decoder" { 2 * VOCABULARY * WIDTH * WORDS } else { 0 },
        );
        rows.tensor(format!("{stack}.norm.bias"), WIDTH, 0);
    }
}
