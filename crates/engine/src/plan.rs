//! A strategy and the members of a fleet, resolved when a run is created: who is in which group of which stage, and
//! what the limits come to (`behaviour.md` A2, A4, A5). The plan of a run never changes.

use std::{collections::BTreeMap, ops::Range};

use flotta_model::{
    Budget, ClusterId, FailureLimit, GateConfig, Goal, Group, ImageSelection, Member, Name, NodeImage, Selector, Stage,
    Strategy, UpgradeType,
};
use serde::{Deserialize, Serialize};

/// Who moves where, within which limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What the run wants.
    pub goal: Goal,
    /// The stages, in order.
    pub stages: Vec<PlanStage>,
    /// The groups of all stages, in order.
    pub groups: Vec<PlanGroup>,
    /// The members of all groups, in order.
    pub members: Vec<PlanMember>,
    /// Members of the fleet that no group picks.
    pub uncovered: Uncovered,
    /// Seconds that a cluster may be stopped or out of reach before its member fails.
    #[serde(default = "default_patience")]
    pub patience_seconds: u32,
    /// Who created the run, for gates that somebody else must approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// The ids of its gates, in the order of [`crate::run::Run::gate`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gate_ids: Vec<Box<str>>,
    /// The images that Consistent came to in the run that this one goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<NodeImage>>,
    /// The id of the auto-upgrade profile that created the run, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// A stage with its limits as numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStage {
    /// Its name.
    pub name: Name,
    /// Indices of its groups.
    pub groups: Range<u32>,
    /// Indices of its members.
    pub members: Range<u32>,
    /// Members moving at once, over all its groups.
    pub max_concurrency: u32,
    /// Failures allowed; `None`: judged through its groups.
    pub max_allowed_failures: Option<u32>,
    /// How that limit is kept.
    #[serde(default, skip_serializing_if = "Budget::is_default")]
    pub budget: Budget,
    /// Members that must be where they should be in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_success: Option<u32>,
    /// Seconds to wait after it; 0: none.
    pub after_wait_seconds: u32,
    /// What must be passed before it.
    pub before_gates: Vec<GateConfig>,
    /// What must be passed after it.
    pub after_gates: Vec<GateConfig>,
}

/// A group with its limits as numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanGroup {
    /// Its name.
    pub name: Name,
    /// Index of its stage.
    pub stage: u32,
    /// Indices of its members.
    pub members: Range<u32>,
    /// Members moving at once.
    pub max_concurrency: u32,
    /// Failures allowed; `None`: as many as the stage allows.
    pub max_allowed_failures: Option<u32>,
    /// How that limit is kept.
    #[serde(default, skip_serializing_if = "Budget::is_default")]
    pub budget: Budget,
    /// Members that must be where they should be in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_success: Option<u32>,
    /// What must be passed before it.
    pub before_gates: Vec<GateConfig>,
    /// What must be passed after it.
    pub after_gates: Vec<GateConfig>,
}

/// A member with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMember {
    /// Its name.
    pub name: Name,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Index of its group.
    pub group: u32,
    /// The region of its cluster, where it was known when the run was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Box<str>>,
}

/// Members that a strategy leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncovered {
    /// How many.
    pub count: u32,
    /// The first of them, at most [`Uncovered::SHOWN`].
    pub first: Vec<Name>,
}

impl Uncovered {
    /// How many are named.
    pub const SHOWN: usize = 20;
}

/// The strategy cannot be resolved over these members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Members stand in two groups.
    #[error(
        "{count} member(s) are picked by two groups: {shown}; make the selectors exclude each other, for example with !label or label!=value"
    )]
    Overlap {
        /// How many.
        count: usize,
        /// The first of them, with both groups.
        shown: String,
    },
}

/// Seconds of a day: how long a stopped or unreachable cluster is waited for.
pub fn default_patience() -> u32 {
    24 * 60 * 60
}

/// The name of the one stage and the one group of a run without a strategy.
const DEFAULT: &str = "default";

