//! `gradwire simulate figures`: the plots of docs/simulator.md.

use std::io::Write;
use std::path::PathBuf;

use super::published::figures::ALL;
use crate::error::{Error, Outcome};
use crate::report::ProgressBar;
use crate::report::plot;

/// Writes the plots of docs/simulator.md.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to write them to.
    pub folder: PathBuf,
    /// Write PNG, not SVG.
    #[arg(long)]
    pub png: bool,
}

/// Simulates what the plots show, writes them and names them on `out`.
///
/// # Errors
/// A file cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let progress = ProgressBar::new("plots", ALL.len() as u64);
    for (name, figure) in ALL {
        let path = args.folder.join(name).with_extension(if args.png { "png" } else { "svg" });
        plot::write(&path, &plot::lines(&figure()?))?;
        writeln!(out, "{}", path.display())?;
        progress.step();
    }
    Ok(Outcome::Held)
}
