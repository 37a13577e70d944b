//! When the requests of an open loop are due: a schedule that waits for nobody.

pub struct Arrivals {
    next_us: f64,
    interval_us: f64,
    /// State of the random numbers, where it is chance how far apart they are.
    random: Option<u64>,
    left: u64,
    ends_us: u64,
}

impl Arrivals {
    /// `rate` of them a second from `began_us` on, `count` at most and none from `ends_us` on; by chance with a `seed`.
    pub fn new(began_us: u64, ends_us: u64, count: u64, rate: f64, seed: Option<u64>) -> Self {
        let mut arrivals =
            Arrivals { next_us: began_us as f64, interval_us: 1e6 / rate, random: seed, left: count, ends_us };
        if seed.is_some() {
            arrivals.advance();
        }
        arrivals
    }

    fn advance(&mut self) {
        self.next_us += self.interval_us
            * match &mut self.random {
                None => 1.0,
                Some(state) => -(1.0 - uniform(state)).ln(),
            };
    }

    /// When the next one is due; nothing once there are no more.
    pub fn due_us(&self) -> Option<u64> {
        Some(self.next_us as u64).filter(|due_us| self.left > 0 && *due_us < self.ends_us)
    }

    /// The next one that is due by now: the moment at which it was.
    pub fn take(&mut self, now_us: u64) -> Option<u64> {
        let due_us = self.due_us().filter(|due_us| *due_us <= now_us)?;
        self.left -= 1;
        self.advance();
        Some(due_us)
    }
}

/// SplitMix64, between 0 and 1.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut arrivals: Arrivals) -> Vec<u64> {
        let found = std::iter::from_fn(|| arrivals.take(u64::MAX)).collect();
        assert_eq!(arrivals.due_us(), None);
        found
    }

    #[test]
    fn they_are_even_and_end() {
        assert_eq!(all(Arrivals::new(1000, u64::MAX, 3, 1000.0, None)), [1000, 2000, 3000]);
        assert_eq!(all(Arrivals::new(1000, 2500, 9, 1000.0, None)), [1000, 2000]);
        let mut one = Arrivals::new(1000, u64::MAX, 9, 1000.0, None);
        assert_eq!((one.take(999), one.take(1000), one.take(1000), one.due_us()), (None, Some(1000), None, Some(2000)));
    }

    #[test]
    fn chance_keeps_to_the_rate() {
        let found = all(Arrivals::new(0, u64::MAX, 100_000, 1000.0, Some(1)));
        let last = found[found.len() - 1] as f64;
        let short = found.windows(2).filter(|pair| pair[1] - pair[0] < 693).count() as f64;
        // The mean is the interval, and half of the gaps are shorter than ln 2 of it.
        assert!((last / 1e8 - 1.0).abs() < 0.015, "{last}");
        assert!((short / 1e5 - 0.5).abs() < 0.01, "{short}");
        assert_ne!(found, all(Arrivals::new(0, u64::MAX, 100_000, 1000.0, Some(2))));
    }
}
