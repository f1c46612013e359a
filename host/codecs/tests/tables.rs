//! The tables of docs/host-codecs.md say what the code is, and what it does to recorded gradients.

use std::fs;
use std::path::{Path, PathBuf};

use gradwire_codecs::{Blocks, Bounded, Codec, ThreeLc};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows below the document's table whose head begins so.
fn rows(head: &str) -> Vec<String> {
    let document = text("docs/host-codecs.md");
    let (_, rest) =
        document.split_once(&format!("\n{head}")).unwrap_or_else(|| panic!("no table begins with {head}"));
    rest.lines().skip(2).take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
}

/// Lines of code: no blanks, comments, imports or attributes.
fn code_lines(code: &str) -> usize {
    let lines = code.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !["//", "#[", "use "].iter().any(|start| line.starts_with(start)))
        .count()
}

/// The lines between a function's first and last line, in the implementation of `Codec` for a type.
fn body<'a>(source: &'a str, of: &str, function: &str) -> &'a str {
    let (_, code) = source.split_once(&format!("impl Codec for {of} {{")).expect("the codec");
    let (code, _) = code.split_once("\n}\n").expect("its end");
    let (_, code) = code.split_once(&format!("    fn {function}(")).expect("the function");
    let (_, code) = code.split_once(" {\n").expect("its body");
    code.split("\n    }").next().expect("its end")
}

/// Of a codec its file and type, CompLL's lines for it, and its name.
const CODECS: [(&str, &str, &str, &str); 14] = [
    ("raw", "Raw", "", "f32"),
    ("half", "Half", "", "f16"),
    ("truncation", "Truncation", "", "trunc"),
    ("eight_bits", "EightBits", "", "q8"),
    ("four_bits", "FourBits", "", "q4"),
    ("three_lc", "ThreeLc", "", "3lc"),
    ("ternary", "Ternary", "", "ternary"),
    ("one_bit", "OneBit", "21", "onebit"),
    ("threshold", "Threshold", "13", "tbq"),
    ("terngrad", "TernGrad", "23", "terngrad"),
    ("dgc", "Dgc", "29", "dgc"),
    ("graddrop", "GradDrop", "29", "graddrop"),
    ("low_rank", "LowRank", "", "low-rank"),
    ("bounded", "Bounded", "", "bounded"),
];

/// The operators, and what says in the code that one is used.
const OPERATORS: [(&str, &[&str]); 7] = [
    ("sort", &["sort("]),
    ("filter", &[".sparse("]),
    ("map", &[" map(", "(map("]),
    ("reduce", &["reduce(", "largest(", "peak(", "total("]),
    ("random", &["Random::new"]),
    ("concat", &["concat("]),
    ("extract", &["extract("]),
];

#[test]
fn lines_and_operators_are_counted_rightly() {
    let mut wanted = Vec::new();
    for (file, of, theirs, name) in CODECS {
        let source = text(&format!("host/codecs/src/{file}.rs"));
        let source = source.split("\n#[cfg(test)]").next().unwrap();
        let logic = ["encode", "merge"].map(|function| code_lines(body(source, of, function)));
        let logic = logic[0] + logic[1];
        if !theirs.is_empty() {
            assert!(logic < 30, "{name}: {logic} lines");
        }
        let others = code_lines(source) - logic;
        let operators: Vec<&str> = OPERATORS
            .into_iter()
            .filter(|(_, signs)| signs.iter().any(|sign| source.contains(sign)))
            .map(|(name, _)| name)
            .collect();
        wanted.push(format!("| `{name}` | {logic} | {others} | {} | {theirs} |", operators.join(", ")));
    }
    let found = rows("| codec | logic lines |");
    assert!(found == wanted, "the table should be\n{}", wanted.join("\n"));
}

/// Bits a value of the first and of the tenth message, of each layer of at least 1,024 values with
/// a scale and feedback of its own.
fn bits(codec: &impl Codec, values: &[f32], layers: &[usize]) -> [f64; 2] {
    let (mut bytes, mut coded, mut at) = ([0; 10], 0, 0);
    for len in layers {
        let gradient = &values[at..at + len];
        at += len;
        if *len < 1024 {
            continue;
        }
        coded += len;
        let (mut acc, mut out) = (vec![0.0; *len], vec![0; codec.bound(*len)]);
        for bytes in &mut bytes {
            codec.give(gradient, &mut acc, &mut []);
            *bytes += codec.encode(&mut acc, &mut [], 0, &mut out);
        }
    }
    assert_eq!(at, values.len());
    [bytes[0], bytes[9]].map(|bytes| 8.0 * bytes as f64 / coded as f64)
}

/// The rows of recordings below `head` are what `cells` makes of the values and the lengths of the
/// layers.
fn recordings_have(head: &str, cells: impl Fn(&[f32], &[usize]) -> Vec<String>) {
    let mut wanted = Vec::new();
    for line in text("host/codecs/tests/layers.txt").lines().skip(1) {
        let (name, layers) = line.split_once(' ').unwrap();
        let layers: Vec<usize> = layers.split(' ').map(|len| len.parse().unwrap()).collect();
        let file = fs::read(root().join(format!("testbench/recordings/{name}.npy"))).unwrap();
        let header = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
        let values: Vec<f32> =
            file[header..].as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        wanted.push(format!("| `{name}` | {} |", cells(&values, &layers).join(" | ")));
    }
    let found: Vec<String> = rows(head).into_iter().filter(|row| row.contains("_w0")).collect();
    assert!(found == wanted, "the rows should be\n{}", wanted.join("\n"));
}

#[test]
fn three_lc_takes_as_many_bits_as_the_table_says() {
    recordings_have("| recording | s = 1.00", |values, layers| {
        let cells = [1.0, 1.5, 1.75, 1.9].map(|multiplier| {
            let codec = ThreeLc::new(multiplier, Blocks::WHOLE).unwrap();
            let [first, tenth] = bits(&codec, values, layers);
            format!("{first:.3}, {tenth:.3}")
        });
        cells.to_vec()
    });
}

#[test]
fn bounded_takes_as_many_bits_as_the_table_says() {
    recordings_have("| recording | `bounded:6` |", |values, layers| {
        let cells = [6, 4, 3, 2].map(|bound| {
            let [first, tenth] = bits(&Bounded::new(bound).unwrap(), values, layers);
            format!("{first:.2}, {tenth:.2}")
        });
        cells.to_vec()
    });
}
