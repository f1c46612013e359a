//! A plan's TOML, read and written.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use gradwire_codecs::Registry;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::coding::{Coding, Wire};
use crate::plan::{
    Choice, CollectivePlan, GraphPlan, IN_NETWORK, MAX_PARTITIONS, Order, PlanError, RowFilter,
    aggregator_address, check_small,
};

impl CollectivePlan {
    /// Reads a plan's TOML.
    ///
    /// ```
    /// # use gradwire_codecs::Registry;
    /// # use gradwire_collectives::CollectivePlan;
    /// let plan = CollectivePlan::parse(
    ///     r#"
    ///     strategy = "servers"
    ///     codec = "q8:256"
    ///
    ///     [[tensor]]
    ///     values = "1024..65536"
    ///     codec = "f32"
    ///
    ///     [[tensor]]
    ///     name = "embedding*"
    ///     strategy = "all-gather"
    ///     codec = "dgc:1"
    ///     partitions = 1
    ///     "#,
    ///     Registry::BUILT_IN,
    /// )?;
    /// assert_eq!(plan.graph().unwrap().choice("embedding.weight", 65_536).unwrap().partitions, Some(1));
    /// # Ok::<(), gradwire_collectives::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// It is no TOML, has a field that no plan has, or names what there is not.
    pub fn parse(text: &str, registry: Registry) -> Result<Self, PlanError> {
        let file: File = toml::from_str(text).map_err(|error| PlanError::Toml { why: error.to_string() })?;
        let lines = Lines(text);
        let in_network = file
            .strategy
            .as_ref()
            .and_then(|strategy| Some((strategy.as_ref().strip_prefix(IN_NETWORK)?, strategy.span().start)));
        let Some((address, at)) = in_network else {
            return GraphPlan::read(&file, lines, registry).map(Self::Graph);
        };
        let wire = match &file.codec {
            None => Wire::default(),
            Some(codec) => match lines.of(codec, |codec| Coding::parse(codec, registry))? {
                Coding::Wire(wire) => wire,
                Coding::Host(got) => {
                    let refused = PlanError::AggregatorClient { got: got.to_string() };
                    return Err(lines.error(codec.span().start, refused));
                }
            },
        };
        let has_small = file.small.is_some() || file.small_codec.is_some();
        let has_sizes = file.partitions.is_some() || has_small || file.bulk.is_some();
        if !file.tensor.is_empty() || has_sizes || file.order.is_some() {
            return Err(PlanError::AggregatorClient {
                got: "rows, partitions, small, small_codec, bulk or order".into(),
            });
        }
        let address = aggregator_address(address).map_err(|error| lines.error(at, error))?;
        Ok(Self::InNetwork { address, wire })
    }

    /// Reads a plan file: TOML, as [`parse`](Self::parse) reads it.
    ///
    /// # Errors
    /// It cannot be read, or it is no plan: the error names the file, and the line if it is one.
    pub fn load(path: &Path, registry: Registry) -> Result<Self, PlanError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Err(error) => Err(PlanError::Unreadable { file, why: error.to_string() }),
            Ok(text) => {
                Self::parse(&text, registry).map_err(|why| PlanError::File { file, why: Box::new(why) })
            }
        }
    }

    /// The plan as TOML, which [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let file = match self {
            Self::InNetwork { wire, .. } => File {
                strategy: Some(written(self.strategy())),
                codec: Some(written(wire.to_string())),
                ..File::default()
            },
            Self::Graph(plan) => plan.written(),
        };
        toml::to_string(&file).expect("a plan is strings and numbers")
    }
}

impl FromStr for CollectivePlan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        Self::parse(text, Registry::BUILT_IN)
    }
}

