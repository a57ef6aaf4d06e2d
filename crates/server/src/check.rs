//! The check before a run starts: a stored run, or one that is only thought of.
//!
//! The answer takes as long as the provider's budgets ask for, so that it is sent as it comes: blanks, which JSON
//! ignores, until the report is there.

use std::{io, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use flotta_arm::{
    doc::MemberDoc,
    error::ArmError,
    path::{FleetRef, Kind},
};
use flotta_engine::{
    Plan, Run, State,
    check::{Outlook, Severity},
    run::Part,
};
use flotta_model::{Member, Name};
use flotta_orchestrator::{
    Error,
    check::{Checked, Report, Subject},
};
use flotta_store::Collection;
use futures::{Stream, stream};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    Call,
    documents::Stored,
    fleets,
    reply::Reply,
    runs::{self, AskedPart},
};

/// How often a client that waits hears that it is still answered (wall time).
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// A run as it is stored: the members that a start would move, or those of one member, group or stage.
pub async fn stored(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    let asked = AskedPart::of(call)?;
    let subject = runs::current(call, fleet, name, |stored| {
        let asked = asked.clone();
        async move {
            let run = runs::reference(fleet, &stored.value);
            let id = run.id;
            call.app.orchestrator.read(&run, move |run, _| asked.find(run).map(|part| subject(run, part, id))).await
        }
    });
    let subject = subject.await?.ok_or_else(|| fleet.child_not_found(Kind::Run, name))?;
    let subject = subject.ok_or_else(|| asked.not_found(name))?;
    let scope = if asked == AskedPart::Run { Scope::Fleet } else { Scope::Part };
    Ok(report(call, Subject { fleet: members(call, fleet).await?, ..subject }, scope))
}

fn subject(run: &Run, part: Part, id: Uuid) -> Subject {
    let plan = run.plan();
    let members = match part {
        Part::Run => 0..plan.members.len() as u32,
        Part::Stage(stage) => plan.stages[stage as usize].members.clone(),
        Part::Group(group) => plan.groups[group as usize].members.clone(),
        Part::Member(member) => member..member + 1,
    };
    let moves = |member: &u32| matches!(run.member_state(*member), State::NotStarted | State::Pending | State::Failed);
    let members = members.filter(moves).collect();
    let images = run.selected_images().map(Into::into);
    Subject { plan: Arc::clone(plan), version: run.version(), images, members, fleet: Vec::new(), run: Some(id) }
}

/// Whose members a report is about.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    /// The fleet's, also those that no group picks.
    Fleet,
    /// Those of a part of the run.
    Part,
}

/// A run that is not stored.
pub async fn planned(call: &Call, fleet: &FleetRef, plan: Plan) -> Result<Reply, ArmError> {
    Ok(report(call, Subject::of_plan(plan, members(call, fleet).await?), Scope::Fleet))
}

async fn members(call: &Call, fleet: &FleetRef) -> Result<Vec<Member>, ArmError> {
    let members: Vec<Stored<MemberDoc>> = call.all(Collection::Members, &fleet.key()).await?;
    Ok(members.into_iter().map(|stored| stored.value.member).collect())
}

fn report(call: &Call, subject: Subject, scope: Scope) -> Reply {
    let orchestrator = call.app.orchestrator.clone();
    Reply::slow(alive(async move {
        let mut report = orchestrator.check(subject).await?;
        if scope == Scope::Part {
            report.members.truncate(report.members.len() - report.uncovered);
            report.uncovered = 0;
        }
        Ok(render(&report))
    }))
}

type Body = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// Blanks until a body is there. What fails by then can only break off: the status was sent before.
fn alive(
    body: impl Future<Output = Result<Value, Error>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static {
    let body: Option<Body> = Some(Box::pin(body));
    stream::unfold(body, |body| async move {
        let mut body = body?;
        match tokio::time::timeout(SIGN_OF_LIFE, &mut body).await {
            Err(_) => Some((Ok(Bytes::from_static(b" ")), Some(body))),
            Ok(Ok(value)) => Some((Ok(Bytes::from(value.to_string())), None)),
            Ok(Err(error)) => Some((Err(io::Error::other(error)), None)),
        }
    })
}

fn render(report: &Report) -> Value {
    let mut body = Map::new();
    body.insert("value".into(), report.members.iter().map(render_member).collect());
    if let Some(version) = report.version {
        body.insert("kubernetesVersion".into(), version.to_string().into());
    }
    for (key, severity) in [("errors", Severity::Error), ("warnings", Severity::Warning), ("notes", Severity::Note)] {
        body.insert(key.into(), report.count(severity).into());
    }
    body.insert("uncoveredMembers".into(), report.uncovered.into());
    Value::Object(body)
}

fn render_member(checked: &Checked) -> Value {
    let (outcome, steps) = match &checked.verdict.outlook {
        Outlook::Upgrades(steps) => ("Upgrades", steps.iter().map(ToString::to_string).collect()),
        Outlook::Skipped => ("Skipped", Vec::new()),
        Outlook::Waits => ("Waits", Vec::new()),
        Outlook::Fails => ("Fails", Vec::new()),
        Outlook::NotInRun => ("NotInRun", Vec::new()),
    };
    let findings: Vec<Value> = checked
        .verdict
        .findings
        .iter()
        .map(|finding| {
            json!({"severity": format!("{:?}", finding.severity), "code": finding.code, "message": finding.message})
        })
        .collect();
    let mut member = Map::new();
    member.insert("member".into(), checked.name.to_string().into());
    if let Some((stage, group)) = &checked.place {
        member.insert("stage".into(), stage.to_string().into());
        member.insert("group".into(), group.to_string().into());
    }
    member.insert("cluster".into(), checked.cluster.as_str().into());
    member.insert("outcome".into(), outcome.into());
    member.insert("steps".into(), steps.into());
    member.insert("findings".into(), findings.into());
    if let Some(opens) = checked.verdict.opens {
        member.insert("nextOpen".into(), opens.to_string().into());
    }
    Value::Object(member)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_check_hears_blanks_and_then_the_report() {
        let report = async {
            tokio::time::sleep(SIGN_OF_LIFE * 5 / 2).await;
            Ok(json!({"value": []}))
        };
        let sent: Vec<Bytes> = alive(report).map(|part| part.expect("no failure")).collect().await;
        assert_eq!(sent, [" ", " ", r#"{"value":[]}"#]);
        let sent: Vec<_> = alive(async { Err(Error::ShuttingDown) }).collect().await;
        assert!(matches!(&sent[..], [Err(_)]), "a check that is given up breaks off: {sent:?}");
    }
}