/// How members get into a group.
enum Pick<'a> {
    All,
    Named(&'a Name),
    Selected(&'a Selector),
}

impl Plan {
    /// Resolves a strategy over the members of a fleet, given in the order in which they joined. Without a strategy,
    /// all members go one by one.
    pub fn resolve(goal: Goal, strategy: Option<&Strategy>, members: &[Member]) -> Result<Self, PlanError> {
        let mut plan = Self {
            goal,
            stages: Vec::new(),
            groups: Vec::new(),
            members: Vec::new(),
            uncovered: Uncovered::default(),
            patience_seconds: default_patience(),
            created_by: None,
            gate_ids: Vec::new(),
            images: None,
            profile: None,
        };
        let mut places: BTreeMap<&Name, u32> = BTreeMap::new();
        let mut overlaps: Vec<(&Name, u32, u32)> = Vec::new();
        let one_by_one = [one_by_one()];
        let stages = strategy.map_or(&one_by_one[..], Strategy::stages);
        for stage in stages {
            plan.add_stage(stage, strategy.is_none(), members, &mut |member, group| {
                if let Some(earlier) = places.insert(&member.name, group) {
                    overlaps.push((&member.name, earlier, group));
                }
            });
        }
        if !overlaps.is_empty() {
            return Err(plan.overlap(&overlaps));
        }
        for member in members.iter().filter(|member| !places.contains_key(&member.name)) {
            plan.uncovered.count += 1;
            if plan.uncovered.first.len() < Uncovered::SHOWN {
                plan.uncovered.first.push(member.name.clone());
            }
        }
        Ok(plan)
    }

    fn overlap(&self, overlaps: &[(&Name, u32, u32)]) -> PlanError {
        let group = |index: u32| &self.groups[index as usize].name;
        let show = |(member, one, other): &(&Name, u32, u32)| {
            format!("'{member}' by '{}' and '{}'", group(*one), group(*other))
        };
        let shown: Vec<String> = overlaps.iter().take(5).map(show).collect();
        PlanError::Overlap { count: overlaps.len(), shown: shown.join(", ") }
    }

    fn add_stage<'m>(
        &mut self,
        stage: &Stage,
        picks_all: bool,
        members: &'m [Member],
        placed: &mut impl FnMut(&'m Member, u32),
    ) {
        let index = self.stages.len() as u32;
        let (first_group, first_member) = (self.groups.len() as u32, self.members.len() as u32);
        let filtered: Vec<&Member> = match (&stage.selector, stage.groups.is_empty()) {
            (Some(selector), false) => members.iter().filter(|member| selector.matches(&member.labels)).collect(),
            _ => members.iter().collect(),
        };
        if stage.groups.is_empty() {
            let pick = stage.selector.as_ref().map_or(Pick::All, Pick::Selected);
            self.add_group(&Group::new(stage.name.clone()), index, &pick, &filtered, placed);
        }
        for group in &stage.groups {
            let pick = match &group.selector {
                _ if picks_all => Pick::All,
                Some(selector) => Pick::Selected(selector),
                None => Pick::Named(&group.name),
            };
            self.add_group(group, index, &pick, &filtered, placed);
        }
        let members = first_member..self.members.len() as u32;
        let count = members.end - members.start;
        let concurrency = stage.max_concurrency.map_or(Strategy::STAGE_CONCURRENCY, |limit| limit.resolve(count));
        let failures = stage.max_allowed_failures.map(|limit| limit.resolve(count));
        let groups = first_group..self.groups.len() as u32;
        self.settle_limits(stage, groups.clone(), concurrency, failures);
        self.stages.push(PlanStage {
            name: stage.name.clone(),
            groups,
            members,
            max_concurrency: concurrency.min(Strategy::MOST_CONCURRENCY),
            max_allowed_failures: failures,
            budget: stage.budget,
            min_success: stage.min_success.map(|floor| floor.resolve(count)),
            after_wait_seconds: stage.after_wait_seconds,
            before_gates: stage.before_gates.clone(),
            after_gates: stage.after_gates.clone(),
        });
    }

    /// What a group inherits from its stage: an implicit group its concurrency, any group unlimited failures where the
    /// stage has a limit, else none at all.
    fn settle_limits(&mut self, stage: &Stage, groups: Range<u32>, concurrency: u32, failures: Option<u32>) {
        for group in &mut self.groups[groups.start as usize..groups.end as usize] {
            if stage.groups.is_empty() {
                group.max_concurrency = concurrency.min(Strategy::MOST_CONCURRENCY);
            }
            if group.max_allowed_failures.is_none() && failures.is_none() {
                group.max_allowed_failures = Some(0);
            }
        }
    }

    fn add_group<'m>(
        &mut self,
        group: &Group,
        stage: u32,
        pick: &Pick<'_>,
        members: &[&'m Member],
        placed: &mut impl FnMut(&'m Member, u32),
    ) {
        let index = self.groups.len() as u32;
        let first = self.members.len() as u32;
        for member in members {
            let picked = match pick {
                Pick::All => true,
                Pick::Named(name) => member.group.as_ref() == Some(*name),
                Pick::Selected(selector) => selector.matches(&member.labels),
            };
            if picked {
                placed(member, index);
                self.members.push(PlanMember {
                    name: member.name.clone(),
                    cluster: member.cluster.clone(),
                    group: index,
                    location: member.location().map(Into::into),
                });
            }
        }
        let members = first..self.members.len() as u32;
        let count = members.end - members.start;
        self.groups.push(PlanGroup {
            name: group.name.clone(),
            stage,
            members,
            max_concurrency: group.max_concurrency.map_or(1, |limit| limit.resolve(count)),
            max_allowed_failures: group.max_allowed_failures.map(|limit: FailureLimit| limit.resolve(count)),
            budget: group.budget,
            min_success: group.min_success.map(|floor| floor.resolve(count)),
            before_gates: group.before_gates.clone(),
            after_gates: group.after_gates.clone(),
        });
    }

    /// Gives each gate an id.
    pub fn name_gates(&mut self, id: impl FnMut() -> Box<str>) {
        self.gate_ids = std::iter::repeat_with(id).take(self.gate_count()).collect();
    }

    /// How many gates there are.
    pub fn gate_count(&self) -> usize {
        let stages = self.stages.iter().map(|stage| stage.before_gates.len() + stage.after_gates.len());
        let groups = self.groups.iter().map(|group| group.before_gates.len() + group.after_gates.len());
        stages.chain(groups).sum()
    }

    /// The images that a run of this plan moves to, where they are known before it starts.
    pub fn selected_images(&self) -> Option<&[NodeImage]> {
        let custom = match self.goal.images() {
            Some(ImageSelection::Custom(images)) => Some(images),
            _ => None,
        };
        self.images.as_ref().or(custom).map(Vec::as_slice)
    }

    /// Whether the images that a run of this plan moves to are chosen when it starts ([`crate::images::choose`]).
    pub fn chooses_images(&self) -> bool {
        let consistent = matches!(self.goal.images(), Some(ImageSelection::Consistent));
        consistent && self.goal.upgrade() != UpgradeType::ControlPlaneOnly && self.images.is_none()
    }

    /// The group of a member.
    pub fn group_of(&self, member: u32) -> u32 {
        self.members[member as usize].group
    }

    /// The stage of a member.
    pub fn stage_of(&self, member: u32) -> u32 {
        self.groups[self.group_of(member) as usize].stage
    }
}

fn one_by_one() -> Stage {
    let name = || DEFAULT.parse::<Name>().unwrap_or_else(|_| unreachable!("'default' is a name"));
    Stage::new(name(), vec![Group::new(name())])
}

#[cfg(test)]
mod tests {
    use flotta_model::{Concurrency, Labels};

    use super::*;

    fn goal() -> Goal {
        Goal::new(UpgradeType::NodeImageOnly, None, None).expect("goal")
    }

    fn member(name: &str, group: Option<&str>, labels: &[(&str, &str)]) -> Member {
        let cluster =
            format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/{name}");
        let labels: Labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Member {
            name: name.parse().expect(name),
            cluster: cluster.parse().expect("cluster id"),
            group: group.map(|group| group.parse().expect(group)),
            labels,
        }
    }

    fn members(count: usize, group: &str) -> Vec<Member> {
        (0..count).map(|n| member(&format!("{group}-{n}"), Some(group), &[])).collect()
    }

    fn group(name: &str, concurrency: Option<&str>, failures: Option<&str>) -> Group {
        Group {
            max_concurrency: concurrency.map(|text| text.parse().expect(text)),
            max_allowed_failures: failures.map(|text| text.parse().expect(text)),
            ..Group::new(name.parse().expect(name))
        }
    }

    fn stage(name: &str, concurrency: Option<&str>, failures: Option<&str>, groups: Vec<Group>) -> Stage {
        Stage {
            max_concurrency: concurrency.map(|text| text.parse().expect(text)),
            max_allowed_failures: failures.map(|text| text.parse().expect(text)),
            ..Stage::new(name.parse().expect(name), groups)
        }
    }

    fn resolve(stages: Vec<Stage>, members: &[Member]) -> Plan {
        Plan::resolve(goal(), Some(&Strategy::new(stages).expect("strategy")), members).expect("plan")
    }

    fn names(plan: &Plan, group: usize) -> Vec<&str> {
        let range = &plan.groups[group].members;
        plan.members[range.start as usize..range.end as usize].iter().map(|member| member.name.as_str()).collect()
    }

    /// The worked examples of concurrency: stage, groups with sizes → resolved stage and group limits.
    #[test]
    fn a5_concurrency_examples_1_to_3() {
        let cases = [
            ("1 fixed", "4", [("2", 5), ("2", 5)], 4, [2, 2]),
            ("2 stage throttles", "2", [("5", 6), ("5", 6)], 2, [5, 5]),
            ("3 percent", "25%", [("50%", 8), ("25%", 12)], 5, [4, 3]),
        ];
        for (name, stage_limit, groups, expect_stage, expect_groups) in cases {
            let fleet: Vec<Member> = [members(groups[0].1, "a"), members(groups[1].1, "b")].concat();
            let plan = resolve(
                vec![stage(
                    "s",
                    Some(stage_limit),
                    None,
                    vec![group("a", Some(groups[0].0), None), group("b", Some(groups[1].0), None)],
                )],
                &fleet,
            );
            assert_eq!(plan.stages[0].max_concurrency, expect_stage, "{name}");
            assert_eq!([plan.groups[0].max_concurrency, plan.groups[1].max_concurrency], expect_groups, "{name}");
        }
    }

    /// The worked examples of failures.
    #[test]
    fn a5_failure_examples_1_and_2() {
        let cases = [
            ("1 fixed", "5", [("2", 6), ("3", 6)], 5, [2, 3]),
            ("2 percent", "25%", [("25%", 7), ("25%", 12)], 5, [2, 3]),
        ];
        for (name, stage_limit, groups, expect_stage, expect_groups) in cases {
            let fleet: Vec<Member> = [members(groups[0].1, "a"), members(groups[1].1, "b")].concat();
            let plan = resolve(
                vec![stage(
                    "s",
                    None,
                    Some(stage_limit),
                    vec![group("a", None, Some(groups[0].0)), group("b", None, Some(groups[1].0))],
                )],
                &fleet,
            );
            assert_eq!(plan.stages[0].max_allowed_failures, Some(expect_stage), "{name}");
            let resolved = [plan.groups[0].max_allowed_failures, plan.groups[1].max_allowed_failures];
            assert_eq!(resolved, expect_groups.map(Some), "{name}");
        }
    }

    #[test]
    fn a5_defaults_are_50_for_a_stage_and_1_for_a_group() {
        let plan = resolve(vec![stage("s", None, None, vec![group("a", None, None)])], &members(3, "a"));
        assert_eq!((plan.stages[0].max_concurrency, plan.groups[0].max_concurrency), (50, 1));
    }

    #[test]
    fn choice_unset_failure_limits_of_group_and_stage() {
        let fleet = members(4, "a");
        let limits = |stage_limit, group_limit| {
            let plan = resolve(vec![stage("s", None, stage_limit, vec![group("a", None, group_limit)])], &fleet);
            (plan.stages[0].max_allowed_failures, plan.groups[0].max_allowed_failures)
        };
        assert_eq!(limits(None, None), (None, Some(0)), "nothing set: fail fast through the group");
        assert_eq!(limits(Some("2"), None), (Some(2), None), "the stage alone judges");
        assert_eq!(limits(None, Some("3")), (None, Some(3)), "the group alone judges");
    }

    #[test]
    fn a4_without_a_strategy_all_members_go_one_by_one() {
        let plan = Plan::resolve(goal(), None, &members(3, "a")).expect("plan");
        assert_eq!((plan.stages[0].name.as_str(), plan.groups[0].name.as_str()), ("default", "default"));
        assert_eq!((plan.groups[0].max_concurrency, plan.members.len()), (1, 3));
    }

    #[test]
    fn a5_selectors_implicit_group_pre_filter_and_override() {
        let fleet = [
            member("p1", Some("frontend"), &[("env", "prod"), ("tier", "frontend")]),
            member("p2", Some("other"), &[("env", "prod"), ("tier", "backend")]),
            member("s1", Some("frontend"), &[("env", "staging"), ("tier", "frontend")]),
            member("x1", None, &[]),
        ];
        let mut staging = stage("staging", Some("2"), None, vec![]);
        staging.selector = Some("env=staging".parse().expect("selector"));
        let mut by_label = group("backend", None, None);
        by_label.selector = Some("tier=backend".parse().expect("selector"));
        let mut production = stage("production", None, None, vec![group("frontend", None, None), by_label]);
        production.selector = Some("env=prod".parse().expect("selector"));
        let plan = resolve(vec![staging, production], &fleet);
        assert_eq!(
            (plan.groups[0].name.as_str(), names(&plan, 0)),
            ("staging", vec!["s1"]),
            "implicit group, named like its stage"
        );
        assert_eq!(plan.groups[0].max_concurrency, 2, "the stage's concurrency rules an implicit group");
        assert_eq!(names(&plan, 1), ["p1"], "the stage's selector filters before the group's name picks");
        assert_eq!(names(&plan, 2), ["p2"], "a group's selector wins over its name");
        assert_eq!((plan.uncovered.count, plan.uncovered.first[0].as_str()), (1, "x1"));
    }

    #[test]
    fn choice_a_member_in_two_groups_is_refused_by_name() {
        let fleet = [member("m1", Some("a"), &[("env", "prod")])];
        let mut selected = group("b", None, None);
        selected.selector = Some("env".parse().expect("selector"));
        let strategy =
            Strategy::new(vec![stage("s", None, None, vec![group("a", None, None), selected])]).expect("strategy");
        let error = Plan::resolve(goal(), Some(&strategy), &fleet).expect_err("overlap").to_string();
        assert!(error.contains("'m1' by 'a' and 'b'") && error.contains("!label"), "{error}");
    }

    #[test]
    fn a2_members_stand_in_the_order_in_which_they_joined() {
        let fleet = [member("z", Some("a"), &[]), member("b", Some("a"), &[]), member("m", Some("a"), &[])];
        let plan = resolve(vec![stage("s", None, None, vec![group("a", None, None)])], &fleet);
        assert_eq!(names(&plan, 0), ["z", "b", "m"]);
        let empty = resolve(vec![stage("s", None, None, vec![group("none", None, None)])], &fleet);
        assert!(empty.members.is_empty(), "a group without members is accepted");
    }

    #[test]
    fn a5_concurrency_is_capped_by_the_server() {
        let mut big = stage("s", Some("100%"), None, vec![group("a", Some("100%"), None)]);
        big.max_allowed_failures = Some(FailureLimit::count(1));
        let plan = resolve(vec![big], &members(1500, "a"));
        assert_eq!(plan.stages[0].max_concurrency, 1000);
        assert_eq!(Concurrency::count(0).resolve(9), 1);
    }
}
