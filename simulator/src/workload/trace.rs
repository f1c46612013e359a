//! Traces of real training: JSON lines of time, parameter, bytes, source and destination.
//!
//! ```text
//! {"time": 0.0021, "parameter": "conv1.weight", "bytes": 6912, "source": "ps", "destination": "worker0"}
//! {"time": 0.0875, "parameter": "conv1.weight", "bytes": 6912, "source": "worker0", "destination": "ps"}
//! ```
//! Times are seconds from any origin. A line to a worker says that its forward pass needs the
//! parameter now, a line from a worker that the gradient is there: the events that a parameter
//! server sees. A new iteration begins with the first line to the worker after its gradients.
//! Workers have names, and clocks and iterations of their own; only durations count. They are in
//! one file, or in a file each. `recorder/record.py` writes one worker's.

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

/// The last iteration of one worker, with lines from 1.
struct Worker {
    name: String,
    file: String,
    last: f64,
    needed: Vec<(usize, Record)>,
    gradients: Vec<(usize, Record)>,
}

/// Reads traces, each with the name of its file. Each worker's last iteration gives the sizes, and
/// the time of each of its rows. Workers come in the order of the files, and of their first lines.
///
/// # Errors
/// A line is not a record, or the last iteration of a worker has no gradient, one without its
/// parameter, or other parameters than the first worker's.
pub fn load<R: Read>(
    files: impl IntoIterator<Item = (String, R)>,
    name: &str,
) -> Result<(Model, Vec<ComputeTimes>), SimError> {
    let mut workers = Vec::new();
    for (file, trace) in files {
        workers.append(&mut read(&file, trace)?);
    }
    let mut all = workers.iter().map(|worker| Ok((worker, worker.rows()?)));
    let Some((first, (parameters, times))) = all.next().transpose()? else {
        return Err(SimError::EmptyModel { name: name.to_owned() });
    };
    let mut compute_times = vec![times];
    for next in all {
        let (worker, (theirs, times)) = next?;
        if theirs != parameters {
            let differs = theirs.iter().zip(&parameters).find(|(their, our)| their != our);
            let differs = differs.map_or_else(
                || format!("{} of them, not {}", theirs.len(), parameters.len()),
                |(their, our)| {
                    format!("{} of {} values, not {} of {}", their.name, their.values, our.name, our.values)
                },
            );
            let reason = format!("{} trains other parameters than {}: {differs}", worker.name, first.name);
            return Err(worker.bad(worker.needed[0].0, reason));
        }
        compute_times.push(times);
    }
    let model =
        Model { name: name.to_owned(), parameters, variables: Vec::new(), forward: 0.0, backward: 0.0 };
    Ok((model, compute_times))
}

