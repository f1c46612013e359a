//! An exchange of gradients, as all ranks of a job make it: their sum, or their mean.

use crate::failure::LinkError;
use crate::layout::{Layout, checksum};
use crate::link::{Link, Report};
use crate::method::Method;
use crate::request::{Request, Task};
use crate::residuals::Residuals;

/// An exchange that all ranks of a job make, with or without a server.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The method.
    pub method: &'a Method,
    /// The tensors.
    pub layout: &'a Layout,
    /// By tensor: its rows as a matrix, as [`Method::exchange`] takes them.
    pub rows: &'a [usize],
    /// Make sure that all ranks got the same bits?
    pub compare: bool,
}

impl Round<'_> {
    /// Replaces the values of `buffer` by their sums over all ranks, as [`Method::exchange`] does.
    /// With a server, workers call it, and the server sums.
    ///
    /// # Errors
    /// As there; or ranks got different bits; or the link has a server, and the method nothing that
    /// a server sums.
    pub fn sum(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        if link.is_served() {
            self.method.check_served()?;
            self.ask(link, Task::Sum);
        }
        self.run(link, buffer, residuals)
    }

    /// [`sum`](Self::sum), divided by the number of ranks that have a gradient. The residuals stay
    /// in units of the sum.
    ///
    /// # Errors
    /// As there.
    pub fn mean(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        let report = self.sum(link, buffer, residuals)?;
        let workers = link.workers() as f32;
        buffer.iter_mut().for_each(|value| *value /= workers);
        Ok(report)
    }

    /// [`mean`](Self::mean) of values that are `scale` times the gradient, and so is their mean.
    /// The gradient itself is exchanged, and the residuals are in its units. Also returns whether
    /// all means are finite.
    ///
    /// # Errors
    /// As there.
    pub fn mean_of_scaled(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        scale: f64,
        residuals: &mut Residuals,
    ) -> Result<(Report, bool), LinkError> {
        buffer.iter_mut().for_each(|value| *value = (f64::from(*value) / scale) as f32);
        let report = self.sum(link, buffer, residuals)?;
        let back = scale / link.workers() as f64;
        let mut finite = true;
        for value in buffer {
            *value = (f64::from(*value) * back) as f32;
            finite &= value.is_finite();
        }
        Ok((report, finite))
    }

    /// Asks a server for its part, if this is rank 1.
    pub(crate) fn ask(&self, link: &Link, task: Task) {
        let request = Request::new(task, self.method.to_string(), self.layout, self.rows, self.compare);
        link.ask(&request.to_toml());
    }

    /// The sum, at a rank that nobody need be asked for.
    pub(crate) fn run(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        let report = self.method.exchange(link, buffer, self.layout, self.rows, residuals)?;
        self.check(link, buffer)?;
        Ok(report)
    }

    pub(crate) fn check(&self, link: &mut Link, buffer: &[f32]) -> Result<(), LinkError> {
        let means = "ranks got different values: do all run the same version of gradwire, on sound memory?";
        if self.compare { link.compare(checksum(buffer), means) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listening, Options, Token};

    /// At a power of two of ranks, means are exact.
    #[test]
    fn means_are_sums_divided_by_the_ranks_whatever_the_scale() {
        let any = "127.0.0.1:0".parse().unwrap();
        let token = Token::random().unwrap();
        let root = Listening::bind(any, Options::new(token.clone())).unwrap();
        let at = root.address().unwrap();
        let (method, layout) = ("f32".parse::<Method>().unwrap(), Layout::new([("a", 3)]).unwrap());
        let join = |listening: Listening, rank: usize| {
            let mut link = listening.join(rank, 2, at).unwrap();
            let round = Round { method: &method, layout: &layout, rows: &[1], compare: true };
            let gradient = [1.0, -3.0, 0.5].map(|value: f32| value * (rank + 1) as f32);
            let (mut sum, mut mean) = (gradient, gradient);
            let mut scaled = gradient.map(|value| value * 1024.0);
            let mut endless = [f32::INFINITY; 3];
            let residuals = &mut Residuals::new();
            round.sum(&mut link, &mut sum, residuals).unwrap();
            round.mean(&mut link, &mut mean, residuals).unwrap();
            let (_, finite) = round.mean_of_scaled(&mut link, &mut scaled, 1024.0, residuals).unwrap();
            let (_, endless_is) = round.mean_of_scaled(&mut link, &mut endless, 1024.0, residuals).unwrap();
            assert_eq!(sum, [3.0, -9.0, 1.5]);
            assert_eq!(mean, [1.5, -4.5, 0.75]);
            assert_eq!((scaled, finite, endless_is), (mean.map(|value| value * 1024.0), true, false));
        };
        std::thread::scope(|scope| {
            scope.spawn(|| join(root, 0));
            scope.spawn(|| join(Listening::bind(any, Options::new(token)).unwrap(), 1));
        });
    }
}
