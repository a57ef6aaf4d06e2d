//! Campaigns: chains of runs that bring a mixed fleet over several minors.

use flotta_arm::{
    doc::RunDoc,
    error::ArmError,
    path::FleetRef,
    run::{self, RunRequest, render_goal},
};
use flotta_engine::{
    campaign::{self, Campaign, Leg},
    channels::Known,
};
use flotta_model::Name;
use flotta_store::Batch;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{Call, fleets, releases, reply::Reply, runs, strategies};

/// How old what is judged by may be.
const AGE: SignedDuration = SignedDuration::from_mins(2);

/// Plans the runs that bring a fleet to a version, and makes them where that is asked for. None is started.
pub async fn campaign(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    let asked = run::parse_campaign(&call.json()?)?;
    let strategy = match &asked.strategy_id {
        Some(id) => Some(strategies::by_id(call, fleet, id).await?),
        None => None,
    };
    let sight = releases::look(call, fleet, AGE).await?;
    let known = sight.members.iter().map(|(member, seen)| Known {
        name: &member.name,
        cluster: &member.cluster,
        seen: seen.as_deref(),
    });
    let known: Vec<Known<'_>> = known.collect();
    let campaign = campaign::plan(asked.target, &known, &sight.releases)
        .map_err(|error| ArmError::invalid_parameter("kubernetesVersion", error))?;
    let base = asked.name.map_or_else(|| format!("to-{}", dashed(&campaign.version)), |name| name.to_string());
    let names: Vec<Name> = campaign.legs.iter().map(|leg| name_of(&base, leg)).collect::<Result<_, _>>()?;
    if asked.create {
        let mut batch = Batch::default();
        for (at, leg) in campaign.legs.iter().enumerate() {
            let request = RunRequest {
                strategy: None,
                strategy_id: asked.strategy_id.clone(),
                goal: leg.goal.clone(),
                start_after: at.checked_sub(1).map(|before| names[before].clone()),
            };
            if runs::find(call, fleet, &names[at]).await?.is_some() {
                let message = format!("there is an update run '{}' already: use another name", names[at]);
                return Err(ArmError::conflict(message).at("name"));
            }
            let only: Vec<Name> = leg.members.iter().map(|(name, _)| name.clone()).collect();
            let plan = runs::resolve(call, fleet, &request, strategy.as_ref(), Some(&only)).await?;
            let doc = runs::document(call, &names[at], request, strategy.clone());
            let doc = RunDoc { only: Some(only), ..doc };
            runs::add(&mut batch, fleet, &doc, &plan)?;
        }
        call.commit(batch).await?;
    }
    Ok(Reply::ok(render(&campaign, &names, asked.create)))
}

fn dashed(version: &flotta_model::KubernetesVersion) -> String {
    version.to_string().replace('.', "-")
}

fn name_of(base: &str, leg: &Leg) -> Result<Name, ArmError> {
    let name = format!("{base}-via-{}", dashed(&leg.version));
    name.parse().map_err(|error| ArmError::invalid_parameter("name", error))
}

fn render(campaign: &Campaign, names: &[Name], created: bool) -> Value {
    let legs = campaign.legs.iter().zip(names).enumerate().map(|(at, (leg, name))| {
        let members = leg
            .members
            .iter()
            .map(|(member, from)| json!({ "member": member, "from": from.to_string(), "to": leg.version.to_string() }));
        let mut shown = json!({
            "run": name,
            "managedClusterUpdate": render_goal(&leg.goal),
            "members": members.collect::<Vec<_>>(),
        });
        if let Some(before) = at.checked_sub(1) {
            shown["startAfter"] = names[before].as_str().into();
        }
        shown
    });
    let left = campaign.left.iter();
    let left = left.map(|left| json!({ "member": left.member, "code": left.code, "message": left.message }));
    json!({
        "kubernetesVersion": campaign.version.to_string(),
        "legs": legs.collect::<Vec<_>>(),
        "left": left.collect::<Vec<_>>(),
        "created": created,
    })
}
