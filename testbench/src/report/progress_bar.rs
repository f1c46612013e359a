//! Progress on a terminal.

use indicatif::{ProgressDrawTarget, ProgressStyle};

/// A bar over `steps` steps on standard error; it draws nothing if that is not a terminal, and
/// vanishes when it is dropped.
#[derive(Debug)]
pub struct ProgressBar(indicatif::ProgressBar);

impl ProgressBar {
    /// A bar that names `what` is going on.
    #[must_use]
    pub fn new(what: &str, steps: u64) -> Self {
        let bar = indicatif::ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// So many steps are done in all.
    pub fn at(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// One step is done.
    pub fn step(&self) {
        self.advance(1);
    }

    /// So many more steps are done.
    pub fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
