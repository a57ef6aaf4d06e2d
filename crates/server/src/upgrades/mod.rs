//! What goes on by itself: profiles make and start runs, and chained runs start.
//!
//! Both are reconciled rather than told: what is stored and seen is compared with what should be, at start-up, when
//! something changed, and from time to time. A hint that is lost costs time, and nothing else.

mod campaigns;
mod chains;
mod profiles;

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use flotta_arm::{
    api_version::ApiVersion,
    conditions::Conditions,
    doc::{FleetDoc, Principal, PrincipalKind},
    error::ArmError,
    path::{FleetRef, Query, Target},
};
use flotta_store::Collection;
use futures::{StreamExt, future, stream};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, broadcast::error::RecvError};

pub use self::{
    campaigns::campaign,
    chains::check as check_chain,
    profiles::{ProfileState, generate, why},
};
use crate::{App, Call, documents};

/// Fleets are looked at this often, if nothing happens (domain time).
const EVERY: SignedDuration = SignedDuration::from_mins(30);

/// Who acts where nobody asked.
const ITSELF: &str = "flotta";

/// Fleets that are looked at at the same time. What clusters are asked is bounded by itself.
const MOST_FLEETS: usize = 16;

/// What goes on by itself.
#[derive(Clone, Copy)]
enum What {
    Chains,
    Profiles,
}

/// Fleets in which something changed: whose chains and whose profiles are to be looked at soon.
#[derive(Default)]
pub struct Upgrades {
    chains: Asked,
    profiles: Asked,
}

/// Fleets that are to be looked at.
#[derive(Default)]
struct Asked {
    fleets: Mutex<BTreeSet<String>>,
    wake: Notify,
}

impl Upgrades {
    /// Something changed in a fleet.
    pub fn look_at(&self, fleet: &str) {
        self.chains.add(fleet);
        self.profiles.add(fleet);
    }

    fn of(&self, what: What) -> &Asked {
        match what {
            What::Chains => &self.chains,
            What::Profiles => &self.profiles,
        }
    }
}

impl Asked {
    fn add(&self, fleet: &str) {
        self.fleets.lock().unwrap_or_else(PoisonError::into_inner).insert(fleet.to_owned());
        self.wake.notify_one();
    }

    fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.fleets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Call {
    /// A call that nobody made.
    fn of_itself(app: &App) -> Self {
        Self {
            app: app.clone(),
            method: Method::PUT,
            path: String::new(),
            query: Query::default(),
            version: ApiVersion::NEWEST,
            conditions: Conditions::default(),
            body: Vec::new(),
            base: String::new(),
            by: Principal { name: ITSELF.into(), kind: PrincipalKind::Application },
            now: app.orchestrator.clock().now(),
        }
    }
}

/// Goes on for as long as the server does. Chains do not wait until clusters were looked at.
pub async fn go_on(app: App) {
    future::join(watch(&app, What::Chains), watch(&app, What::Profiles)).await;
}

/// Looks at fleets: at start-up, where a run ended, where something changed, and at all from time to time.
async fn watch(app: &App, what: What) {
    let asked = app.upgrades.of(what);
    let mut ended = app.orchestrator.ended();
    let clock = app.orchestrator.clock();
    let mut next = Timestamp::MIN;
    loop {
        let (keys, age) = tokio::select! {
            biased;
            run = ended.recv() => match run {
                Ok(run) => {
                    let mut fleets = BTreeSet::from([run.fleet.to_string()]);
                    while let Ok(run) = ended.try_recv() {
                        fleets.insert(run.fleet.to_string());
                    }
                    (Some(fleets), EVERY)
                }
                Err(RecvError::Lagged(_)) => (None, EVERY),
                Err(RecvError::Closed) => return,
            },
            () = asked.wake.notified() => (Some(asked.take()), EVERY),
            () = clock.sleep_until(next) => {
                next = clock.now().saturating_add(EVERY).unwrap_or(Timestamp::MAX);
                (None, EVERY / 2)
            }
        };
        match fleets(app).await {
            Ok(mut fleets) => {
                fleets.retain(|fleet| keys.as_ref().is_none_or(|keys| keys.contains(&fleet.key())));
                let looks: Vec<_> = fleets.iter().map(|fleet| look(app, what, fleet, age)).collect();
                stream::iter(looks).buffer_unordered(MOST_FLEETS).collect::<()>().await;
            }
            Err(error) => tracing::warn!(%error, "the fleets cannot be read"),
        }
    }
}

/// Looks at one fleet. What was seen of its clusters less than `age` ago is not looked at again.
async fn look(app: &App, what: What, fleet: &FleetRef, age: SignedDuration) {
    let call = Call::of_itself(app);
    let (outcome, cannot) = match what {
        What::Chains => (chains::go_on(&call, fleet).await, "chained runs cannot go on"),
        What::Profiles => (profiles::reconcile(&call, fleet, age).await, "profiles cannot be followed"),
    };
    if let Err(error) = outcome {
        tracing::warn!(fleet = %fleet.fleet, %error, "{cannot}");
    }
}

/// Every fleet there is, in the casing of its creation.
async fn fleets(app: &App) -> Result<Vec<FleetRef>, ArmError> {
    let mut fleets = Vec::new();
    let mut after = None;
    loop {
        let page =
            app.store.scan(Collection::Fleets, after, 1000).await.map_err(|error| documents::internal(&error))?;
        let Some(last) = page.last() else { return Ok(fleets) };
        after = Some(last.serial);
        for document in &page {
            let Ok(doc) = serde_json::from_str::<FleetDoc>(&document.body) else { continue };
            let id = flotta_arm::path::fleet_id(&doc.subscription, &doc.resource_group, &doc.fleet.name);
            if let Ok(Target::Fleet(fleet)) = Target::parse(&id) {
                fleets.push(fleet);
            }
        }
    }
}