/// Reads the workers of one file.
fn read(file: &str, trace: impl Read) -> Result<Vec<Worker>, SimError> {
    let mut workers: Vec<Worker> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (at, line) in BufReader::new(trace).lines().enumerate() {
        let at = at + 1;
        let bad = |reason: String| SimError::BadTrace { file: file.to_owned(), line: at, reason };
        let line = line.map_err(|error| bad(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let record: Record = serde_json::from_str(&line).map_err(|error| bad(error.to_string()))?;
        let (worker, needs) = match (record.source.as_str(), record.destination.as_str()) {
            (SERVER, SERVER) => return Err(bad(format!("both ends are {SERVER}"))),
            (SERVER, worker) => (worker, true),
            (worker, SERVER) => (worker, false),
            _ => return Err(bad(format!("neither end is {SERVER}"))),
        };
        let number = *numbers.entry(worker.to_owned()).or_insert_with(|| {
            workers.push(Worker {
                name: worker.to_owned(),
                file: file.to_owned(),
                last: f64::NEG_INFINITY,
                needed: Vec::new(),
                gradients: Vec::new(),
            });
            workers.len() - 1
        });
        let worker = &mut workers[number];
        if !record.time.is_finite() || record.time < worker.last {
            return Err(bad(format!("times of {} have to ascend", worker.name)));
        }
        if record.bytes > MOST_VALUES {
            return Err(bad("too many bytes".into()));
        }
        worker.last = record.time;
        if !needs {
            worker.gradients.push((at, record));
            continue;
        }
        if !worker.gradients.is_empty() {
            worker.needed.clear();
            worker.gradients.clear();
        }
        // A shared parameter is needed when it is needed first.
        if worker.needed.iter().all(|(_, earlier)| earlier.parameter != record.parameter) {
            worker.needed.push((at, record));
        }
    }
    Ok(workers)
}

impl Worker {
    fn bad(&self, line: usize, reason: String) -> SimError {
        SimError::BadTrace { file: self.file.clone(), line, reason }
    }

    /// The parameters that it trains, and the time of each row.
    fn rows(&self) -> Result<(Vec<Parameter>, ComputeTimes), SimError> {
        let Some((_, first_gradient)) = self.gradients.first() else {
            let line = self.needed.last().map_or(1, |(line, _)| *line);
            return Err(self.bad(line, format!("no gradient of {} follows", self.name)));
        };
        let times: HashMap<&str, f64> =
            self.gradients.iter().map(|(_, record)| (record.parameter.as_str(), record.time)).collect();
        if let Some((line, record)) = self
            .gradients
            .iter()
            .find(|(_, record)| self.needed.iter().all(|(_, need)| need.parameter != record.parameter))
        {
            let reason = format!("a gradient of {}, which no forward pass needed", record.parameter);
            return Err(self.bad(*line, reason));
        }
        // A parameter that got no gradient is not trained, and not sent.
        let trained: Vec<&Record> = self
            .needed
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
        Ok((trained.iter().map(parameter).collect(), ComputeTimes { forward, backward }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: f64, parameter: &str, to_worker: bool) -> String {
        line_of("w", time, parameter, to_worker)
    }

    fn line_of(worker: &str, time: f64, parameter: &str, to_worker: bool) -> String {
        let (source, destination) = if to_worker { ("ps", worker) } else { (worker, "ps") };
        format!(
            r#"{{"time": {time}, "parameter": "{parameter}", "bytes": 40, "source": "{source}", "destination": "{destination}"}}"#
        )
    }

    fn load_one(text: &str) -> Result<(Model, Vec<ComputeTimes>), SimError> {
        load([("t.jsonl".to_owned(), text.as_bytes())], "t")
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
        let (model, times) = load_one(&[&first[..], &last[..]].concat().join("\n")).unwrap();
        assert_eq!(model.parameters.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(model.bits(), 2 * 320);
        assert_eq!(
            times,
            [ComputeTimes { forward: vec![picos(1.0), picos(3.0)], backward: vec![0, picos(2.0)] }]
        );
    }

    /// Lines of two workers may stand in any order; their clocks have nothing in common.
    #[test]
    fn each_worker_has_its_own_times() {
        let one = [line_of("w0", 1.0, "a", true), line_of("w0", 2.0, "a", false)];
        let other = [line_of("w1", 0.5, "a", true), line_of("w1", 3.5, "a", false)];
        let expected = [1.0, 3.0].map(|time| ComputeTimes { forward: vec![picos(time)], backward: vec![0] });
        let together = [&one[0], &other[0], &one[1], &other[1]].map(String::as_str).join("\n");
        assert_eq!(load_one(&together).unwrap().1, expected);
        let files = [one.join("\n"), other.join("\n").replace("w1", "w0")];
        let files = [("0".to_owned(), files[0].as_bytes()), ("1".to_owned(), files[1].as_bytes())];
        assert_eq!(load(files, "t").unwrap().1, expected);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        let two =
            |last: String| [line_of("x", 0.0, "a", true), line_of("x", 0.0, "a", false), last].join("\n");
        for (text, at) in [
            ("{}".to_owned(), 1),
            ([line(1.0, "a", true), line(0.5, "a", false)].join("\n"), 2),
            ([line(1.0, "a", true), line(1.5, "b", false)].join("\n"), 2),
            (line(1.0, "a", true).replace("\"w\"", "\"x\"").replace("ps", "y"), 1),
            (line(1.0, "a", true).replace("\"w\"", "\"ps\""), 1),
            (two(line(1.0, "a", true)), 3),
            (two([line(1.0, "b", true), line(1.0, "b", false)].join("\n")), 3),
        ] {
            assert!(
                matches!(load_one(&text), Err(SimError::BadTrace { line, .. }) if line == at),
                "{text}: {:?}",
                load_one(&text)
            );
        }
        assert!(load_one("").is_err());
    }
}