impl GraphPlan {
    fn read(file: &File, lines: Lines<'_>, registry: Registry) -> Result<Self, PlanError> {
        let choice = |row: &Row, default: Option<&Choice>| {
            let missing = |what| PlanError::Missing { what };
            let coding = match (&row.codec, default) {
                (Some(codec), _) => lines.of(codec, |codec| Coding::parse(codec, registry))?,
                (None, Some(default)) => default.coding,
                (None, None) => return Err(missing("codec")),
            };
            let strategy = match (&row.strategy, default) {
                (Some(strategy), _) => lines.of(strategy, |strategy| strategy.parse())?,
                (None, Some(default)) => default.strategy,
                (None, None) => return Err(missing("strategy")),
            };
            let partitions = row.partitions.as_ref().map(|partitions| {
                lines.of(partitions, |&got| match got {
                    1..=MAX_PARTITIONS => Ok(got),
                    got => Err(PlanError::Partitions { got }),
                })
            });
            let partitions = partitions.transpose()?.or_else(|| default?.partitions);
            // Either may be what has to change; a row has one of them at least.
            let at = row.codec.as_ref().or(row.strategy.as_ref()).map_or(0, |field| field.span().start);
            coding.check(strategy).map_err(|error| lines.error(at, error))?;
            Ok(Choice { coding, strategy, partitions })
        };
        let others = Row {
            strategy: file.strategy.clone(),
            codec: file.codec.clone(),
            partitions: file.partitions.clone(),
            ..Row::default()
        };
        let others = choice(&others, None)?;
        let rows = file.tensor.iter().map(|tensor| {
            let Row { name, values, .. } = tensor.as_ref();
            if name.is_none() && values.is_none() {
                return Err(lines.error(tensor.span().start, PlanError::Missing { what: "name" }));
            }
            let values = values.as_ref().map(|values| lines.of(values, |text| sizes(text)));
            let values = values.transpose()?.unwrap_or(RowFilter::ANY);
            Ok((RowFilter { name: name.clone(), values }, choice(tensor.as_ref(), Some(&others))?))
        });
        let small_coding = file.small_codec.as_ref().map(|codec| {
            let coding = lines.of(codec, |codec| Coding::parse(codec, registry))?;
            check_small(coding).map_err(|error| lines.error(codec.span().start, error))?;
            Ok::<_, PlanError>((!coding.is_exact()).then_some(coding))
        });
        Ok(Self {
            rows: rows.collect::<Result<_, PlanError>>()?,
            others,
            small: file.small.unwrap_or(Self::DEFAULT_SMALL),
            small_coding: small_coding.transpose()?.flatten(),
            bulk: file.bulk.unwrap_or(Self::DEFAULT_BULK),
            order: file.order.unwrap_or_default(),
        })
    }

    fn written(&self) -> File {
        let row = |(filter, choice): &(RowFilter, Choice)| Row {
            name: filter.name.clone(),
            values: (filter.values != RowFilter::ANY).then(|| written(Sizes(&filter.values).to_string())),
            strategy: Some(written(choice.strategy.to_string())),
            codec: Some(written(choice.coding.to_string())),
            partitions: choice.partitions.map(written),
        };
        File {
            strategy: Some(written(self.others.strategy.to_string())),
            codec: Some(written(self.others.coding.to_string())),
            partitions: self.others.partitions.map(written),
            small: Some(self.small),
            small_codec: self.small_coding.map(|coding| written(coding.to_string())),
            bulk: Some(self.bulk),
            order: Some(self.order),
            tensor: self.rows.iter().map(|one| written(row(one))).collect(),
        }
    }
}

/// Numbers of values as a row has them: `1024..65536`, `65536..` or `..1024`.
struct Sizes<'a>(&'a Range<usize>);

impl fmt::Display for Sizes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Range { start, end } = self.0;
        if start > RowFilter::ANY.start {
            write!(f, "{start}")?;
        }
        f.write_str("..")?;
        if end < RowFilter::ANY.end { write!(f, "{end}") } else { Ok(()) }
    }
}

fn sizes(text: &str) -> Result<Range<usize>, PlanError> {
    let number = |text: &str, open: usize| if text.is_empty() { Some(open) } else { text.parse().ok() };
    let range = text.split_once("..").and_then(|(from, below)| {
        Some(number(from, RowFilter::ANY.start)?..number(below, RowFilter::ANY.end)?)
    });
    range.filter(|range| !range.is_empty()).ok_or_else(|| PlanError::Values { got: text.to_owned() })
}

/// A text, to say in which of its lines something is wrong.
#[derive(Clone, Copy)]
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn error(self, at: usize, why: impl Into<PlanError>) -> PlanError {
        let before = self.0.as_bytes().iter().take(at);
        PlanError::Line { line: 1 + before.filter(|&&byte| byte == b'\n').count(), why: Box::new(why.into()) }
    }

    /// What `read` makes of a field; its error says the line.
    fn of<T, V, E: Into<PlanError>>(
        self,
        field: &Spanned<T>,
        read: impl FnOnce(&T) -> Result<V, E>,
    ) -> Result<V, PlanError> {
        read(field.as_ref()).map_err(|error| self.error(field.span().start, error))
    }
}

