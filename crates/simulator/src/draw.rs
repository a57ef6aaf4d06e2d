//! Everything that looks random: hashes of (seed, cluster, operation number, purpose), so that neither the order of
//! requests nor the number of clusters changes what one cluster goes through.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A draw for one purpose of one numbered thing of one cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw([u8; 32]);

impl Draw {
    /// Draws. The key is the cluster's id in lower case, or any other name.
    pub(crate) fn new(seed: u64, key: &str, number: u64, purpose: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_be_bytes());
        hash.update((key.len() as u64).to_be_bytes());
        hash.update(key.as_bytes());
        hash.update(number.to_be_bytes());
        hash.update(purpose.as_bytes());
        Self(hash.finalize().into())
    }

    /// The draw as an id.
    pub(crate) fn uuid(self) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The draw as a whole number.
    pub(crate) fn number(self) -> u64 {
        self.0[16..24].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The draw as a share in 0.0..1.0.
    pub(crate) fn share(self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The 32 bytes themselves.
    pub(crate) fn bytes(self) -> [u8; 32] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_each_of_its_parts_and_on_nothing_else() {
        let of = |seed, key, number, purpose| Draw::new(seed, key, number, purpose).number();
        assert_eq!(of(1, "a", 2, "p"), of(1, "a", 2, "p"));
        for other in [of(2, "a", 2, "p"), of(1, "b", 2, "p"), of(1, "a", 3, "p"), of(1, "a", 2, "q")] {
            assert_ne!(of(1, "a", 2, "p"), other);
        }
        assert!((0.0..1.0).contains(&Draw::new(1, "a", 2, "p").share()));
    }
}
