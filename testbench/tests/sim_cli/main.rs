//! `gradwire simulate` and `gradwire plan`, called as a program would call them.

mod plan;
mod simulate;

use std::path::Path;

use clap::Parser;
use gradwire_testbench::cmd::{Cli, run};
use gradwire_testbench::error::{Error, Outcome};
use serde_json::Value;

fn gradwire(args: &[&str]) -> Result<(Outcome, String), Error> {
    let cli = Cli::try_parse_from([&["gradwire"], args].concat())
        .map_err(|error| Error::Usage(error.to_string()))?;
    let mut out = Vec::new();
    let outcome = run(&cli, &mut out)?;
    Ok((outcome, String::from_utf8(out).unwrap()))
}

fn json(args: &[&str]) -> Value {
    let (outcome, text) = gradwire(args).unwrap();
    assert_eq!(outcome, Outcome::Held);
    serde_json::from_str(&text).unwrap()
}

fn file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).to_str().unwrap().to_owned()
}
