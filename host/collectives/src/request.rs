//! Requests of rank 1 to a server, as TOML.

use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// An exchange that the server takes part in.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) task: Task,
    pub(crate) plan: String,
    pub(crate) compare: bool,
    /// Name, values, rows.
    pub(crate) tensors: Vec<(String, usize, usize)>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Task {
    /// It sums gradients.
    Sum,
    /// Its optimizer starts from the weights of rank 1.
    Begin,
    /// Its optimizer steps with the mean of gradients.
    Step,
}

impl Request {
    pub(crate) fn new(task: Task, plan: String, layout: &Layout, rows: &[usize], compare: bool) -> Self {
        let tensors = layout.tensors().iter().zip(rows);
        Self {
            task,
            plan,
            compare,
            tensors: tensors.map(|((name, range), rows)| (name.clone(), range.len(), *rows)).collect(),
        }
    }

    pub(crate) fn to_toml(&self) -> String {
        toml::to_string(self).expect("strings and numbers")
    }

    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }
}
