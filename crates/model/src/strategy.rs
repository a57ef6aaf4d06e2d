//! Update strategies: stages one after another, groups beside each other inside a stage (`behaviour.md` A5, A6;
//! `arm-api.md` §9, §13).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Concurrency, FailureLimit, Name, Selector};

/// An order of upgrade: at least one stage, unique stage names, no group twice, at most 50 groups in a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Stage>", into = "Vec<Stage>")]
pub struct Strategy(Vec<Stage>);

/// One step of a strategy. The next stage begins when this one is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Unique in the strategy.
    pub name: Name,
    /// The groups, upgraded side by side. Empty with a selector: one implicit group.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Without groups: the members of the stage. With groups: a filter before the groups pick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Ceiling over all groups of the stage. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<Concurrency>,
    /// Failures the stage may have; unset: judged through its groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_allowed_failures: Option<FailureLimit>,
    /// Seconds to wait after the stage. 0: none.
    #[serde(default)]
    pub after_wait_seconds: u32,
    /// What must be passed before the stage begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before_gates: Vec<GateConfig>,
    /// What must be passed before the stage is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_gates: Vec<GateConfig>,
}

/// Members of a stage that share limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Unique in the strategy; without a selector, the update group of the members to pick.
    pub name: Name,
    /// Picks by label; the name is then only a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Members of the group moving at once. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<Concurrency>,
    /// Failures the group may have; unset: unlimited where the stage has a limit, else 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_allowed_failures: Option<FailureLimit>,
    /// What must be passed before the group begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before_gates: Vec<GateConfig>,
    /// What must be passed before the group is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_gates: Vec<GateConfig>,
}

/// A gate before or after a stage or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateConfig {
    /// 1–100 characters shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What opens it.
    pub kind: GateKind,
}

/// What opens a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GateKind {
    /// Somebody approves.
    Approval,
    /// A day and time comes. Only before a stage or group.
    ScheduledStart {
        /// The day of the week.
        day: Weekday,
        /// Minutes after local midnight, 0–1439.
        minute: u16,
        /// Minutes east of UTC, -840 to 840.
        utc_offset_minutes: i16,
    },
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of the days say it")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// The stages do not make a strategy. Fields are JSON paths below the strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct StrategyError {
    /// Where, such as `stages[1].groups[0].name`.
    pub field: String,
    /// What is wrong and the way out.
    pub reason: String,
}

impl Strategy {
    /// Groups in one stage at most.
    pub const MOST_GROUPS: usize = 50;
    /// The longest wait after a stage: int32 on the wire.
    pub const LONGEST_WAIT_SECONDS: u32 = i32::MAX as u32;
    /// A fixed concurrency at most (the server's own ceiling).
    pub const MOST_CONCURRENCY: u32 = 1000;
    /// Concurrency of a stage that sets none.
    pub const STAGE_CONCURRENCY: u32 = 50;

    /// Checks the rules that span stages and groups.
    pub fn new(stages: Vec<Stage>) -> Result<Self, StrategyError> {
        if stages.is_empty() {
            return refuse("stages", "a strategy needs at least one stage");
        }
        let mut stage_names = BTreeSet::new();
        let mut group_names = BTreeSet::new();
        for (index, stage) in stages.iter().enumerate() {
            let path = format!("stages[{index}]");
            if !stage_names.insert(&stage.name) {
                return refuse(
                    format!("{path}.name"),
                    format!("stage '{}' is there twice: stage names must be unique", stage.name),
                );
            }
            check_stage(stage, &path)?;
            if stage.groups.is_empty() && !group_names.insert(&stage.name) {
                let reason =
                    format!("the implicit group of stage '{}' would share its name with another group", stage.name);
                return refuse(format!("{path}.name"), reason);
            }
            for (at, group) in stage.groups.iter().enumerate() {
                if !group_names.insert(&group.name) {
                    let reason =
                        format!("group '{}' is there twice: a group may stand in one stage only, once", group.name);
                    return refuse(format!("{path}.groups[{at}].name"), reason);
                }
                check_group(group, &format!("{path}.groups[{at}]"))?;
            }
        }
        Ok(Self(stages))
    }

    /// The stages, in order.
    pub fn stages(&self) -> &[Stage] {
        &self.0
    }
}

fn refuse<T>(field: impl Into<String>, reason: impl Into<String>) -> Result<T, StrategyError> {
    Err(StrategyError { field: field.into(), reason: reason.into() })
}

fn check_stage(stage: &Stage, path: &str) -> Result<(), StrategyError> {
    if stage.groups.is_empty() && stage.selector.is_none() {
        return refuse(format!("{path}.groups"), "a stage needs at least one group, or a memberSelector");
    }
    if stage.groups.len() > Strategy::MOST_GROUPS {
        let reason = format!(
            "{} groups in one stage: at most {} are allowed; spread them over stages",
            stage.groups.len(),
            Strategy::MOST_GROUPS
        );
        return refuse(format!("{path}.groups"), reason);
    }
    if stage.after_wait_seconds > Strategy::LONGEST_WAIT_SECONDS {
        return refuse(format!("{path}.afterStageWaitInSeconds"), "at most 2147483647 seconds");
    }
    check_concurrency(stage.max_concurrency, path)?;
    check_gates(&stage.before_gates, &stage.after_gates, path)
}

