//! Limits of stages and groups: how many members move at once, and how many may fail (`behaviour.md` A5).
//!
//! Both are a count or a percentage, written as text; they round in opposite directions, each to the safe side.

use std::{fmt, str::FromStr};

use crate::serde_as_text;

/// How many members may be upgraded at once: `"n"` with n ≥ 1, or `"p%"` with p in 1–100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency(Amount);

/// How many members may fail: `"n"` with n ≥ 0, or `"p%"` with p in 0–100. The limit is exceeded by one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureLimit(Amount);

/// How many members must be where they should be in the end: `"n"` with n ≥ 0, or `"p%"` with p in 0–100, rounded up.
/// Beyond the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessFloor(Amount);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Count(u32),
    Percent(u32),
}

/// The text is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Not a concurrency.
    #[error("'{0}' is not a concurrency: use a number of at least 1, such as \"3\", or a percentage from 1% to 100%")]
    Concurrency(String),
    /// Not a failure limit.
    #[error("'{0}' is not a failure limit: use a number of at least 0, such as \"2\", or a percentage from 0% to 100%")]
    Failures(String),
    /// Not a floor of successes.
    #[error("'{0}' is not a floor of successes: use a number, such as \"5\", or a percentage from 0% to 100%")]
    Successes(String),
}

impl Concurrency {
    /// A fixed number of members; 0 becomes 1.
    pub fn count(count: u32) -> Self {
        Self(Amount::Count(count.max(1)))
    }

    /// The number for a scope of `members`: percentages are rounded down, but never below 1.
    pub fn resolve(self, members: u32) -> u32 {
        match self.0 {
            Amount::Count(count) => count,
            Amount::Percent(percent) => share(percent, members, 0).max(1),
        }
    }

    /// The count, if the limit is a plain number.
    pub fn fixed(self) -> Option<u32> {
        match self.0 {
            Amount::Count(count) => Some(count),
            Amount::Percent(_) => None,
        }
    }
}

impl FailureLimit {
    /// A fixed number of failures.
    pub fn count(count: u32) -> Self {
        Self(Amount::Count(count))
    }

    /// The number for a scope of `members`: percentages are rounded up.
    pub fn resolve(self, members: u32) -> u32 {
        match self.0 {
            Amount::Count(count) => count,
            Amount::Percent(percent) => share(percent, members, 99),
        }
    }
}

impl SuccessFloor {
    /// The number for a scope of `members`: percentages are rounded up.
    pub fn resolve(self, members: u32) -> u32 {
        FailureLimit(self.0).resolve(members)
    }
}

fn share(percent: u32, members: u32, round: u64) -> u32 {
    let share = (u64::from(percent) * u64::from(members) + round) / 100;
    u32::try_from(share).unwrap_or(u32::MAX)
}

/// A number of at most nine digits without leading zeros, with or without `%`.
fn amount(text: &str, least: u32) -> Option<Amount> {
    let (digits, percent) = match text.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let plain = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    let number: u32 = digits.parse().ok()?;
    match percent {
        _ if number < least => None,
        true if number > 100 => None,
        true => Some(Amount::Percent(number)),
        false => Some(Amount::Count(number)),
    }
}

impl FromStr for Concurrency {
    type Err = LimitError;
    fn from_str(text: &str) -> Result<Self, LimitError> {
        amount(text, 1).map(Self).ok_or_else(|| LimitError::Concurrency(text.chars().take(40).collect()))
    }
}

impl FromStr for FailureLimit {
    type Err = LimitError;
    fn from_str(text: &str) -> Result<Self, LimitError> {
        amount(text, 0).map(Self).ok_or_else(|| LimitError::Failures(text.chars().take(40).collect()))
    }
}

impl FromStr for SuccessFloor {
    type Err = LimitError;
    fn from_str(text: &str) -> Result<Self, LimitError> {
        amount(text, 0).map(Self).ok_or_else(|| LimitError::Successes(text.chars().take(40).collect()))
    }
}

impl fmt::Display for SuccessFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FailureLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_as_text!(Concurrency, FailureLimit, SuccessFloor);

#[cfg(test)]
mod tests {
    use super::*;

    fn concurrency(text: &str, members: u32) -> u32 {
        text.parse::<Concurrency>().expect(text).resolve(members)
    }

    fn failures(text: &str, members: u32) -> u32 {
        text.parse::<FailureLimit>().expect(text).resolve(members)
    }

    #[test]
    fn a5_concurrency_percentages_round_down_to_at_least_one() {
        let cases = [
            ("25%", 20, 5),
            ("50%", 8, 4),
            ("25%", 12, 3),
            ("50%", 4, 2),
            ("100%", 7, 7),
            ("1%", 3, 1),
            ("10%", 0, 1),
            ("7", 3, 7),
        ];
        for (text, members, expect) in cases {
            assert_eq!(concurrency(text, members), expect, "{text} of {members}");
        }
    }

    #[test]
    fn a5_failure_percentages_round_up() {
        let cases = [
            ("25%", 19, 5),
            ("25%", 7, 2),
            ("25%", 12, 3),
            ("25%", 5, 2),
            ("25%", 4, 1),
            ("0%", 9, 0),
            ("100%", 9, 9),
            ("2", 1, 2),
        ];
        for (text, members, expect) in cases {
            assert_eq!(failures(text, members), expect, "{text} of {members}");
        }
    }

    #[test]
    fn a5_limits_follow_the_documented_patterns() {
        for bad in ["", "0", "0%", "101%", "01", "-1", "1.5", "5 %", "%", "a", "1%%", "9999999999"] {
            assert!(bad.parse::<Concurrency>().is_err(), "{bad}");
        }
        for bad in ["", "101%", "00", "-1", "1.5", "%"] {
            assert!(bad.parse::<FailureLimit>().is_err(), "{bad}");
        }
        assert_eq!("0".parse::<FailureLimit>().expect("0").to_string(), "0");
        assert_eq!("33%".parse::<Concurrency>().expect("33%").to_string(), "33%");
    }
}
