//! What an error of AKS or of Resource Manager means (`behaviour.md` D4; `aks-wire.md` §8).
//!
//! Bodies come in two shapes: `{"error": {"code", "message"}}` from Resource Manager, and flat
//! `{"code", "message", "subcode"}` from AKS itself. One code can have two meanings, told apart by the message.

use std::time::Duration;

use bytes::Bytes;
use flotta_model::Hold;
use http::{HeaderMap, Response, StatusCode};
use serde_json::Value;

use super::{call::retry, hints::fault_in};
use crate::Trouble;

/// The longest part of the provider's message that is passed on with something passing, in characters.
const LONGEST_MESSAGE: usize = 1600;

/// Codes that mean the same whatever the status and the message: the provider has looked, and it will not work. Some
/// come with 409, which else tells that something is in the way.
const PERMANENT: [&str; 13] = [
    "AllocationFailed",
    "InsufficientSubnetSize",
    "ErrCode_InsufficientVCPUQuota",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
    "PodDrainFailure",
    "QuotaExceeded",
    "RequestDisallowedByPolicy",
    "SKUNotAvailable",
    "ScopeLocked",
    "SubnetIsFull",
    "UnsatisfiablePDB",
    "ZonalAllocationFailed",
];

/// The longest pause that is believed.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// An answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub code: String,
    pub message: String,
    /// The pause asked for, by header or in the text; domain time, as all pauses of a provider are.
    pub after: Option<Duration>,
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Passing.
    Passing,
    /// Passing: too many calls.
    Throttled,
    /// What was sent rests on something that has changed.
    Stale,
    /// Something else is going on on the cluster: the provider's word for it.
    Busy(String),
    /// The cluster is switched off.
    Stopped,
    /// The credentials are not enough.
    Credentials,
    /// There is no such cluster or pool.
    Absent,
    /// The region does not know the version; it may come.
    VersionNotInRegion,
    /// The region does not have the image.
    ImageNotInRegion,
    /// It will never work like this.
    Permanent,
}

impl Answer {
    /// Reads an answer in either shape, or in none.
    pub fn read(answer: &Response<Bytes>) -> Self {
        let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        let error = if body["error"].is_object() { &body["error"] } else { &body };
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let (mut code, mut message) = (text("code"), text("message"));
        if code.is_empty() {
            code = format!("HttpStatus{}", answer.status().as_u16());
        }
        if message.is_empty() {
            message = String::from_utf8_lossy(answer.body()).chars().take(300).collect();
        }
        let after = pause(answer.headers()).or_else(|| pause_in_text(&message)).map(|pause| pause.min(LONGEST_PAUSE));
        Self { status: answer.status(), code, message, after }
    }

    /// The answer as people see it.
    pub fn text(&self) -> String {
        let message: String = self.message.chars().take(LONGEST_MESSAGE).collect();
        format!("{} ({}) {message}", self.status.as_u16(), self.code)
    }

