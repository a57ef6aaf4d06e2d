//! Kubernetes versions and version targets (`behaviour.md` D1, `aks-wire.md` §5).

use std::{fmt, str::FromStr};

use crate::serde_as_text;

/// A full Kubernetes version, compared by number (LTS patches such as 1.30.100 sort after 1.30.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion {
    /// Always 1 so far.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The patch.
    pub patch: u32,
}

/// What a run is asked to reach: a full version, or a minor whose newest patch is chosen when the run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionTarget {
    /// One version, such as `1.33.2`.
    Exact(KubernetesVersion),
    /// The newest generally available patch of a minor, such as `1.33`.
    Minor {
        /// The major version.
        major: u32,
        /// The minor version.
        minor: u32,
    },
}

/// The text is not a Kubernetes version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a Kubernetes version: use major.minor.patch, such as 1.33.2, or major.minor where a minor is allowed"
)]
pub struct VersionError(String);

impl KubernetesVersion {
    /// A version from its parts.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Whether both are patches of the same minor.
    pub fn same_minor(self, other: Self) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }
}

impl VersionTarget {
    /// The exact version, if the target is one.
    pub fn exact(self) -> Option<KubernetesVersion> {
        match self {
            Self::Exact(version) => Some(version),
            Self::Minor { .. } => None,
        }
    }
}

impl From<KubernetesVersion> for VersionTarget {
    fn from(version: KubernetesVersion) -> Self {
        Self::Exact(version)
    }
}

/// Two or three dotted numbers, each at most nine digits and without a leading zero; one leading `v` is dropped.
fn parts(text: &str) -> Option<(u32, u32, Option<u32>)> {
    let bare = text.strip_prefix(['v', 'V']).unwrap_or(text);
    let number = |part: &str| {
        let digits = (1..=9).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        let leading_zero = part.len() > 1 && part.starts_with('0');
        if digits && !leading_zero { part.parse().ok() } else { None }
    };
    let mut split = bare.split('.');
    let major = number(split.next()?)?;
    let minor = number(split.next()?)?;
    let patch = match split.next() {
        Some(part) => Some(number(part)?),
        None => None,
    };
    split.next().is_none().then_some((major, minor, patch))
}

fn refuse(text: &str) -> VersionError {
    VersionError(text.chars().take(80).collect())
}

impl FromStr for KubernetesVersion {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        match parts(text) {
            Some((major, minor, Some(patch))) => Ok(Self { major, minor, patch }),
            _ => Err(refuse(text)),
        }
    }
}

impl FromStr for VersionTarget {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        match parts(text) {
            Some((major, minor, Some(patch))) => Ok(Self::Exact(KubernetesVersion { major, minor, patch })),
            Some((major, minor, None)) => Ok(Self::Minor { major, minor }),
            None => Err(refuse(text)),
        }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl fmt::Display for VersionTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(version) => version.fmt(f),
            Self::Minor { major, minor } => write!(f, "{major}.{minor}"),
        }
    }
}

serde_as_text!(KubernetesVersion, VersionTarget);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d1_versions_compare_by_number_so_that_lts_patches_come_last() {
        let parse = |text: &str| text.parse::<KubernetesVersion>().expect(text);
        assert!(parse("1.30.14") < parse("1.30.100"));
        assert!(parse("1.9.9") < parse("1.10.0"));
        assert_eq!(parse("v1.33.2").to_string(), "1.33.2");
    }

    #[test]
    fn a2_a_minor_is_a_target_but_not_a_version() {
        assert_eq!("1.33".parse(), Ok(VersionTarget::Minor { major: 1, minor: 33 }));
        assert!("1.33".parse::<KubernetesVersion>().is_err());
        for bad in ["", "1", "1.", "1.2.3.4", "1.2.x", "1.02.3", "vv1.2.3", "1.2.3-rc1", "1.2.9999999999"] {
            assert!(bad.parse::<VersionTarget>().is_err(), "{bad}");
        }
    }
}
