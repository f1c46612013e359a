//! Tables 2 and 7 of Chang et al. beside ours: how large models are, and what a server gets of one
//! when TensorFlow assigns variables in turn.

use gradwire_simulator::{Model, SimError};
use serde::Serialize;

/// A figure of one of the two tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The table's number.
    pub table: u8,
    /// The model.
    pub model: &'static str,
    /// The quantity, with its unit.
    pub what: String,
    /// As printed.
    pub published: f64,
    /// As our models have it.
    pub ours: f64,
}

/// Model, Gb of gradients, FLOPs of an image.
const TABLE_2: [(&str, f64, f64); 4] = [
    ("vgg16", 6.58, 5.4e10),
    ("resnet200", 2.06, 2.8e10),
    ("resnet101", 1.42, 1.3e10),
    ("inceptionv3", 0.715, 1.1e10),
];

/// Servers, model, smallest and largest share. Two of the largest are our second largest: 0.451 and
/// 0.22.
const TABLE_7: [(u32, &str, f64, f64); 6] = [
    (4, "vgg16", 4e-5, 0.918),
    (8, "vgg16", 1e-5, 0.859),
    (4, "inceptionv3", 0.0007, 0.451),
    (8, "inceptionv3", 0.0003, 0.292),
    (4, "resnet200", 0.165, 0.33),
    (8, "resnet200", 0.002, 0.22),
];

/// Every figure of the two tables.
///
/// # Errors
/// None, unless a committed model is damaged.
pub fn rows() -> Result<Vec<Row>, SimError> {
    let mut rows = Vec::new();
    for (model, gigabits, flops) in TABLE_2 {
        let ours = Model::published(model)?;
        let row = |what: &str, published, ours| Row { table: 2, model, what: what.into(), published, ours };
        rows.push(row("size, Gb", gigabits, ours.bits() as f64 / 1e9));
        rows.push(row("FLOPs, 1e10", flops / 1e10, ours.forward_flops() as f64 / 1e10));
    }
    for (servers, model, least, most) in TABLE_7 {
        let shares = Model::published(model)?.round_robin_shares(servers);
        let row = |what: &str, published, ours| Row {
            table: 7,
            model,
            what: format!("{what} of {servers} servers"),
            published,
            ours,
        };
        rows.push(row("least", least, shares.iter().copied().fold(1.0, f64::min)));
        rows.push(row("most", most, shares.iter().copied().fold(0.0, f64::max)));
    }
    Ok(rows)
}
