//! All 2^32 values, in blocks and on all processors, with parameters of codec 1; and the rows of
//! the record, `exhaustive.csv`.

use std::collections::BTreeSet;
use std::env;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use gradwire::codec::{Params, Split};

/// For what is compared with the definition; other tests have every exponent with other scales.
pub(crate) const NO_SCALE: [i8; 1] = [0];

/// Values are visited in so many blocks.
const BLOCKS: u32 = 1 << 8;
pub(crate) const BLOCK: u32 = 1 << 24;

/// Both splits of every bound, with every scale, each once: for some bounds both splits are the
/// same.
pub(crate) fn parameters(bounds: impl IntoIterator<Item = u8>, scales: &[i8]) -> Vec<Params> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for b in bounds {
        for split in [Split::Dense, Split::Paper] {
            for x in scales {
                let params = Params::new(b, split, *x).unwrap();
                if seen.insert((params.b(), params.k(), params.x())) {
                    all.push(params);
                }
            }
        }
    }
    all
}

/// The parameters that CI can afford, or that were asked for.
fn asked(scales: &[i8]) -> Vec<Params> {
    match env::var("GRADWIRE_BOUNDS") {
        Ok(bounds) => {
            let bound = |text: &str| text.trim().parse().expect("GRADWIRE_BOUNDS: bounds as 10,11");
            parameters(bounds.split(',').map(bound), scales)
        }
        Err(_) => {
            [(10, Split::Dense, 0), (8, Split::Paper, 0), (6, Split::Dense, -80), (14, Split::Dense, 127)]
                .map(|(b, split, x)| Params::new(b, split, x).unwrap())
                .to_vec()
        }
    }
}

/// Calls `check` for every block with every set of parameters; a row of the record for each set.
pub(crate) fn on_every_value(name: &str, scales: &[i8], check: impl Fn(Params, u32) + Sync) {
    for params in asked(scales) {
        on_every_block(&row(name, params), |block| check(params, block));
    }
}

/// Calls `check` for every block, or for those of the part that was asked for, on all processors,
/// and prints `row` and the seconds that it took.
pub(crate) fn on_every_block(row: &str, check: impl Fn(u32) + Sync) {
    let (part, parts) = asked_part();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (start, next) = (Instant::now(), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let block @ 0..BLOCKS = part + parts * next.fetch_add(1, Ordering::Relaxed) {
                    check(block);
                }
            });
        }
    });
    let visited = if parts == 1 { String::new() } else { format!(", part {part} of {parts}") };
    println!("{row}{:.1}{visited}", start.elapsed().as_secs_f64());
}

/// `GRADWIRE_PART=3/8`: of every eight blocks the fourth. All of them if it is not set.
fn asked_part() -> (u32, u32) {
    let Ok(asked) = env::var("GRADWIRE_PART") else { return (0, 1) };
    let number = |text: &str| text.parse::<u32>().ok();
    let part = asked.split_once('/').and_then(|(part, parts)| number(part).zip(number(parts)));
    let (part, parts) = part.expect("GRADWIRE_PART: a part and how many there are, as 0/8 to 7/8");
    assert!(part < parts && parts <= BLOCKS, "GRADWIRE_PART={asked}: 0/N to N-1/N, with N to {BLOCKS}");
    (part, parts)
}

/// A row of the record up to its last column, the seconds.
pub(crate) fn row(name: &str, params: Params) -> String {
    format!("{name},{},{},{},", params.b(), params.k(), params.x())
}
