//! `cargo xtask`: see `--help`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use xtask::{
    Result, at_least, counts, coverage, exhaustive, fresh_seeds, setup, sizes, stack, synthesis, words,
};

/// The project's chores. Scripts in .ci install what they need and call them.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Chore {
    /// Run a command that runs tests, and fail if fewer passed than asked for.
    AtLeast {
        /// Tests that have to pass.
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        tests: u32,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Compare instructions per value and frame with testbench/benches/counts.csv; needs valgrind.
    Counts {
        /// Write the table.
        #[arg(long)]
        refresh: bool,
    },
    /// Say how much of the dataplane the fuzzer's corpora reach; needs LLVM's tools of the
    /// compiler's version.
    Coverage {
        /// Also name every line that no input reaches.
        #[arg(long)]
        lines: bool,
    },
    /// Run the tests of all 2^32 values and write their record; hours.
    Exhaustive {
        /// Compare this kernel alone, in rows of its own: for a processor that the others were not
        /// recorded on.
        #[arg(long)]
        kernel: Option<String>,
        /// Codec 2 alone: its bounds are exponents of their own.
        #[arg(long, conflicts_with = "bounds")]
        bit_plane: bool,
        /// Error bounds as exponents; all of them if none is named.
        #[arg(value_parser = clap::value_parser!(u8).range(1..=14))]
        bounds: Vec<u8>,
    },
    /// Run the property tests with seeds that nobody has run, one after the other; fail if a test
    /// does, and say how to repeat it.
    FreshSeeds {
        /// For about so long.
        #[arg(value_name = "SECONDS", default_value_t = 60)]
        seconds: u64,
    },
    /// Write the seeds of the fuzzer's corpora.
    Seeds,
    /// Install what the checks need: Debian's packages, and cargo's subcommands.
    Setup,
    /// Compare the sizes of the soft core's image with firmware/softcore/sizes.csv.
    Sizes {
        /// The images.
        #[arg(required = true)]
        images: Vec<PathBuf>,
        /// Write the table.
        #[arg(long)]
        refresh: bool,
    },
    /// Compare what the gateware takes of an FPGA with firmware/gateware/synthesis.csv; needs
    /// yosys.
    Synthesis {
        /// Write the table.
        #[arg(long)]
        refresh: bool,
        /// Modules; both engines, both directions and the whole path if none is named.
        designs: Vec<String>,
    },
    /// Bound the stack of the soft core's image; needs llvm-objdump.
    Stack {
        /// The image.
        image: PathBuf,
    },
    /// Fail if a file has a word that the project uses no more, or a comment wider than 100
    /// columns, and name the places.
    Words,
}

#[cfg(feature = "seeds")]
fn seeds() -> Result {
    xtask::seeds::seeds()
}

/// Builds the chore with the project, which no other chore needs.
#[cfg(not(feature = "seeds"))]
fn seeds() -> Result {
    use xtask::tools::{cargo, run};
    run(cargo().args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "xtask",
        "--features",
        "seeds",
        "--",
        "seeds",
    ]))
}

fn run(chore: Chore) -> Result {
    match chore {
        Chore::AtLeast { tests, command } => at_least::run(tests as usize, &command, &mut std::io::stdout()),
        Chore::Counts { refresh } => counts::counts(refresh),
        Chore::Coverage { lines } => coverage::coverage(lines),
        Chore::Exhaustive { bit_plane: true, kernel, .. } => exhaustive::bit_plane(kernel.as_deref()),
        Chore::Exhaustive { bounds, kernel, .. } => {
            let bounds = if bounds.is_empty() { (1..=14).collect() } else { bounds };
            exhaustive::exhaustive(&bounds, kernel.as_deref())
        }
        Chore::FreshSeeds { seconds } => fresh_seeds::fresh_seeds(Duration::from_secs(seconds)),
        Chore::Setup => setup::setup(),
        Chore::Seeds => seeds(),
        Chore::Sizes { images, refresh } => sizes::sizes(&images, refresh),
        Chore::Synthesis { designs, refresh } => synthesis::synthesis(&designs, refresh),
        Chore::Stack { image } => stack::stack(&image),
        Chore::Words => words::words(),
    }
}

fn main() -> ExitCode {
    match run(Chore::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
