//! Names of ARM resources and of the parts of a strategy (`behaviour.md` A2, `arm-api.md` §2).

use std::{fmt, str::FromStr};

use crate::serde_as_text;

/// Name of a member, strategy, run, profile, stage or group: 1–50 lower-case letters, digits and inner hyphens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

/// Name of a fleet: as [`Name`], but 1–63 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetName(Box<str>);

/// The text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{got}' is not a valid name: use 1 to {longest} lower-case letters, digits and hyphens, with no hyphen at either end"
)]
pub struct NameError {
    got: String,
    longest: usize,
}

impl Name {
    /// The longest name, in characters.
    pub const LONGEST: usize = 50;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FleetName {
    /// The longest fleet name, in characters.
    pub const LONGEST: usize = 63;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(text: &str, longest: usize) -> Result<Box<str>, NameError> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let valid = (1..=longest).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    if valid {
        return Ok(text.into());
    }
    Err(NameError { got: text.chars().take(80).collect(), longest })
}

impl FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check(text, Self::LONGEST).map(Self)
    }
}

impl FromStr for FleetName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check(text, Self::LONGEST).map(Self)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(Name, FleetName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_names_follow_the_documented_pattern() {
        for good in ["a", "0", "stage-1", "a--b", &"x".repeat(50)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "a b", &"x".repeat(51)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
        assert!("x".repeat(63).parse::<FleetName>().is_ok());
        assert!("x".repeat(64).parse::<FleetName>().is_err());
    }
}
