//! Faults on the wire, for tests of what a caller does about them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::call::CallKind;

/// The most rules at one time.
pub const MOST_RULES: usize = 1000;

/// A rule: on clusters whose name matches, the calls of a kind from the `nth` on, `times` times, go wrong. Calls are
/// counted for each cluster by itself, from the rule's birth or the simulator's last start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// The cluster's name, with `*` for any run of characters.
    #[serde(default = "any")]
    pub cluster: String,
    /// The kind of call; any if there is none.
    #[serde(default)]
    pub call: Option<CallKind>,
    /// The first call that goes wrong, counted from 1.
    #[serde(default = "one")]
    pub nth: u64,
    /// How many calls go wrong; 0 for all that follow.
    #[serde(default = "one")]
    pub times: u64,
    /// What goes wrong.
    pub fault: Fault,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// The call takes effect, durably, but the connection breaks before the answer.
    DropAnswer,
    /// The call takes no effect and is answered with this 5xx status.
    FailBefore {
        /// The status.
        status: u16,
    },
    /// The call takes effect but is answered with this 5xx status.
    FailAfter {
        /// The status.
        status: u16,
    },
    /// The call takes effect and is answered late.
    DelayAnswer {
        /// Seconds of domain time.
        seconds: f64,
    },
    /// The call takes no effect and is told to come back later.
    Throttle {
        /// Seconds of `Retry-After`.
        retry_after: u64,
    },
}

fn any() -> String {
    "*".into()
}

fn one() -> u64 {
    1
}

impl FaultRule {
    /// Checks what the shape alone does not.
    pub fn check(&self) -> Result<(), String> {
        match self.fault {
            Fault::FailBefore { status } | Fault::FailAfter { status } if !(500..600).contains(&status) => {
                Err(format!("status {status} is not one from 500 to 599"))
            }
            Fault::DelayAnswer { seconds } if !(0.0..=1e9).contains(&seconds) => {
                Err(format!("{seconds} seconds is not a delay from 0 to 1e9"))
            }
            _ if self.nth == 0 => Err("calls are counted from 1".into()),
            _ => Ok(()),
        }
    }

    fn matches(&self, cluster: &str, call: CallKind) -> bool {
        self.call.is_none_or(|kind| kind == call) && glob(self.cluster.as_bytes(), cluster.as_bytes())
    }
}

/// The rules in force, and how often each has matched on each cluster.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rules: Vec<FaultRule>,
    counts: HashMap<(usize, String), u64>,
}

impl Faults {
    pub(crate) fn new(rules: Vec<FaultRule>) -> Self {
        Self(Mutex::new(Inner { rules, counts: HashMap::new() }))
    }

    /// Adds rules, unless there are too many.
    pub(crate) fn add(&self, rules: Vec<FaultRule>) -> Result<usize, String> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.rules.len() + rules.len() > MOST_RULES {
            return Err(format!("there would be more than {MOST_RULES} fault rules; remove them first with DELETE"));
        }
        inner.rules.extend(rules);
        Ok(inner.rules.len())
    }

    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Inner::default();
    }

    pub(crate) fn rules(&self) -> Vec<FaultRule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rules.clone()
    }

    /// What goes wrong with this call; every matching rule counts it, the first that is due wins.
    pub(crate) fn due(&self, cluster: &str, call: CallKind) -> Option<Fault> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { rules, counts } = &mut *inner;
        let mut due = None;
        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.matches(cluster, call)) {
            let count = counts.entry((index, cluster.to_owned())).or_default();
            *count += 1;
            let wrong = *count >= rule.nth && (rule.times == 0 || *count - rule.nth < rule.times);
            if wrong && due.is_none() {
                due = Some(rule.fault.clone());
            }
        }
        due
    }
}

/// Whether a text matches a pattern in which `*` is any run of characters; letters match in either case.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if byte.eq_ignore_ascii_case(&text[from]) => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((star_at, star_from)) => {
                    star = Some((star_at, star_from + 1));
                    at = star_at + 1;
                    from = star_from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_runs_of_characters() {
        for (pattern, text, expect) in [
            ("*", "", true),
            ("prod-*", "Prod-1", true),
            ("*-1", "a-1-1", true),
            ("a*b*c", "axxbyc", true),
            ("a", "ab", false),
            ("a*b", "ac", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn a_rule_counts_each_cluster_by_itself() {
        let rule = FaultRule {
            cluster: "c*".into(),
            call: Some(CallKind::PutCluster),
            nth: 2,
            times: 1,
            fault: Fault::DropAnswer,
        };
        let faults = Faults::new(vec![rule]);
        let due = |cluster| faults.due(cluster, CallKind::PutCluster).is_some();
        assert_eq!(
            [due("c1"), due("c1"), due("c2"), due("c1"), due("c2"), due("x"), due("x")],
            [false, true, false, false, true, false, false]
        );
        assert_eq!(faults.due("c3", CallKind::GetCluster), None);
    }
}
