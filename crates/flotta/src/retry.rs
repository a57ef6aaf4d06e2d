//! `flotta run retry`: a new run over the members that an earlier one left.

use flotta_model::Name;
use serde_json::{Value, json};

use crate::{
    cli::Retry,
    client::{http::Api, resources::Kind},
    failure::{Failure, Kind as Blame},
    output,
};

/// Names that are tried for the new run.
const MOST_NAMES: u32 = 99;

/// Makes the run, under the name asked for or else under the first that is free.
pub async fn make(api: &Api, wanted: &Retry) -> Result<Value, Failure> {
    let old = wanted.name.as_str();
    let names: Box<dyn Iterator<Item = String> + Send> = match &wanted.new_name {
        Some(name) => Box::new(std::iter::once(name.to_string())),
        None => Box::new(free_names(&wanted.name)),
    };
    let mut taken = None;
    for name in names {
        let body = json!({ "name": name });
        match api.act(Kind::Run, old, "retry", Some(&body), &wanted.write).await {
            Ok(answer) => return Ok(answer.body),
            // The name is at fault: there is a run of it.
            Err(refused) if refused.kind == Blame::Refused && refused.field.as_deref() == Some("name") => {
                taken = Some(refused.hint("name the new run with --name"));
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(taken.unwrap_or_else(|| Failure::new(Blame::Failed, format!("cannot retry run '{old}'"), "no name is left")))
}

/// `old-retry`, `old-retry-2` and so on, as short as a name must be. What repeats `old-retry` is `old-retry-2`, too.
fn free_names(old: &Name) -> impl Iterator<Item = String> + Send + use<> {
    let old = old.as_str();
    let base = old.rsplit_once("-retry").filter(|(base, number)| {
        let counted = number.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok());
        !base.is_empty() && (number.is_empty() || counted)
    });
    let base = base.map_or(old, |(base, _)| base).to_owned();
    (1..=MOST_NAMES).map(move |number| {
        let suffix = if number == 1 { "-retry".to_owned() } else { format!("-retry-{number}") };
        let kept = &base[..base.len().min(Name::LONGEST - suffix.len())];
        format!("{}{suffix}", kept.trim_end_matches('-'))
    })
}

/// What was made, in words.
pub fn told(old: &Name, run: &Value) -> String {
    let name = run.get("name").and_then(Value::as_str).unwrap_or_default();
    let (_, members) = output::members_ended(run);
    let version = run.pointer("/properties/managedClusterUpdate/upgrade/kubernetesVersion").and_then(Value::as_str);
    let to = version.map(|version| format!(", to {version}")).unwrap_or_default();
    let members = if members == 1 { "1 member".to_owned() } else { format!("{members} members") };
    output::clean(&format!("run '{name}' is to try {members} of run '{old}' again{to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e02_names_of_retries_count_up_and_stay_names() {
        let first =
            |old: &str, count: usize| -> Vec<String> { free_names(&old.parse().expect(old)).take(count).collect() };
        assert_eq!(first("up", 3), ["up-retry", "up-retry-2", "up-retry-3"]);
        assert_eq!(first("up-retry", 2), ["up-retry", "up-retry-2"]);
        assert_eq!(first("up-retry-7", 1), ["up-retry"]);
        assert_eq!(first("retry", 1), ["retry-retry"]);
        assert_eq!(first("up-retry-eu", 1), ["up-retry-eu-retry"]);
        let long = format!("{}-{}", "x".repeat(43), "y".repeat(6));
        assert_eq!(first(&long, 1), [format!("{}-retry", "x".repeat(43))]);
        for name in first(&"z".repeat(50), 99) {
            assert!(name.parse::<Name>().is_ok(), "{name}");
        }
    }
}
