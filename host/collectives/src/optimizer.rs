//! Optimizers at a server: what PyTorch's do, in `f32`, a tensor at a time.

/// An optimizer: weights follow gradients.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Optimizer {
    /// The learning rate.
    pub lr: f64,
    /// L2 for [`Rule::Sgd`], decoupled for [`Rule::AdamW`].
    pub weight_decay: f64,
    /// The rule.
    pub rule: Rule,
}

/// The rule of an [`Optimizer`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rule {
    /// `torch.optim.SGD` with this momentum, which may be 0.
    Sgd {
        /// The part of the last step that the next one repeats.
        momentum: f64,
    },
    /// `torch.optim.AdamW` (Loshchilov and Hutter, 2019), without AMSGrad.
    AdamW {
        /// Decays of the means of gradients and of their squares.
        betas: (f64, f64),
        /// Added to the root of the mean square.
        eps: f64,
    },
}

/// An optimizer's state of one tensor.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Moments {
    steps: i32,
    first: Vec<f32>,
    second: Vec<f32>,
}

impl Optimizer {
    /// Does one step. Numbers that are the same for all values are `f64` and rounded once, as
    /// PyTorch's.
    ///
    /// # Panics
    /// The slices differ in length, or `moments` are those of another tensor.
    pub fn step(&self, moments: &mut Moments, weights: &mut [f32], gradient: &[f32]) {
        assert_eq!(weights.len(), gradient.len(), "one gradient for each weight");
        let first_step = moments.steps == 0;
        moments.steps += 1;
        match self.rule {
            Rule::Sgd { momentum } => {
                let [lr, decay, momentum] = [self.lr, self.weight_decay, momentum].map(|x| x as f32);
                if momentum != 0.0 && first_step {
                    moments.first = vec![0.0; weights.len()];
                }
                let kept = moments.first.iter_mut().map(Some).chain(std::iter::repeat_with(|| None));
                for ((weight, gradient), kept) in weights.iter_mut().zip(gradient).zip(kept) {
                    let mut step = gradient + decay * *weight;
                    if let Some(kept) = kept {
                        *kept = momentum * *kept + step;
                        step = *kept;
                    }
                    *weight -= lr * step;
                }
            }
            Rule::AdamW { betas: (slow, slower), eps } => {
                if first_step {
                    moments.first = vec![0.0; weights.len()];
                    moments.second = vec![0.0; weights.len()];
                }
                let whole = |beta: f64| 1.0 - beta.powi(moments.steps);
                let shrink = (1.0 - self.lr * self.weight_decay) as f32;
                let (size, root) = ((self.lr / whole(slow)) as f32, whole(slower).sqrt() as f32);
                let [b1, r1, b2, r2, eps] = [slow, 1.0 - slow, slower, 1.0 - slower, eps].map(|x| x as f32);
                let kept = moments.first.iter_mut().zip(&mut moments.second);
                for ((weight, gradient), (mean, square)) in weights.iter_mut().zip(gradient).zip(kept) {
                    *mean = b1 * *mean + r1 * gradient;
                    *square = b2 * *square + r2 * (gradient * gradient);
                    *weight = *weight * shrink - size * (*mean / (square.sqrt() / root + eps));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, by the papers' formulas, in `f64`.
    fn by_the_book(optimizer: &Optimizer, weight: f64, gradients: &[f64]) -> f64 {
        let (mut weight, mut first, mut second) = (weight, 0.0, 0.0);
        for (at, gradient) in gradients.iter().enumerate() {
            match optimizer.rule {
                Rule::Sgd { momentum } => {
                    first = momentum * first + gradient + optimizer.weight_decay * weight;
                    weight -= optimizer.lr * first;
                }
                Rule::AdamW { betas: (slow, slower), eps } => {
                    let steps = at as i32 + 1;
                    first = slow * first + (1.0 - slow) * gradient;
                    second = slower * second + (1.0 - slower) * gradient.powi(2);
                    let (mean, square) =
                        (first / (1.0 - slow.powi(steps)), second / (1.0 - slower.powi(steps)));
                    weight -= optimizer.lr * (mean / (square.sqrt() + eps) + optimizer.weight_decay * weight);
                }
            }
        }
        weight
    }

    #[test]
    fn steps_are_those_of_the_papers() {
        let adam = Rule::AdamW { betas: (0.9, 0.999), eps: 1e-8 };
        let rules = [Rule::Sgd { momentum: 0.0 }, Rule::Sgd { momentum: 0.9 }, adam];
        for (rule, weight_decay) in rules.into_iter().flat_map(|rule| [(rule, 0.0), (rule, 0.01)]) {
            let optimizer = Optimizer { lr: 0.05, weight_decay, rule };
            let start = [0.5f32, -2.0, 1e-3];
            let gradient = |at: usize, step: usize| ((at * 7 + step * 3) % 11) as f32 / 5.0 - 1.0;
            let (mut weights, mut moments) = (start, Moments::default());
            for step in 0..20 {
                optimizer.step(&mut moments, &mut weights, &[0, 1, 2].map(|at| gradient(at, step)));
            }
            for at in 0..3 {
                let gradients: Vec<f64> = (0..20).map(|step| f64::from(gradient(at, step))).collect();
                let expected = by_the_book(&optimizer, f64::from(start[at]), &gradients);
                // Twenty steps of some roundings each, of numbers below 4.
                let off = (f64::from(weights[at]) - expected).abs();
                assert!(off < 100.0 * f64::from(f32::EPSILON), "{optimizer:?}, weight {at}: off by {off}");
                assert!((weights[at] - start[at]).abs() > 0.01, "nothing moved");
            }
        }
    }
}