fn check_group(group: &Group, path: &str) -> Result<(), StrategyError> {
    check_concurrency(group.max_concurrency, path)?;
    check_gates(&group.before_gates, &group.after_gates, path)
}

fn check_concurrency(limit: Option<Concurrency>, path: &str) -> Result<(), StrategyError> {
    match limit.and_then(Concurrency::fixed) {
        Some(count) if count > Strategy::MOST_CONCURRENCY => {
            let reason = format!("{count} members at once: this server allows at most {}", Strategy::MOST_CONCURRENCY);
            refuse(format!("{path}.maxConcurrency"), reason)
        }
        _ => Ok(()),
    }
}

fn check_gates(before: &[GateConfig], after: &[GateConfig], path: &str) -> Result<(), StrategyError> {
    for (side, gates) in [("beforeGates", before), ("afterGates", after)] {
        for (index, gate) in gates.iter().enumerate() {
            let length = gate.display_name.as_ref().map(|name| name.chars().count());
            if length.is_some_and(|length| !(1..=100).contains(&length)) {
                return refuse(
                    format!("{path}.{side}[{index}].displayName"),
                    "use 1 to 100 characters, or leave it out",
                );
            }
            if side == "afterGates" && matches!(gate.kind, GateKind::ScheduledStart { .. }) {
                let reason =
                    "a ScheduledStart gate may only stand before a stage or group; use beforeGates of what follows";
                return refuse(format!("{path}.{side}[{index}].type"), reason);
            }
        }
    }
    Ok(())
}

impl TryFrom<Vec<Stage>> for Strategy {
    type Error = StrategyError;
    fn try_from(stages: Vec<Stage>) -> Result<Self, StrategyError> {
        Self::new(stages)
    }
}

impl From<Strategy> for Vec<Stage> {
    fn from(strategy: Strategy) -> Self {
        strategy.0
    }
}

impl Stage {
    /// A stage with a name and groups, and nothing else set.
    pub fn new(name: Name, groups: Vec<Group>) -> Self {
        Self {
            name,
            groups,
            selector: None,
            max_concurrency: None,
            max_allowed_failures: None,
            after_wait_seconds: 0,
            before_gates: Vec::new(),
            after_gates: Vec::new(),
        }
    }
}

impl Group {
    /// A group with a name and nothing else set.
    pub fn new(name: Name) -> Self {
        Self {
            name,
            selector: None,
            max_concurrency: None,
            max_allowed_failures: None,
            before_gates: Vec::new(),
            after_gates: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> Group {
        Group::new(name.parse().expect(name))
    }

    fn stage(name: &str, groups: &[&str]) -> Stage {
        Stage::new(name.parse().expect(name), groups.iter().map(|name| group(name)).collect())
    }

    fn check(stages: Vec<Stage>, field: &str) {
        assert_eq!(Strategy::new(stages).expect_err(field).field, field);
    }

    #[test]
    fn a5_a_strategy_needs_stages_and_each_stage_groups_or_a_selector() {
        check(vec![], "stages");
        check(vec![stage("a", &[])], "stages[0].groups");
        let mut selected = stage("a", &[]);
        selected.selector = Some("env=prod".parse().expect("selector"));
        assert!(Strategy::new(vec![selected]).is_ok());
    }

    #[test]
    fn a5_no_stage_twice_and_no_group_twice_in_or_across_stages() {
        check(vec![stage("a", &["g"]), stage("a", &["h"])], "stages[1].name");
        check(vec![stage("a", &["g", "g"])], "stages[0].groups[1].name");
        check(vec![stage("a", &["g"]), stage("b", &["h", "g"])], "stages[1].groups[1].name");
    }

    #[test]
    fn choice_more_than_50_groups_in_a_stage_are_refused() {
        let names: Vec<String> = (0..51).map(|n| format!("g{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(Strategy::new(vec![stage("a", &names[..50])]).is_ok());
        check(vec![stage("a", &names)], "stages[0].groups");
    }

    #[test]
    fn choice_concurrency_above_the_server_limit_is_refused() {
        let mut big = stage("a", &["g"]);
        big.max_concurrency = Some(Concurrency::count(1001));
        check(vec![big], "stages[0].maxConcurrency");
    }

    #[test]
    fn a6_scheduled_start_stands_only_before() {
        let mut late = stage("a", &["g"]);
        let kind = GateKind::ScheduledStart { day: Weekday::Friday, minute: 1080, utc_offset_minutes: -300 };
        late.groups[0].after_gates.push(GateConfig { display_name: None, kind });
        check(vec![late], "stages[0].groups[0].afterGates[0].type");
    }
}
