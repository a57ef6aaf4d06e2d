//! URLs of operations: signed, some 3.3 KB long, good only as they were given (`aks-wire.md` §1).

use std::fmt::Write;

use jiff::Timestamp;

use crate::draw::Draw;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Signs and checks the queries of operation URLs.
#[derive(Debug)]
pub(crate) struct Signer {
    seed: u64,
    certificate: String,
}

/// The version of the API that operation URLs name.
const VERSION: &str = "2025-03-01";

/// Lengths of the certificate and the signature in characters.
const CERTIFICATE: usize = 2740;
const SIGNATURE: usize = 342;

impl Signer {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, certificate: letters(seed, "certificate", 0, CERTIFICATE) }
    }

    /// The query of a URL to a path, signed at `now`.
    pub(crate) fn query(&self, path: &str, now: Timestamp) -> String {
        let ticks = ticks(now);
        let (signature, hash) = self.sign(path, ticks);
        format!("api-version={VERSION}&t={ticks}&c={}&s={signature}&h={hash}", self.certificate)
    }

    /// Whether the pairs of a query are those that were given for the path.
    pub(crate) fn holds(&self, path: &str, query: &[(String, String)]) -> bool {
        let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let Some(ticks) = get("t").and_then(|ticks| ticks.parse().ok()) else { return false };
        let (signature, hash) = self.sign(path, ticks);
        get("c") == Some(&self.certificate) && get("s") == Some(&signature) && get("h") == Some(&hash)
    }

    fn sign(&self, path: &str, ticks: u64) -> (String, String) {
        let path = path.to_ascii_lowercase();
        (letters(self.seed, &path, ticks, SIGNATURE), letters(self.seed, &format!("{path} hash"), ticks, 43))
    }
}

/// Hundreds of nanoseconds since the year 1.
fn ticks(now: Timestamp) -> u64 {
    let since_1970 = u64::try_from(now.as_nanosecond().max(0) / 100).unwrap_or_default();
    621_355_968_000_000_000 + since_1970
}

fn letters(seed: u64, key: &str, number: u64, length: usize) -> String {
    let mut text = String::with_capacity(length + 32);
    let mut purpose = String::new();
    for block in 0.. {
        if text.len() >= length {
            break;
        }
        purpose.clear();
        // Writing into a text cannot fail.
        let _ = write!(purpose, "sign {block}");
        let bytes = Draw::new(seed, key, number, &purpose).bytes();
        text.extend(bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte & 63)])));
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aks_wire_1_signed_queries_are_long_and_good_for_one_path_only() {
        let signer = Signer::new(7);
        let now = "2025-10-29T07:54:35.159472Z".parse().expect("time");
        let query = signer.query("/a/operations/1", now);
        assert!((3100..3500).contains(&query.len()), "{}", query.len());
        let pairs: Vec<(String, String)> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        assert!(signer.holds("/A/operations/1", &pairs));
        assert!(!signer.holds("/a/operations/2", &pairs));
        assert!(!Signer::new(8).holds("/a/operations/1", &pairs));
        for spoilt in 1..pairs.len() {
            let mut pairs = pairs.clone();
            pairs[spoilt].1.push('0');
            assert!(!signer.holds("/a/operations/1", &pairs), "{}", pairs[spoilt].0);
        }
    }
}
