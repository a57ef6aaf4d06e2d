//! Trying again what an earlier run did not bring to its target (`behaviour.md` E02): a new run over those members
//! alone, along the same strategy, to the very version and node images that the earlier one came to.

use std::collections::BTreeMap;

use flotta_arm::{
    doc::{MemberDoc, Retry, RunDoc},
    error::ArmError,
    path::{FleetRef, Kind},
    run::{self, RunRequest},
};
use flotta_engine::{Plan, Run, State, plan::PlanMember, run::RunPhase};
use flotta_model::{ClusterId, Goal, ImageSelection, KubernetesVersion, Name, NodeImage, VersionTarget};
use flotta_store::Collection;

use crate::{Call, documents::Stored, fleets, reply::Reply, runs};

/// What an earlier run left.
struct Left {
    doc: RunDoc,
    number: u64,
    phase: RunPhase,
    state: State,
    version: Option<KubernetesVersion>,
    /// Those that Consistent came to.
    images: Option<Vec<NodeImage>>,
    members: Vec<PlanMember>,
}

impl Left {
    fn of(doc: RunDoc, run: &Run, number: u64) -> Self {
        let (phase, state, version) = (run.phase(), run.state(), run.version());
        let members = run.plan().members.iter().zip(0..);
        let members = members.filter(|(_, at)| is_left(run, *at)).map(|(member, _)| member.clone()).collect();
        let consistent = doc.goal.images() == Some(&ImageSelection::Consistent);
        let images = run.selected_images().filter(|_| consistent).map(<[NodeImage]>::to_vec);
        Self { doc, number, phase, state, version, images, members }
    }
}

/// Whether a member ended anywhere but at its target.
fn is_left(run: &Run, member: u32) -> bool {
    match run.member_state(member) {
        State::Failed => true,
        State::Skipped => !run.member(member).there,
        _ => false,
    }
}

/// Makes a run over the members that an earlier one left, and does not start it.
pub async fn retry(call: &Call, fleet: &FleetRef, old: &Name) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    let name = run::retry_name(&call.json()?)?;
    let left = left_by(call, fleet, old).await?;
    call.conditions.check(Some(&runs::etag(left.doc.run, left.number)))?;
    if matches!(left.phase, RunPhase::Going | RunPhase::Stopping | RunPhase::Failing) {
        let (old, state) = (&left.doc.name, left.state);
        return Err(not_allowed(format!(
            "update run '{old}' is {state:?}: wait for its end, or stop it, before its failed and skipped members are tried again"
        )));
    }
    if runs::find(call, fleet, &name).await?.is_some() {
        return Err(ArmError::conflict(format!("there is an update run '{name}' already: use another name")).at("name"));
    }
    let members = still_here(call, fleet, &left.members).await?;
    if members.is_empty() {
        return Err(nobody(&left));
    }
    let Left { doc: old, version, images, .. } = left;
    let request = RunRequest {
        goal: pinned(&old.goal, version),
        strategy: old.strategy.clone(),
        strategy_id: old.strategy_id.clone(),
        start_after: None,
    };
    let retry = Retry { of: fleet.child_id(Kind::Run, &old.name), members };
    let plan = runs::resolve(call, fleet, &request, old.strategy.as_ref(), Some(&retry.members)).await?;
    if plan.members.is_empty() {
        return Err(not_allowed(format!(
            "no group of the strategy picks any of the members that update run '{}' left: their groups or labels have changed since; create a run with another strategy",
            old.name
        )));
    }
    let plan = Plan { images, ..plan };
    let doc = RunDoc { retry: Some(retry), ..runs::document(call, &name, request, old.strategy) };
    runs::make(call, fleet, &doc, &plan).await
}

async fn left_by(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Left, ArmError> {
    let left = runs::current(call, fleet, name, |Stored { value: doc, .. }| async move {
        let run = runs::reference(fleet, &doc);
        call.app.orchestrator.read(&run, |run, number| Left::of(doc, run, number)).await
    });
    left.await?.ok_or_else(|| fleet.child_not_found(Kind::Run, name))
}

/// Of some members, those that are in the fleet with the same cluster.
async fn still_here(call: &Call, fleet: &FleetRef, members: &[PlanMember]) -> Result<Vec<Name>, ArmError> {
    let here: Vec<Stored<MemberDoc>> = call.all(Collection::Members, &fleet.key()).await?;
    let here: BTreeMap<&Name, &ClusterId> =
        here.iter().map(|stored| (&stored.value.member.name, &stored.value.member.cluster)).collect();
    let same = |member: &&PlanMember| here.get(&member.name).is_some_and(|has| has.key() == member.cluster.key());
    Ok(members.iter().filter(same).map(|member| member.name.clone()).collect())
}

/// The same goal at the version that it came to: a minor may come to another one by now.
fn pinned(goal: &Goal, version: Option<KubernetesVersion>) -> Goal {
    let exact = version.map(VersionTarget::Exact);
    match exact.map(|exact| Goal::new(goal.upgrade(), Some(exact), goal.images().cloned())) {
        Some(Ok(pinned)) => pinned.accepting_newer(goal.accepts_newer()),
        // Node images have no version.
        Some(Err(_)) | None => goal.clone(),
    }
}

fn nobody(left: &Left) -> ArmError {
    let old = &left.doc.name;
    not_allowed(match left.members.len() {
        0 => format!(
            "no member of update run '{old}' failed or was skipped before it was at its target: there is nobody to try again"
        ),
        gone => format!(
            "all {gone} member(s) that update run '{old}' left have left the fleet since: there is nobody to try again"
        ),
    })
}

fn not_allowed(message: String) -> ArmError {
    ArmError::new(409, "OperationNotAllowed", message)
}
