//! The choice of the next token.

use crate::base::Stream;

/// Draws a token from softmax(`logits` / `temperature`); the likeliest one at a temperature of 0
/// or below. Of no logits, and where none is a number: 0.
pub fn sample(logits: &[f32], temperature: f64, random: &mut Stream) -> u32 {
    let best = (0..logits.len())
        .filter(|&i| !logits[i].is_nan())
        .max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    let Some(best) = best else { return 0 };
    if temperature <= 0.0 || !temperature.is_finite() {
        return best as u32;
    }
    let top = f64::from(logits[best]);
    let weights: Vec<f64> =
        logits.iter().map(|&x| ((f64::from(x) - top) / temperature).exp()).collect();
    let mut left = random.unit_f64() * weights.iter().filter(|w| !w.is_nan()).sum::<f64>();
    for (token, weight) in weights.iter().enumerate().filter(|(_, w)| !w.is_nan()) {
        left -= weight;
        if left < 0.0 {
            return token as u32;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Digest;

    #[test]
    fn draws_follow_the_distribution() {
        let mut random = Stream::new(&Digest::of(b"sample"), "");
        let logits = [0.0, f32::NAN, 3.0f32.ln()];
        assert_eq!(sample(&logits, 0.0, &mut random), 2);
        let twos = (0..4000).filter(|_| sample(&logits, 1.0, &mut random) == 2).count();
        assert!((2850..3150).contains(&twos), "{twos}");
        assert_eq!(sample(&[f32::NAN], 1.0, &mut random), 0);
        assert_eq!(sample(&[], 1.0, &mut random), 0);
    }
}
