//! AKS's request limits as token buckets in domain time (`behaviour.md` D5).

use std::collections::HashMap;

use jiff::Timestamp;

/// How much a bucket holds, and how fast it fills again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    burst: f64,
    per_second: f64,
}

pub(crate) const PUT: Limit = Limit { burst: 20.0, per_second: 1.0 / 60.0 };
pub(crate) const GET_CLUSTER: Limit = Limit { burst: 60.0, per_second: 1.0 };
pub(crate) const LIST: Limit = Limit { burst: 500.0, per_second: 1.0 };
pub(crate) const LIST_IN_GROUP: Limit = Limit { burst: 60.0, per_second: 1.0 };
pub(crate) const OPERATION_STATUS: Limit = Limit { burst: 200.0, per_second: 2.0 };
pub(crate) const OTHER: Limit = Limit { burst: 60.0, per_second: 1.0 };

/// The buckets of one subscription or cluster, by what they count.
#[derive(Debug, Default)]
pub(crate) struct Buckets(HashMap<String, (f64, Timestamp)>);

impl Buckets {
    /// The most buckets kept; above it, full ones are forgotten.
    const MOST: usize = 1000;

    /// Takes one token, or says after how many whole seconds there will be one.
    pub(crate) fn take(&mut self, name: &str, limit: Limit, now: Timestamp) -> Result<(), u64> {
        if self.0.len() >= Self::MOST {
            self.0.retain(|_, (tokens, at)| level(*tokens, *at, limit, now) < limit.burst);
        }
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), (limit.burst, now));
        }
        let Some((tokens, at)) = self.0.get_mut(name) else { return Ok(()) };
        *tokens = level(*tokens, *at, limit, now);
        *at = now;
        if *tokens < 1.0 {
            return Err((((1.0 - *tokens) / limit.per_second).ceil() as u64).max(1));
        }
        *tokens -= 1.0;
        Ok(())
    }
}

fn level(tokens: f64, at: Timestamp, limit: Limit, now: Timestamp) -> f64 {
    let passed = now.duration_since(at).as_secs_f64().max(0.0);
    (tokens + passed * limit.per_second).min(limit.burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d5_a_bucket_lets_its_burst_through_and_then_its_rate() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("time");
        let later = |seconds| start + jiff::SignedDuration::from_secs(seconds);
        let mut buckets = Buckets::default();
        for _ in 0..20 {
            assert_eq!(buckets.take("c", PUT, start), Ok(()));
        }
        assert_eq!(buckets.take("c", PUT, start), Err(60));
        assert_eq!(buckets.take("other", PUT, start), Ok(()));
        assert_eq!(buckets.take("c", PUT, later(24)), Err(36));
        assert_eq!(buckets.take("c", PUT, later(60)), Ok(()));
        assert_eq!(buckets.take("c", PUT, later(61)), Err(59));
    }
}
