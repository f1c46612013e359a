//! Models whose tensors follow from a few numbers of their papers. Nobody published their compute
//! times for the mechanisms compared here, so users give them.

use super::hipress;
use super::model::{Model, Parameter};
use super::rows::{Rows, attention_flops};
use super::ugatit::ugatit;
use crate::error::SimError;

const NAMES: [&str; 10] = [
    "gpt2",
    "llama2-7b",
    "vgg19",
    "resnet50",
    "ugatit",
    "ugatit-light",
    "bert-base",
    "bert-large",
    "lstm",
    "transformer",
];

/// The tensors of the model of this name.
fn parameters(name: &str) -> Option<Vec<Parameter>> {
    let mut rows = Rows::default();
    match name {
        "gpt2" => gpt2(&mut rows),
        "llama2-7b" => llama2(&mut rows),
        "vgg19" => vgg19(&mut rows),
        "resnet50" => hipress::resnet50(&mut rows),
        "ugatit" => ugatit(&mut rows, false),
        "ugatit-light" => ugatit(&mut rows, true),
        "bert-base" => hipress::bert(&mut rows, 12, 768),
        "bert-large" => hipress::bert(&mut rows, 24, 1024),
        "lstm" => hipress::lstm(&mut rows),
        "transformer" => hipress::transformer(&mut rows),
        _ => return None,
    }
    Some(rows.into_parameters())
}

impl Model {
    /// Names of all models that come with gradwire: [`Self::names`], and those without published
    /// compute times.
    pub fn all_names() -> impl Iterator<Item = &'static str> {
        Self::names().chain(NAMES)
    }

    /// A model that comes with gradwire: [`Self::published`], or one whose compute times are zero.
    ///
    /// # Errors
    /// No model has this name.
    pub fn named(name: &str) -> Result<Self, SimError> {
        let Some(parameters) = parameters(name) else {
            return Self::published(name).map_err(|_| {
                let known = Self::all_names().collect::<Vec<_>>().join(", ");
                SimError::UnknownModel { name: name.to_owned(), known }
            });
        };
        Ok(Self { name: name.to_owned(), parameters, variables: Vec::new(), forward: 0.0, backward: 0.0 })
    }
}

/// GPT-2 with 124 million values (Radford et al. 2019, and the names of its checkpoint), for a
/// sequence of 1024 tokens. The last product is with the table of tokens; its FLOPs count where it
/// happens, at the last normalisation.
fn gpt2(rows: &mut Rows) {
    const VOCABULARY: u64 = 50_257;
    const TOKENS: u64 = 1024;
    const WIDTH: u64 = 768;
    rows.tensor("wte".into(), VOCABULARY * WIDTH, 0);
    rows.tensor("wpe".into(), TOKENS * WIDTH, 0);
    for layer in 0..12 {
        let name = |what: &str| format!("h{layer}.{what}");
        for (norm, matrices) in [
            ("ln_1", [("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH)]),
            ("ln_2", [("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)]),
        ] {
            rows.tensor(name(&format!("{norm}.weight")), WIDTH, 0);
            rows.tensor(name(&format!("{norm}.bias")), WIDTH, 0);
            for (matrix, from, to) in matrices {
                rows.matrix(name(&format!("{matrix}.weight")), from, to, TOKENS);
                let attention = if matrix == "attn.c_attn" { attention_flops(TOKENS, WIDTH) } else { 0 };
                rows.tensor(name(&format!("{matrix}.bias")), to, attention);
            }
        }
    }
    rows.tensor("ln_f.weight".into(), WIDTH, 2 * VOCABULARY * WIDTH * TOKENS);
    rows.tensor("ln_f.bias".into(), WIDTH, 0);
}

/// Llama 2 with 7 billion values (Touvron et al. 2023), for a sequence of 4096 tokens.
fn llama2(rows: &mut Rows) {
    const VOCABULARY: u64 = 32_000;
    const TOKENS: u64 = 4096;
    const WIDTH: u64 = 4096;
    const HIDDEN: u64 = 11_008;
    rows.tensor("tok_embeddings".into(), VOCABULARY * WIDTH, 0);
    for layer in 0..32 {
        let name = |what: &str| format!("layers.{layer}.{what}");
        rows.tensor(name("attention_norm"), WIDTH, attention_flops(TOKENS, WIDTH));
        for matrix in ["wq", "wk", "wv", "wo"] {
            rows.matrix(name(&format!("attention.{matrix}")), WIDTH, WIDTH, TOKENS);
        }
        rows.tensor(name("ffn_norm"), WIDTH, 0);
        for (matrix, from, to) in [("w1", WIDTH, HIDDEN), ("w2", HIDDEN, WIDTH), ("w3", WIDTH, HIDDEN)] {
            rows.matrix(name(&format!("feed_forward.{matrix}")), from, to, TOKENS);
        }
    }
    rows.tensor("norm".into(), WIDTH, 0);
    rows.matrix("output".into(), WIDTH, VOCABULARY, TOKENS);
}

/// VGG-19 (Simonyan and Zisserman 2015, configuration E) for an image of 224 x 224 and 1000
/// classes.
fn vgg19(rows: &mut Rows) {
    let (mut size, mut from) = (224, 3);
    for (block, (to, layers)) in [(64, 2), (128, 2), (256, 4), (512, 4), (512, 4)].into_iter().enumerate() {
        for layer in 1..=layers {
            let name = format!("conv{}_{layer}", block + 1);
            rows.matrix(format!("{name}.weight"), 9 * from, to, size * size);
            rows.tensor(format!("{name}.bias"), to, 0);
            from = to;
        }
        size /= 2;
    }
    for (name, from, to) in [("fc6", size * size * from, 4096), ("fc7", 4096, 4096), ("fc8", 4096, 1000)] {
        rows.matrix(format!("{name}.weight"), from, to, 1);
        rows.tensor(format!("{name}.bias"), to, 0);
    }
}
