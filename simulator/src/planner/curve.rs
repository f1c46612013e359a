//! Cost curves: seconds by bytes.

use serde::{Deserialize, Serialize};

/// Measured points, joined by lines and continued beyond the last by the line through the last two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(f64, f64)>", into = "Vec<(f64, f64)>")]
pub struct Curve {
    /// (bytes, seconds), at least two, bytes ascending.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// `fixed` seconds, and 1 / `rate` seconds for each byte.
    #[must_use]
    pub fn affine(fixed: f64, rate: f64) -> Self {
        let far = 1e9;
        Self { points: vec![(0.0, fixed), (far, fixed + far / rate)] }
    }

    /// Seconds for `bytes`; never negative.
    #[must_use]
    pub fn at(&self, bytes: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 < bytes).clamp(1, self.points.len() - 1);
        let ((x0, y0), (x1, y1)) = (self.points[after - 1], self.points[after]);
        (y0 + (bytes - x0) * (y1 - y0) / (x1 - x0)).max(0.0)
    }
}

impl TryFrom<Vec<(f64, f64)>> for Curve {
    type Error = String;

    fn try_from(points: Vec<(f64, f64)>) -> Result<Self, String> {
        let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let sane =
            points.iter().all(|&(bytes, seconds)| bytes >= 0.0 && seconds >= 0.0 && seconds.is_finite());
        if points.len() >= 2 && ascending && sane {
            Ok(Self { points })
        } else {
            Err("a cost curve is two or more [bytes, seconds] with ascending bytes, none negative".into())
        }
    }
}

impl From<Curve> for Vec<(f64, f64)> {
    fn from(curve: Curve) -> Self {
        curve.points
    }
}
