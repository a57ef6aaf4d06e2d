//! What happened, for the summary and to know that each was met.

use flotta_engine::{
    Event, Plan,
    run::{Outcome, RunPhase},
};

use flotta_model::Budget;

use crate::view::View;

macro_rules! tally {
    ($($field:ident $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Tally { $(pub $field: u64,)* }

        impl Tally {
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field),)*]
            }
        }
    };
}

tally! {
    runs "runs",
    events "events",
    stops "stops",
    skips "skips",
    retries "retries",
    failures "failures",
    crashes "crashes",
    lost_commits "lost commits",
    leaps "leaps of time",
    holds "holds",
    worn_out "worn out",
    put_back "put back",
    between_steps "stopped between steps",
    fail_fasts "fail-fasts",
    failed_groups "failed groups",
    used_up "strict budgets used up",
    below_floor "below their floor",
    waits "waits",
    left_the_fleet "left the fleet",
    unfit "unfit",
    there "there already",
    stale "stale answers",
    adopted "adopted",
    not_taken "not taken",
    refused "refused",
    windows_read "windows read",
    read_in_parts "read in parts",
    reads_failed "reads failed",
    windows_changed "windows changed",
    shut "members shut",
    opened "windows opened",
    closed_at_look "closed when looked at",
    read_again "read again",
    too_late "too late to send",
    gates_reached "gates reached",
    approvals "approvals",
    gates_opened "gates opened",
    gates_timed "gates opened by time",
    gates_rejected "gates rejected",
    gates_expired "gates expired",
    gates_skipped "gates skipped",
    gate_refusals "decisions refused",
    asked_again "gates asked again",
    gates_while_halted "gates opened while halted",
    completed_runs "completed runs",
    failed_runs "failed runs",
    skipped_runs "skipped runs",
    left_at_gate "runs left at a gate",
    left_at_window "runs left at a window",
    left_held "runs left held",
    images_chosen "images chosen",
    images_apart "regions apart",
    image_holds "images waited for",
    too_old "images too old",
    pinned "pools pinned",
    overtaken "images overtaken",
    snapshots "kept by snapshots",
    left_out "pools left out",
}

impl Tally {
    pub fn count(&mut self, plan: &Plan, event: &Event, before: &View, view: &View) {
        self.events += 1;
        let shut = |view: &View| view.members.iter().filter(|member| member.shut).count() as u64;
        let skipped = |view: &View| {
            view.gates.iter().filter(|gate| gate.state == flotta_engine::run::State::Skipped).count() as u64
        };
        self.shut += shut(view).saturating_sub(shut(before));
        self.gates_skipped += skipped(view) - skipped(before);
        match event {
            Event::StopAsked => self.stops += 1,
            Event::Skipped(targets) => self.skips += targets.len() as u64,
            Event::Resumed => {
                self.retries += u64::from(before.counts.failed);
                self.asked_again += before.gates.iter().filter(|gate| gate.denied).count() as u64;
            }
            Event::MemberHeld(_, flotta_model::Hold::StoppedBetweenSteps { .. }) => self.between_steps += 1,
            Event::MemberHeld(_, hold) => {
                self.holds += 1;
                self.image_holds += u64::from(matches!(hold, flotta_model::Hold::ImageNotInRegion { .. }));
                self.too_old += u64::from(matches!(hold, flotta_model::Hold::ImageTooOld { .. }));
            }
            Event::ImagesSelected(_) => self.images_chosen += 1,
            Event::ImagesDisagree(_) => self.images_apart += 1,
            Event::StepIntended { step: flotta_model::Step::PoolPinned { .. }, .. } => self.pinned += 1,
            Event::MemberReleased(member) if view.members[*member as usize].shut => self.closed_at_look += 1,
            Event::MemberReleased(_) => self.put_back += 1,
            Event::MemberEnded { outcome: Outcome::Failed, fault, .. } => {
                self.failures += 1;
                let worn = fault.as_ref().is_some_and(|fault| fault.message.contains("waited"));
                self.worn_out += u64::from(worn);
                let code = |code| u64::from(fault.as_ref().is_some_and(|fault| fault.code == code));
                self.overtaken += code("NodeImageOvertaken");
                self.snapshots += code("NodePoolFromSnapshot");
            }
            Event::MemberEnded { outcome: Outcome::Skipped, message, there, .. } => {
                let says = |text| message.as_deref().is_some_and(|message| message.contains(text));
                self.left_the_fleet += u64::from(says("left the fleet"));
                self.unfit += u64::from(says("Cannot be upgraded by this run"));
                self.there += u64::from(*there);
                self.left_out += u64::from(says("is not upgraded"));
            }
            Event::FailedFast { .. } => self.fail_fasts += 1,
            Event::GroupEnded(group, Outcome::Failed) => {
                self.failed_groups += 1;
                let (planned, failed) = (&plan.groups[*group as usize], before.group(plan, *group).failed);
                let used_up = planned.budget == Budget::Strict && planned.max_allowed_failures == Some(failed);
                self.used_up += u64::from(used_up && before.group_over(plan, *group));
                self.below_floor += u64::from(!before.group_over(plan, *group));
            }
            Event::WaitStarted { .. } => self.waits += 1,
            Event::WindowsRead { members, .. } => self.windows_read += members.len() as u64,
            Event::WindowsStale(_) => self.read_again += 1,
            Event::WindowTurned { open: true, .. } => self.opened += 1,
            Event::RunEnded(Outcome::Completed) => self.completed_runs += 1,
            Event::RunEnded(Outcome::Failed) => self.failed_runs += 1,
            Event::RunEnded(Outcome::Skipped) => self.skipped_runs += 1,
            _ => self.count_gate(event, before),
        }
    }

    fn count_gate(&mut self, event: &Event, before: &View) {
        match event {
            Event::GateReached { .. } => self.gates_reached += 1,
            Event::GateApproved { .. } => self.approvals += 1,
            Event::GateOpened(gate) => {
                self.gates_opened += 1;
                self.gates_timed += u64::from(before.gates[*gate as usize].approvals.is_empty());
                self.gates_while_halted += u64::from(before.phase != RunPhase::Going);
            }
            Event::GateRejected { .. } => self.gates_rejected += 1,
            Event::GateExpired(_) => self.gates_expired += 1,
            _ => {}
        }
    }
}
