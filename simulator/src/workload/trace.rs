//! Traces of real training: JSON lines of time, parameter, bytes, source and destination.
//!
//! ```text
//! {"time": 0.0021, "parameter": "conv1.weight", "bytes": 6912, "source": "ps", "destination": "worker0"}
//! {"time": 0.0875, "parameter": "conv1.weight", "bytes": 6912, "source": "worker0", "destination": "ps"}
//! ```
//! Times are seconds from any origin. A line to a worker says that its forward pass needs the
//! parameter now, a line from a worker that the gradient is there: the events that a parameter
//! server sees. A new iteration begins with the first line to the worker after its gradients.
//! `recorder/record.py` writes it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;

use super::compute_times::ComputeTimes;
use super::model::{MOST_VALUES, Model, Parameter, VALUE_BITS};
use crate::error::SimError;
use crate::time::picos;

/// The name by which traces know the other end.
const SERVER: &str = "ps";

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Seconds.
    pub time: f64,
    /// Its name.
    pub parameter: String,
    /// Bytes as `f32`.
    pub bytes: u64,
    /// Sender: `ps` or the worker.
    pub source: String,
    /// Receiver.
    pub destination: String,
}

/// Reads a trace of one worker; its last iteration gives the sizes, and the time of each row.
///
/// # Errors
/// A line is not a record, or the last iteration has no gradient or one without its parameter.
pub fn load(trace: impl Read, name: &str) -> Result<(Model, ComputeTimes), SimError> {
    let mut needed: Vec<(usize, Record)> = Vec::new();
    let mut gradients: Vec<(usize, Record)> = Vec::new();
    let mut last = f64::NEG_INFINITY;
    for (at, line) in BufReader::new(trace).lines().enumerate() {
        let at = at + 1;
        let bad = |reason: String| SimError::BadTrace { line: at, reason };
        let line = line.map_err(|error| bad(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let record: Record = serde_json::from_str(&line).map_err(|error| bad(error.to_string()))?;
        if !record.time.is_finite() || record.time < last {
            return Err(bad("times have to ascend".into()));
        }
        if record.bytes > MOST_VALUES {
            return Err(bad("too many bytes".into()));
        }
        last = record.time;
        match (record.source.as_str(), record.destination.as_str()) {
            (SERVER, _) => {
                if !gradients.is_empty() {
                    needed.clear();
                    gradients.clear();
                }
                // A shared parameter is needed when it is needed first.
                if needed.iter().all(|(_, earlier)| earlier.parameter != record.parameter) {
                    needed.push((at, record));
                }
            }
            (_, SERVER) => gradients.push((at, record)),
            _ => return Err(bad(format!("neither end is {SERVER}"))),
        }
    }
    rows(name, &needed, &gradients)
}

fn rows(
    name: &str,
    needed: &[(usize, Record)],
    gradients: &[(usize, Record)],
) -> Result<(Model, ComputeTimes), SimError> {
    let Some((_, first_gradient)) = gradients.first() else {
        return Err(SimError::EmptyModel { name: name.to_owned() });
    };
    let times: HashMap<&str, f64> =
        gradients.iter().map(|(_, record)| (record.parameter.as_str(), record.time)).collect();
    if let Some((line, record)) =
        gradients.iter().find(|(_, record)| needed.iter().all(|(_, need)| need.parameter != record.parameter))
    {
        let reason = format!("a gradient of {}, which no forward pass needed", record.parameter);
        return Err(SimError::BadTrace { line: *line, reason });
    }
    // A parameter that got no gradient is not trained, and not sent.
    let trained: Vec<&Record> = needed
        .iter()
        .map(|(_, record)| record)
        .filter(|record| times.contains_key(record.parameter.as_str()))
        .collect();
    let ends = trained.iter().skip(1).map(|record| record.time).chain([first_gradient.time]);
    let forward = trained.iter().zip(ends).map(|(record, end)| picos(end - record.time)).collect();
    let mut reached = first_gradient.time;
    let mut backward: Vec<_> = trained
        .iter()
        .rev()
        .map(|record| {
            // If gradients come out of order, a row ends when its own and all later rows' are
            // there.
            let end = times[record.parameter.as_str()].max(reached);
            picos(end - core::mem::replace(&mut reached, end))
        })
        .collect();
    backward.reverse();
    let parameter = |record: &&Record| Parameter {
        name: record.parameter.clone(),
        values: record.bytes * 8 / VALUE_BITS,
        forward_flops: 0,
        bits: record.bytes * 8,
    };
    let model = Model {
        name: name.to_owned(),
        parameters: trained.iter().map(parameter).collect(),
        variables: Vec::new(),
        forward: 0.0,
        backward: 0.0,
    };
    Ok((model, ComputeTimes { forward, backward }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: f64, parameter: &str, to_worker: bool) -> String {
        let (source, destination) = if to_worker { ("ps", "w") } else { ("w", "ps") };
        format!(
            r#"{{"time": {time}, "parameter": "{parameter}", "bytes": 40, "source": "{source}", "destination": "{destination}"}}"#
        )
    }

    #[test]
    fn the_last_iteration_counts() {
        let first = [line(0.0, "a", true), line(9.0, "a", false)];
        // b's gradient comes after a's; c is used but not trained.
        let last = [
            line(10.0, "a", true),
            line(11.0, "b", true),
            line(11.5, "c", true),
            line(14.0, "a", false),
            line(16.0, "b", false),
        ];
        let text = [&first[..], &last[..]].concat().join("\n");
        let (model, times) = load(text.as_bytes(), "t").unwrap();
        assert_eq!(model.parameters.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(model.bits(), 2 * 320);
        assert_eq!(times.forward, [picos(1.0), picos(3.0)]);
        assert_eq!(times.backward, [0, picos(2.0)]);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for (text, at) in [
            ("{}".to_owned(), 1),
            ([line(1.0, "a", true), line(0.5, "a", false)].join("\n"), 2),
            ([line(1.0, "a", true), line(1.5, "b", false)].join("\n"), 2),
            (line(1.0, "a", true).replace("\"w\"", "\"x\"").replace("ps", "y"), 1),
        ] {
            assert!(
                matches!(load(text.as_bytes(), "t"), Err(SimError::BadTrace { line, .. }) if line == at),
                "{text}"
            );
        }
        assert!(load(&b""[..], "t").is_err());
    }
}
