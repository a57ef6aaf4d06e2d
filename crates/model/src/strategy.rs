//! Update strategies: stages one after another, groups beside each other inside a stage (`behaviour.md` A5, A6;
//! `arm-api.md` §9, §13).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    Concurrency, FailureLimit, Name, Selector, SuccessFloor,
    gate::{ApprovalPolicy, GateConfig, GateKind},
};

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
    /// What exceeding the failure limit is guarded by: see [`Budget`].
    #[serde(default, skip_serializing_if = "Budget::is_default")]
    pub budget: Budget,
    /// Members that must be where they should be in the end, or the stage is Failed. Unset: no matter how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_success: Option<SuccessFloor>,
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
    /// What exceeding the failure limit is guarded by: see [`Budget`].
    #[serde(default, skip_serializing_if = "Budget::is_default")]
    pub budget: Budget,
    /// Members that must be where they should be in the end, or the group is Failed. Unset: no matter how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_success: Option<SuccessFloor>,
    /// What must be passed before the group begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before_gates: Vec<GateConfig>,
    /// What must be passed before the group is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_gates: Vec<GateConfig>,
}

/// How a failure limit is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Budget {
    /// As the service keeps it: members under way may still fail when it is reached, so that it can be exceeded.
    #[default]
    Watched,
    /// Never more members under way than could all fail inside the limit. What has used it up starts nothing more.
    Strict,
}

impl Budget {
    /// Whether it is what the service does.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
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
    check_budget(stage.budget, stage.max_allowed_failures, path)?;
    check_gates(&stage.before_gates, &stage.after_gates, path)
}

fn check_group(group: &Group, path: &str) -> Result<(), StrategyError> {
    check_concurrency(group.max_concurrency, path)?;
    check_budget(group.budget, group.max_allowed_failures, path)?;
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

/// A strict budget of nothing would let nobody start.
fn check_budget(budget: Budget, limit: Option<FailureLimit>, path: &str) -> Result<(), StrategyError> {
    match (budget, limit) {
        (Budget::Strict, limit) if limit.is_none_or(|limit| limit.resolve(u32::MAX) == 0) => refuse(
            format!("{path}.strict"),
            "a strict budget needs a maxAllowedFailures of at least 1 (or 1%) beside it: every member under way could fail",
        ),
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
            check_policy(gate, &format!("{path}.{side}[{index}].approvalPolicy"))?;
            if side == "afterGates" && matches!(gate.kind, GateKind::ScheduledStart(_)) {
                let reason =
                    "a ScheduledStart gate may only stand before a stage or group; use beforeGates of what follows";
                return refuse(format!("{path}.{side}[{index}].type"), reason);
            }
        }
    }
    Ok(())
}

fn check_policy(gate: &GateConfig, path: &str) -> Result<(), StrategyError> {
    let policy = &gate.policy;
    if gate.kind != GateKind::Approval && !policy.is_default() {
        return refuse(path, "only gates of type Approval have an approval policy");
    }
    if !(1..=ApprovalPolicy::MOST_APPROVERS).contains(&policy.approvers) {
        let reason = format!("ask for 1 to {} approvers", ApprovalPolicy::MOST_APPROVERS);
        return refuse(format!("{path}.approvers"), reason);
    }
    match policy.expires_after_seconds {
        Some(0) => refuse(format!("{path}.expiresAfterSeconds"), "at least 1 second, or leave it out"),
        Some(seconds) if seconds > Strategy::LONGEST_WAIT_SECONDS => {
            refuse(format!("{path}.expiresAfterSeconds"), "at most 2147483647 seconds")
        }
        _ => Ok(()),
    }
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
            budget: Budget::Watched,
            min_success: None,
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
            budget: Budget::Watched,
            min_success: None,
            before_gates: Vec::new(),
            after_gates: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{ScheduledStart, Weekday};

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
        let start = ScheduledStart { day: Weekday::Friday, minute: 1080, utc_offset_minutes: -300, zone: None };
        late.groups[0].after_gates.push(GateConfig::new(GateKind::ScheduledStart(start)));
        check(vec![late], "stages[0].groups[0].afterGates[0].type");
    }

    #[test]
    fn strict_budgets_need_a_limit_that_lets_somebody_start() {
        let strict = |limit: Option<&str>| {
            let mut stage = stage("a", &["g"]);
            stage.groups[0].budget = Budget::Strict;
            stage.groups[0].max_allowed_failures = limit.map(|limit| limit.parse().expect(limit));
            vec![stage]
        };
        assert!(Strategy::new(strict(Some("1"))).is_ok() && Strategy::new(strict(Some("1%"))).is_ok());
        for bad in [None, Some("0"), Some("0%")] {
            check(strict(bad), "stages[0].groups[0].strict");
        }
    }

    #[test]
    fn approval_policies_are_for_approvals_and_within_bounds() {
        let gated = |gate: GateConfig| {
            let mut stage = stage("a", &["g"]);
            stage.before_gates.push(gate);
            vec![stage]
        };
        let approval = |policy| GateConfig { policy, ..GateConfig::new(GateKind::Approval) };
        let usual = ApprovalPolicy::default();
        check(
            gated(approval(ApprovalPolicy { approvers: 0, ..usual.clone() })),
            "stages[0].beforeGates[0].approvalPolicy.approvers",
        );
        check(
            gated(approval(ApprovalPolicy { approvers: 21, ..usual.clone() })),
            "stages[0].beforeGates[0].approvalPolicy.approvers",
        );
        let expires = ApprovalPolicy { expires_after_seconds: Some(0), ..usual.clone() };
        check(gated(approval(expires)), "stages[0].beforeGates[0].approvalPolicy.expiresAfterSeconds");
        let start = ScheduledStart { day: Weekday::Friday, minute: 0, utc_offset_minutes: 0, zone: None };
        let policy = ApprovalPolicy { approvers: 2, ..usual };
        let scheduled = GateConfig { policy, ..GateConfig::new(GateKind::ScheduledStart(start)) };
        check(gated(scheduled), "stages[0].beforeGates[0].approvalPolicy");
    }
}
