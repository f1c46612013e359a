//! Models: what has to be sent and computed, one row for each trained parameter in forward order.

use std::collections::HashMap;
use std::io::Read;

use serde::Deserialize;

use crate::error::SimError;

/// Bits of an `f32`.
pub const VALUE_BITS: u64 = 32;

/// Values or FLOPs that a parameter may have, so that no sum of them overflows.
pub const MOST_VALUES: u64 = 1 << 44;

/// One trained parameter (a tensor).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Parameter {
    /// Its name in the framework that trained it.
    pub name: String,
    /// Values in it.
    pub values: u64,
    /// FLOPs (2 MACs) of its forward pass for one image; 0 for biases and normalisation, and in a
    /// file without this column.
    #[serde(default)]
    pub forward_flops: u64,
    /// Size as `f32`, in bits. `32 * values`, unless the model was scaled.
    #[serde(skip)]
    pub bits: u64,
}

/// A variable in creation order: a trained parameter or an untrained statistic.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Variable {
    /// Its name; the same as the parameter's if it is trained.
    pub name: String,
    /// Values in it.
    pub values: u64,
    /// `w`, `b`, `beta`, `gamma`: trained; `mean`, `var`: moving statistics.
    pub kind: String,
}

/// A model, with the compute times of one iteration at batch 32 if a source gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Short name, as on the command line.
    pub name: String,
    /// Trained parameters in forward order.
    pub parameters: Vec<Parameter>,
    /// All variables in creation order; empty if only the parameters are known.
    pub variables: Vec<Variable>,
    /// Forward pass of a batch, in seconds.
    pub forward: f64,
    /// Backward pass of a batch from its first gradient on, in seconds.
    pub backward: f64,
}

/// A published model: its files and its numbers.
struct Published {
    name: &'static str,
    parameters: &'static str,
    variables: &'static str,
    /// Chang et al., Table 3: forward and backward seconds, batch 32.
    forward: f64,
    backward: f64,
    /// Backward seconds with which Table 8's ring cell fits.
    calibrated: f64,
    /// Chang et al., Table 2: Gb.
    gigabits: f64,
}

const PUBLISHED: [Published; 4] = [
    Published {
        name: "vgg16",
        parameters: include_str!("../../models/vgg16.csv"),
        variables: include_str!("../../models/vgg16.allvars.csv"),
        forward: 0.169,
        backward: 0.024,
        calibrated: 0.024,
        gigabits: 6.58,
    },
    Published {
        name: "resnet200",
        parameters: include_str!("../../models/resnet200.csv"),
        variables: include_str!("../../models/resnet200.allvars.csv"),
        forward: 0.357,
        backward: 0.340,
        calibrated: 0.467,
        gigabits: 2.06,
    },
    Published {
        name: "resnet101",
        parameters: include_str!("../../models/resnet101.csv"),
        variables: include_str!("../../models/resnet101.allvars.csv"),
        forward: 0.176,
        backward: 0.180,
        calibrated: 0.380,
        gigabits: 1.42,
    },
    Published {
        name: "inceptionv3",
        parameters: include_str!("../../models/inceptionv3.csv"),
        // The auxiliary head's variables were assigned to servers too, though its gradients were
        // not traced.
        variables: include_str!("../../models/inceptionv3_aux.allvars.csv"),
        forward: 0.176,
        backward: 0.296,
        calibrated: 0.386,
        gigabits: 0.715,
    },
];