    /// What it means.
    pub fn meaning(&self) -> Meaning {
        let says = |part: &str| contains(&self.message, part);
        match self.code.as_str() {
            "EtagMismatch" => return Meaning::Stale,
            code if preempted(code) => return Meaning::Stale,
            "K8sVersionNotSupported" if says("long-term support") || says("(LTS)") => return Meaning::Permanent,
            "K8sVersionNotSupported" | "AgentPoolK8sVersionNotSupported" => return Meaning::VersionNotInRegion,
            "NodeImageVersionNotAvailable" => return Meaning::ImageNotInRegion,
            "OperationNotAllowed" if says("available upgrades") || says("upgrading kubernetes version") => {
                return Meaning::Permanent;
            }
            _ => {}
        }
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => Meaning::Throttled,
            StatusCode::REQUEST_TIMEOUT => Meaning::Passing,
            status if status.is_server_error() => Meaning::Passing,
            _ if PERMANENT.iter().any(|code| self.code.eq_ignore_ascii_case(code)) => Meaning::Permanent,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Meaning::Credentials,
            StatusCode::NOT_FOUND | StatusCode::GONE => Meaning::Absent,
            StatusCode::PRECONDITION_FAILED => Meaning::Stale,
            _ if says("is in progress") || says("aks-pending-operation") => Meaning::Busy(self.operation()),
            StatusCode::CONFLICT | StatusCode::BAD_REQUEST
                if says("cluster is stopped") || says("in stopped state") || says("power state") =>
            {
                Meaning::Stopped
            }
            StatusCode::CONFLICT if self.code != "OperationNotAllowed" => Meaning::Busy(self.code.clone()),
            StatusCode::BAD_REQUEST if says("a new agent pool was introduced") => Meaning::Stale,
            _ => Meaning::Permanent,
        }
    }

    /// The same, as trouble. A version that the region lacks is permanent here: who can look into the catalogue knows
    /// better.
    pub fn trouble(&self) -> Trouble {
        self.trouble_in(None)
    }

    /// The same, of a request that was about a pool.
    pub fn trouble_in(&self, pool: Option<&str>) -> Trouble {
        match self.meaning() {
            Meaning::Throttled => Trouble::Retry { detail: self.text(), after: self.after, lasting: Hold::Throttled },
            Meaning::Passing | Meaning::Stale => retry(self.text(), self.after),
            Meaning::Busy(word) => Trouble::Wait(Hold::OtherOperation(word)),
            Meaning::Stopped => Trouble::Wait(Hold::ClusterStopped),
            Meaning::Credentials => Trouble::Wait(Hold::CredentialsRefused(self.text())),
            Meaning::Absent => Trouble::Wait(Hold::Unreachable(self.text())),
            Meaning::VersionNotInRegion | Meaning::ImageNotInRegion | Meaning::Permanent => {
                Trouble::Permanent(fault_in(pool, &self.code, &self.message))
            }
        }
    }

    /// What is going on, out of "Another operation (nodepool1 - Updating) is in progress".
    fn operation(&self) -> String {
        let inside = self.message.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        match inside {
            Some((word, _)) if word.len() <= 100 => word.to_owned(),
            _ => self.code.clone(),
        }
    }
}

/// Whether a code says that another operation took the place of this one.
pub(super) fn preempted(code: &str) -> bool {
    code.starts_with("AKSOperationPreempted") || code == "NotLatestOperation"
}

/// `x-ms-retry-after-ms`, or `Retry-After` in seconds. Zero counts as absent, as it does for Azure's own clients.
pub(super) fn pause(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok().filter(|number| *number > 0);
    number("x-ms-retry-after-ms").map(Duration::from_millis).or_else(|| number("retry-after").map(Duration::from_secs))
}

/// "please retry again in 36 seconds", "Retry after 2 seconds": some waits are only told to people.
fn pause_in_text(message: &str) -> Option<Duration> {
    let lower = message.to_ascii_lowercase();
    let (_, rest) = lower.split_once("retry")?;
    let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).take(6).peekable();
    while let Some(word) = words.next() {
        if let (Ok(seconds), Some(unit)) = (word.parse::<u64>(), words.peek())
            && unit.starts_with("second")
        {
            return Some(Duration::from_secs(seconds));
        }
    }
    None
}

