//! Long-running operations: what is kept of one, how it is shown, where it is found (`arm-api.md` §4).

use flotta_model::Fault;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{fleet::region, time::seven_digits};

/// The api-version in the URLs of operations: clients treat them as opaque.
const URL_VERSION: &str = "2016-03-30";

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationStatus {
    /// Going on.
    InProgress,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Given up.
    Canceled,
}

impl OperationStatus {
    /// Whether it has ended.
    pub fn ended(self) -> bool {
        self != Self::InProgress
    }
}

/// A long-running operation towards a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id, also the `lastOperationId` of the resource.
    pub id: Uuid,
    /// How it stands.
    pub status: OperationStatus,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

impl Operation {
    /// An operation that begins.
    pub fn begin(id: Uuid, now: Timestamp) -> Self {
        Self { id, status: OperationStatus::InProgress, started: now, ended: None, error: None }
    }

    /// The same, ended well.
    #[must_use]
    pub fn succeed(self, now: Timestamp) -> Self {
        Self { status: OperationStatus::Succeeded, ended: Some(now), ..self }
    }

    /// The same, ended badly.
    #[must_use]
    pub fn fail(self, fault: Fault, now: Timestamp) -> Self {
        Self { status: OperationStatus::Failed, ended: Some(now), error: Some(fault), ..self }
    }

    /// The body of its status.
    pub fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("name".into(), self.id.to_string().into());
        body.insert("status".into(), format!("{:?}", self.status).into());
        body.insert("startTime".into(), seven_digits(self.started).into());
        if let Some(ended) = self.ended {
            body.insert("endTime".into(), seven_digits(ended).into());
        }
        if let Some(error) = &self.error {
            body.insert("error".into(), render_fault(error));
        }
        Value::Object(body)
    }
}

/// A fault in the shape of errors inside statuses.
pub fn render_fault(fault: &Fault) -> Value {
    json!({ "code": fault.code, "message": fault.message })
}

/// The URL for the `Azure-AsyncOperation` header. The base is the server's own, such as `https://localhost:8443`.
pub fn status_url(base: &str, subscription: &str, location: &str, id: Uuid) -> String {
    url(base, subscription, location, "operations", id)
}

/// The URL for the `Location` header.
pub fn result_url(base: &str, subscription: &str, location: &str, id: Uuid) -> String {
    url(base, subscription, location, "operationresults", id)
}

fn url(base: &str, subscription: &str, location: &str, word: &str, id: Uuid) -> String {
    let base = base.trim_end_matches('/');
    let region = region(location);
    format!(
        "{base}/subscriptions/{subscription}/providers/Microsoft.ContainerService/locations/{region}/{word}/{id}?api-version={URL_VERSION}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Target;

    #[test]
    fn api4_operations_show_name_status_times_and_error() {
        let id: Uuid = "12345678-9abc-def0-1234-56789abcdef0".parse().expect("uuid");
        let at: Timestamp = "2026-11-04T03:02:42.2231122Z".parse().expect("time");
        let begun = Operation::begin(id, at);
        let name = id.to_string();
        let start = "2026-11-04T03:02:42.2231122Z";
        assert_eq!(begun.body(), json!({"name": name, "status": "InProgress", "startTime": start}));
        let end = at + jiff::SignedDuration::from_secs(1);
        let end_text = "2026-11-04T03:02:43.2231122Z";
        assert_eq!(
            begun.clone().succeed(end).body(),
            json!({"name": name, "status": "Succeeded", "startTime": start, "endTime": end_text})
        );
        let failed = begun.fail(Fault::new("Broken", "it broke"), end);
        let error = json!({"code": "Broken", "message": "it broke"});
        assert_eq!(
            failed.body(),
            json!({"name": name, "status": "Failed", "startTime": start, "endTime": end_text, "error": error})
        );
        let text = serde_json::to_string(&failed).expect("json");
        assert_eq!(serde_json::from_str::<Operation>(&text).expect("operation"), failed);
    }

    #[test]
    fn api4_urls_lead_back_to_the_operation() {
        let id: Uuid = "12345678-9abc-def0-1234-56789abcdef0".parse().expect("uuid");
        let subscription = String::from("S1");
        let location = String::from("eastus");
        let path = |url: String| {
            let rest = url.strip_prefix("http://127.0.0.1:8080").expect("base").to_string();
            rest.strip_suffix("?api-version=2016-03-30").expect("version").to_string()
        };
        let status = path(status_url("http://127.0.0.1:8080/", "S1", "East US", id));
        let expect = Target::Operation { subscription: subscription.clone(), location: location.clone(), id };
        assert_eq!(Target::parse(&status), Ok(expect));
        let result = path(result_url("http://127.0.0.1:8080", "S1", "East US", id));
        assert_eq!(Target::parse(&result), Ok(Target::OperationResult { subscription, location, id }));
    }
}