impl Model {
    /// Names of the models of the operator's paper (Chang et al.).
    pub fn names() -> impl Iterator<Item = &'static str> {
        PUBLISHED.iter().map(|model| model.name)
    }

    /// A model of the operator's paper, with the compute times of Table 3 of Chang et al.
    ///
    /// # Errors
    /// No model has this name.
    pub fn published(name: &str) -> Result<Self, SimError> {
        let published = PUBLISHED.iter().find(|model| model.name == name);
        let published = published.ok_or_else(|| {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            SimError::UnknownModel { name: name.to_owned(), known }
        })?;
        let mut model = Self::from_csv(name, published.parameters.as_bytes())?;
        model.variables = rows(published.variables.as_bytes())?;
        Ok(model.timed(published.forward, published.backward))
    }

    /// The same with the backward time with which Table 8's ring cell fits.
    #[must_use]
    pub fn calibrated(mut self) -> Self {
        if let Some(published) = PUBLISHED.iter().find(|model| model.name == self.name) {
            self.backward = published.calibrated;
        }
        self
    }

    /// The same, scaled to the size that Table 2 prints (its files differ from ours by up to 6 %).
    #[must_use]
    pub fn table2_size(self) -> Self {
        match PUBLISHED.iter().find(|model| model.name == self.name) {
            Some(published) => self.scaled(published.gigabits * 1e9),
            None => self,
        }
    }

    /// Reads `name,values,forward_flops` rows in forward order, or `name,values` rows; compute
    /// times are zero.
    ///
    /// # Errors
    /// The file is not such a CSV, or it has no row.
    pub fn from_csv(name: &str, csv: impl Read) -> Result<Self, SimError> {
        let mut parameters: Vec<Parameter> = rows(csv)?;
        for parameter in &mut parameters {
            if parameter.values.max(parameter.forward_flops) > MOST_VALUES {
                return Err(SimError::OutOfRange { what: "a parameter's values or FLOPs" });
            }
            parameter.bits = parameter.values * VALUE_BITS;
        }
        if parameters.is_empty() {
            return Err(SimError::EmptyModel { name: name.to_owned() });
        }
        Ok(Self { name: name.to_owned(), parameters, variables: Vec::new(), forward: 0.0, backward: 0.0 })
    }

    /// The same with other compute times, in seconds.
    #[must_use]
    pub fn timed(self, forward: f64, backward: f64) -> Self {
        Self { forward, backward, ..self }
    }

    /// The same with every parameter's bits in proportion to a total of `bits`.
    #[must_use]
    pub fn scaled(mut self, bits: f64) -> Self {
        let factor = bits / self.bits() as f64;
        for parameter in &mut self.parameters {
            parameter.bits = (parameter.bits as f64 * factor).round() as u64;
        }
        self
    }

    /// Adds `layers` copies of a layer of `values` values and `forward_flops` FLOPs behind the last
    /// row.
    ///
    /// Compute times grow with the FLOPs, so that existing layers keep theirs.
    #[must_use]
    pub fn with_layers(mut self, layers: u32, values: u64, forward_flops: u64) -> Self {
        let before = self.forward_flops() as f64;
        let name = |layer| format!("added_{layer}");
        let bits = values * VALUE_BITS;
        self.parameters.extend((0..layers).map(|layer| Parameter {
            name: name(layer),
            values,
            forward_flops,
            bits,
        }));
        let growth = if before > 0.0 { self.forward_flops() as f64 / before } else { 1.0 };
        let (forward, backward) = (self.forward * growth, self.backward * growth);
        self.timed(forward, backward)
    }

    /// The same with `copies` more of the rows whose names begin with `prefix`, behind the last row
    /// and each as one row, so that a module of a model counts as one layer.
    #[must_use]
    pub fn with_copies(self, copies: u32, prefix: &str) -> Self {
        let module = self.parameters.iter().filter(|row| row.name.starts_with(prefix));
        let (values, flops) =
            module.fold((0, 0), |(values, flops), row| (values + row.values, flops + row.forward_flops));
        self.with_layers(copies, values, flops)
    }

    /// Trained values.
    #[must_use]
    pub fn values(&self) -> u64 {
        self.parameters.iter().map(|parameter| parameter.values).sum()
    }

    /// Size of all gradients as `f32`, in bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.parameters.iter().map(|parameter| parameter.bits).sum()
    }

    /// FLOPs of one image's forward pass.
    #[must_use]
    pub fn forward_flops(&self) -> u64 {
        self.parameters.iter().map(|parameter| parameter.forward_flops).sum()
    }

    /// TensorFlow's round robin: variable i in creation order lives on server i mod `servers`.
    /// Returns the server of each trained parameter; a model without variables is assigned
    /// parameter by parameter.
    #[must_use]
    pub fn round_robin(&self, servers: u32) -> Vec<u32> {
        let order = (0..servers).cycle();
        if self.variables.is_empty() {
            return order.take(self.parameters.len()).collect();
        }
        let of: HashMap<&str, u32> =
            self.variables.iter().map(|variable| variable.name.as_str()).zip(order).collect();
        self.parameters
            .iter()
            .map(|parameter| of.get(parameter.name.as_str()).copied().unwrap_or(0))
            .collect()
    }

    /// Each server's share of all variables' bytes under [`round_robin`](Self::round_robin).
    #[must_use]
    pub fn round_robin_shares(&self, servers: u32) -> Vec<f64> {
        let mut sums = vec![0_u64; servers as usize];
        for (at, variable) in self.variables.iter().enumerate() {
            sums[at % servers as usize] += variable.values;
        }
        let total: u64 = sums.iter().sum();
        sums.iter().map(|&sum| sum as f64 / total as f64).collect()
    }
}

fn rows<T: for<'de> Deserialize<'de>>(csv: impl Read) -> Result<Vec<T>, SimError> {
    csv::Reader::from_reader(csv).deserialize().collect::<Result<_, _>>().map_err(SimError::Csv)
}