/// A field that is to be written, and has no place yet.
fn written<T>(field: T) -> Spanned<T> {
    Spanned::new(0..0, field)
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    strategy: Option<Spanned<String>>,
    codec: Option<Spanned<String>>,
    partitions: Option<Spanned<usize>>,
    small: Option<usize>,
    small_codec: Option<Spanned<String>>,
    bulk: Option<usize>,
    order: Option<Order>,
    #[serde(default)]
    tensor: Vec<Spanned<Row>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: Option<String>,
    values: Option<Spanned<String>>,
    strategy: Option<Spanned<String>>,
    codec: Option<Spanned<String>>,
    partitions: Option<Spanned<usize>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
strategy = \"servers\"
codec = \"q8\"
partitions = 4
small = 100

[[tensor]]
values = \"100..2000\"
codec = \"f32\"
partitions = 1

[[tensor]]
name = \"fc.*\"
values = \"..9000\"
codec = \"q4\"

[[tensor]]
values = \"9000..\"
codec = \"dgc:1\"
";

    #[test]
    fn rows_are_for_sizes_names_or_both() {
        let plan: CollectivePlan = TEXT.parse().unwrap();
        let graphs = plan.graph().unwrap();
        let chosen = |name, values| {
            let choice = graphs.choice(name, values);
            choice.map(|choice| (choice.coding.to_string(), choice.partitions.unwrap()))
        };
        for (name, values, expected) in [
            ("a", 99, None),
            ("a", 100, Some(("f32", 1))),
            ("fc.1", 1999, Some(("f32", 1))),
            ("fc.1", 2000, Some(("q4", 4))),
            ("fc.1", 50, Some(("q4", 4))),
            ("a", 2000, None),
            ("a", 8999, None),
            ("fc.1", 9000, Some(("dgc:1", 4))),
            ("a", usize::MAX - 1, Some(("dgc:1", 4))),
        ] {
            let expected = expected.map(|(codec, partitions): (&str, usize)| (codec.to_owned(), partitions));
            assert_eq!(chosen(name, values), expected, "{name} of {values}");
        }
        assert_eq!(plan.to_toml().parse(), Ok(plan.clone()));
        assert!(
            plan.to_toml().contains("values = \"..9000\"") && plan.to_toml().contains("values = \"9000..\"")
        );
    }

    #[test]
    fn a_bad_line_is_named_with_what_would_be_right() {
        for (line, instead, says) in [
            (1, "strategy = \"rong\"", "hierarchy:GROUP"),
            (2, "codec = \"q9\"", "there are f32"),
            (3, "partitions = 0", "expected 1 to"),
            (3, "partition = 4", "unknown field `partition`"),
            (3, "partitions = four", "expected"),
            (7, "values = \"2000..2000\"", "FROM below BELOW"),
            (7, "values = \"2k..\"", "1024..65536"),
            (7, "values = \"2000\"", "FROM..BELOW"),
            (8, "codec = \"wire:2:10\"", "use the strategy ring"),
            (14, "codec = \"terngrad:3\"", "BITS is 2, 4 or 8"),
            (16, "", "'name' is missing"),
        ] {
            let mut lines: Vec<&str> = TEXT.lines().collect();
            // A row's values are the line behind its head.
            lines[line - 1 + usize::from(instead.is_empty())] = instead;
            let path = std::env::temp_dir().join(format!("gradwire-plan-{}-{line}.toml", std::process::id()));
            std::fs::write(&path, lines.join("\n")).unwrap();
            let error = CollectivePlan::load(&path, Registry::BUILT_IN).unwrap_err().to_string();
            std::fs::remove_file(&path).unwrap();
            assert!(error.starts_with(&path.display().to_string()), "{error}");
            assert!(error.contains(&format!("line {line}")) && error.contains(says), "line {line}: {error}");
        }
        let missing = std::env::temp_dir().join("gradwire-no-such-plan.toml");
        let error = CollectivePlan::load(&missing, Registry::BUILT_IN).unwrap_err().to_string();
        assert!(error.contains("gradwire-no-such-plan.toml: ") && error.contains("--out FILE"), "{error}");
    }
}
