//! Refusals in ARM's shape: `{"error":{"code","message","target","details"}}` (`arm-api.md` §7).

use std::fmt;

use serde_json::{Map, Value, json};

/// A refusal: an HTTP status and what the body says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmError {
    /// The HTTP status.
    pub status: u16,
    /// A stable word.
    pub code: String,
    /// What is wrong and the way out.
    pub message: String,
    /// The JSON path, parameter or header it is about.
    pub target: Option<String>,
    /// More of the same, where several things are wrong.
    pub details: Vec<ArmError>,
    /// Who refused: `gateway` for what never reached a resource (header `x-ms-failure-cause`).
    pub failure_cause: Option<&'static str>,
}

impl ArmError {
    /// A refusal about nothing in particular.
    pub fn new(status: u16, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            message: message.into(),
            target: None,
            details: Vec::new(),
            failure_cause: None,
        }
    }

    /// The same, about a JSON path, parameter or header.
    #[must_use]
    pub fn at(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    fn by_gateway(mut self) -> Self {
        self.failure_cause = Some("gateway");
        self
    }

    /// A property or parameter is not what it may be.
    pub fn invalid_parameter(target: impl Into<String>, message: impl fmt::Display) -> Self {
        let target = target.into();
        Self::new(400, "InvalidParameter", format!("{target}: {message}")).at(target)
    }

    /// The body is not the JSON that was expected.
    pub fn invalid_request_content(message: impl fmt::Display) -> Self {
        let message = format!("the request body is not valid JSON: {message}");
        Self::new(400, "InvalidRequestContent", message).by_gateway()
    }

    /// A segment of the path is not a name.
    pub fn invalid_resource_name(segment: &str, reason: impl fmt::Display) -> Self {
        Self::new(400, "InvalidResourceName", format!("{segment}: {reason}")).at(segment)
    }

    /// There is no resource of that type and name, such as `Microsoft.ContainerService/fleets/f/members/m`.
    pub fn resource_not_found(type_and_name: &str, resource_group: &str) -> Self {
        let message = format!("The Resource '{type_and_name}' under resource group '{resource_group}' was not found.");
        Self::new(404, "ResourceNotFound", message).by_gateway()
    }

    /// The path leads nowhere.
    pub fn no_such_route(path: &str) -> Self {
        let shown: String = path.chars().take(200).collect();
        let message = format!(
            "'{shown}' is no path of this service; paths begin with /subscriptions/S/resourceGroups/G/providers/Microsoft.ContainerService/fleets"
        );
        Self::new(404, "InvalidResourceType", message).by_gateway()
    }

    /// The path does not take this method.
    pub fn method_not_allowed(method: &str, allowed: &str) -> Self {
        let message = format!("{method} is not possible here: use {allowed}");
        Self::new(405, "MethodNotAllowed", message).by_gateway()
    }

    /// If-Match or If-None-Match does not hold.
    pub fn precondition_failed(header: &str, message: impl Into<String>) -> Self {
        Self::new(412, "PreconditionFailed", message).at(header)
    }

    /// The resource's state does not allow it.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// The body is too long.
    pub fn request_entity_too_large(most_bytes: usize) -> Self {
        let message = format!("the request body is longer than {most_bytes} bytes: split the request");
        Self::new(413, "RequestEntityTooLarge", message).by_gateway()
    }

    /// Who asks is not known.
    pub fn authentication_failed(message: impl Into<String>) -> Self {
        Self::new(401, "AuthenticationFailed", message).by_gateway()
    }

    /// Who asks may not do it.
    pub fn authorization_failed(message: impl Into<String>) -> Self {
        Self::new(403, "AuthorizationFailed", message).by_gateway()
    }

    /// Something broke that the caller cannot mend; the cause stays in the log.
    pub fn internal() -> Self {
        Self::new(500, "InternalServerError", "something went wrong here: try again, and see the server's log")
    }

    /// The server cannot take the request just now.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// The body of the answer.
    pub fn body(&self) -> Value {
        json!({ "error": self.detail() })
    }

    /// The inner object: the shape errors have inside statuses, too.
    pub fn detail(&self) -> Value {
        let mut detail = Map::new();
        detail.insert("code".into(), self.code.clone().into());
        detail.insert("message".into(), self.message.clone().into());
        if let Some(target) = &self.target {
            detail.insert("target".into(), target.clone().into());
        }
        if !self.details.is_empty() {
            detail.insert("details".into(), self.details.iter().map(Self::detail).collect());
        }
        Value::Object(detail)
    }
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {}", self.code, self.message)
    }
}

impl std::error::Error for ArmError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_shape_of_arm_and_leave_out_what_is_not_set() {
        let missing = ArmError::resource_not_found("Microsoft.ContainerService/fleets/f", "rg");
        assert_eq!((missing.status, missing.failure_cause), (404, Some("gateway")));
        let body = json!({"error": {
            "code": "ResourceNotFound",
            "message": "The Resource 'Microsoft.ContainerService/fleets/f' under resource group 'rg' was not found.",
        }});
        assert_eq!(missing.body(), body);
        let mut several = ArmError::conflict("two things").at("properties");
        several.details.push(ArmError::new(409, "One", "first"));
        let body = json!({"error": {
            "code": "Conflict", "message": "two things", "target": "properties",
            "details": [{"code": "One", "message": "first"}],
        }});
        assert_eq!(several.body(), body);
    }
}