/// Whether a text holds another, without regard to case.
pub(super) fn contains(text: &str, part: &str) -> bool {
    text.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, body: &Value) -> Answer {
        Answer::read(&Response::builder().status(status).body(Bytes::from(body.to_string())).expect("answer"))
    }

    /// Both shapes must mean the same.
    fn check(status: u16, code: &str, message: &str, expected: Meaning) {
        for body in [
            json!({"code": code, "message": message, "details": null, "subcode": ""}),
            json!({"error": {"code": code, "message": message}}),
        ] {
            assert_eq!(answer(status, &body).meaning(), expected, "{status} {code} {message}");
        }
    }

    #[test]
    fn d4_e03_e59_e66_each_row_of_the_table_is_sorted() {
        use Meaning::*;
        let busy = |word: &str| Busy(word.to_owned());
        let pending = "Another operation (Updating) is in progress, see https://aka.ms/aks-pending-operation";
        let skip = "Upgrading Kubernetes version 1.28.12 to 1.30.2 is not allowed. Available upgrades: [1.29.7].";
        let lts = "The cluster is on version 1.29.1, which is only available for Long-Term Support (LTS).";
        check(409, "OperationNotAllowed", pending, busy("Updating"));
        check(
            400,
            "OperationNotAllowed",
            "Another agentpool operation (np1 - Creating) is in progress",
            busy("np1 - Creating"),
        );
        check(409, "OperationNotAllowed", skip, Permanent);
        check(409, "OperationNotAllowed", "The operation is not allowed since the cluster is stopped.", Stopped);
        check(409, "OperationNotAllowed", "for a reason nobody knows", Permanent);
        for word in ["agentpool operation (np1 - Creating)", "operation (np1 - Updating)", "operation (Upgrading)"] {
            let inside = word.split_once('(').expect("word").1.trim_end_matches(')');
            check(409, "OperationNotAllowed", &format!("Another {word} is in progress, please wait."), busy(inside));
        }
        check(409, "Conflict", "for a reason nobody knows", busy("Conflict"));
        check(409, "ScopeLocked", "the scope is locked", Permanent);
        check(
            400,
            "AgentPoolK8sVersionNotSupported",
            "Version 1.33.9 is not supported in this region.",
            VersionNotInRegion,
        );
        check(400, "K8sVersionNotSupported", "Managed cluster c has invalid version 1.99.0.", VersionNotInRegion);
        check(400, "NodeImageVersionNotAvailable", "m", ImageNotInRegion);
        check(400, "PropertyChangeNotAllowed", "Changing property 'properties.nodeImageVersion'", Permanent);
        check(400, "K8sVersionNotSupported", lts, Permanent);
        check(400, "BadRequest", "you can only upgrade one minor version at a time", Permanent);
        check(400, "BadRequest", "A new agent pool was introduced. Adding pools is not allowed", Stale);
        for code in [
            "NodePoolMcVersionIncompatible",
            "NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged",
            "ValidationError",
            "UpgradeBlockedOnDeprecatedAPIUsage",
            "UnsatisfiablePDB",
            "PodDrainFailure",
            "QuotaExceeded",
            "SubnetIsFull",
            "SKUNotAvailable",
            "AllocationFailed",
            "ReconcileVMSSAgentPoolFailed",
        ] {
            check(400, code, "m", Permanent);
        }
        // Capacity is refused with 409 as well, which does not mean that something is in the way.
        for code in PERMANENT {
            check(409, code, "m", Permanent);
            check(500, code, "m", Passing);
        }
        check(409, "SkuNotAvailable", "m", Permanent);
        check(409, "OperationNotAllowed", "it results in exceeding approved Total Regional Cores quota", Permanent);
        check(403, "RequestDisallowedByPolicy", "m", Permanent);
        check(403, "AuthorizationFailed", "m", Credentials);
        check(401, "InvalidAuthenticationToken", "m", Credentials);
        check(404, "ResourceNotFound", "m", Absent);
        check(409, "AKSOperationPreempted", "m", Stale);
        check(409, "AKSOperationPreemptedByDelete", "m", Stale);
        check(409, "EtagMismatch", "Another operation is in progress.", Stale);
        check(412, "PreconditionFailed", "m", Stale);
        check(429, "Throttled", "m", Throttled);
        check(429, "TooManyRequests", "m", Throttled);
        check(500, "InternalOperationError", "m", Passing);
        check(504, "GatewayTimeout", "m", Passing);
    }

    #[test]
    fn d4_a_pause_is_read_from_headers_or_from_the_text() {
        let text = |message: &str| {
            answer(429, &json!({"code": "Throttled", "message": message})).after.map(|after| after.as_secs())
        };
        assert_eq!(text("the limit has been exceeded for agentpool x, please retry again in 36 seconds"), Some(36));
        assert_eq!(text("Request is temporarily throttled. Retry after 2 seconds."), Some(2));
        assert_eq!(text("please retry later"), None);
        assert_eq!(text("please retry again in 99999999 seconds"), Some(3600), "no pause is longer than an hour");
        let header = |name: &str, value: &str| {
            let answer =
                Response::builder().status(429).header(name, value).body(Bytes::from_static(b"<html>slow down</html>"));
            Answer::read(&answer.expect("answer"))
        };
        assert_eq!(header("Retry-After", "7").after, Some(Duration::from_secs(7)));
        assert_eq!(header("x-ms-retry-after-ms", "1500").after, Some(Duration::from_millis(1500)));
        assert_eq!(header("Retry-After", "0").after, None);
        let html = header("Retry-After", "soon");
        assert_eq!(
            (html.code.as_str(), html.message.as_str(), html.after),
            ("HttpStatus429", "<html>slow down</html>", None)
        );
    }
}
