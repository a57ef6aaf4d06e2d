//! The body of `skip` (`arm-api.md` §10; `behaviour.md` A7).

use flotta_engine::run::SkipTarget;
use flotta_model::Name;
use serde_json::Value;

use crate::{error::ArmError, field::Field};

/// Targets in one request at most.
pub const MOST_TARGETS: usize = 10_000;

/// Makes a target of a name.
type Of = fn(Name) -> SkipTarget;

/// Reads what is to be skipped.
pub fn parse(body: &Value) -> Result<Vec<SkipTarget>, ArmError> {
    let targets = Field::top(body).need("targets")?;
    let elements = targets.elements()?;
    if elements.is_empty() || elements.len() > MOST_TARGETS {
        return Err(targets.refuse(format!("name 1 to {MOST_TARGETS} targets, got {}", elements.len())));
    }
    elements.iter().map(target).collect()
}

fn target(field: &Field<'_>) -> Result<SkipTarget, ArmError> {
    let types: [(&str, Of); 4] = [
        ("Member", SkipTarget::Member),
        ("Group", SkipTarget::Group),
        ("Stage", SkipTarget::Stage),
        ("AfterStageWait", SkipTarget::AfterStageWait),
    ];
    let of = field.need("type")?.one_of(&types)?;
    Ok(of(field.need("name")?.parse()?))
}
