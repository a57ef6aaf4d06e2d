//! If-Match and If-None-Match (`arm-api.md` §5; RFC 9110 §13).

use crate::error::ArmError;

/// Etags in one header at most.
const MOST_TAGS: usize = 64;

/// What a request demands of the resource it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    Any,
    These(Vec<String>),
}

impl Conditions {
    /// Reads the two headers. Empty ones count as absent.
    pub fn parse(if_match: Option<&str>, if_none_match: Option<&str>) -> Result<Self, ArmError> {
        Ok(Self { if_match: tags("If-Match", if_match)?, if_none_match: tags("If-None-Match", if_none_match)? })
    }

    /// Whether the request may go on, given the etag of the resource, or `None` where there is none.
    pub fn check(&self, current: Option<&str>) -> Result<(), ArmError> {
        let current = current.map(bare);
        if let Some(tags) = &self.if_match
            && !tags.hold(current)
        {
            return Err(ArmError::precondition_failed("If-Match", if_match_message(tags, current)));
        }
        if let Some(tags) = &self.if_none_match
            && tags.hold(current)
        {
            let message = match tags {
                Tags::Any => "the resource exists already, and If-None-Match: * asks that it does not",
                Tags::These(_) => "the resource still has an etag that If-None-Match excludes",
            };
            return Err(ArmError::precondition_failed("If-None-Match", message));
        }
        Ok(())
    }
}

fn if_match_message(tags: &Tags, current: Option<&str>) -> String {
    match (tags, current) {
        (_, None) => "the resource does not exist, and If-Match asks that it does".into(),
        (_, Some(current)) => {
            format!(
                "the resource was changed since: its etag is \"{current}\" now; read it again, then repeat the change"
            )
        }
    }
}

impl Tags {
    fn hold(&self, current: Option<&str>) -> bool {
        match (self, current) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::These(tags), Some(current)) => tags.iter().any(|tag| tag == current),
        }
    }
}

fn tags(header: &str, value: Option<&str>) -> Result<Option<Tags>, ArmError> {
    let Some(value) = value.map(str::trim).filter(|value| !value.is_empty()) else { return Ok(None) };
    if bare(value) == "*" {
        return Ok(Some(Tags::Any));
    }
    let tags: Vec<String> = value.split(',').map(|tag| bare(tag).to_string()).filter(|tag| !tag.is_empty()).collect();
    if tags.is_empty() || tags.len() > MOST_TAGS {
        let message = format!("{header}: use *, or 1 to {MOST_TAGS} etags as the eTag of an answer has them");
        return Err(ArmError::new(400, "InvalidHeaderValue", message).at(header));
    }
    Ok(Some(Tags::These(tags)))
}

/// An etag without weakness and quotes, however many layers of them a client put around it.
fn bare(tag: &str) -> &str {
    let tag = tag.trim();
    let tag = tag.strip_prefix("W/").unwrap_or(tag);
    tag.trim_matches(|c| c == '"' || c == '\\')
}

/// An etag as the body member `eTag` has it: the quotes are part of the value.
pub fn body_etag(etag: &str) -> String {
    format!("\"{}\"", bare(etag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api5_conditions_decide_by_the_current_etag() {
        let cases = [
            (None, None, None, true),
            (None, None, Some("a"), true),
            (Some(""), Some(" "), Some("a"), true),
            (Some("*"), None, Some("a"), true),
            (Some("*"), None, None, false),
            (Some("\"a\""), None, Some("a"), true),
            (Some("a"), None, Some("a"), true),
            (Some("\"\\\"a\\\"\""), None, Some("a"), true),
            (Some("\"a\""), None, Some("\"a\""), true),
            (Some("W/\"a\""), None, Some("a"), true),
            (Some("\"b\", \"a\""), None, Some("a"), true),
            (Some("\"b\", \"c\""), None, Some("a"), false),
            (Some("\"a\""), None, None, false),
            (None, Some("*"), None, true),
            (None, Some("*"), Some("a"), false),
            (None, Some("\"a\""), Some("a"), false),
            (None, Some("\"b\""), Some("a"), true),
            (None, Some("\"b\""), None, true),
        ];
        for (if_match, if_none_match, current, proceeds) in cases {
            let conditions = Conditions::parse(if_match, if_none_match).expect("headers");
            let outcome = conditions.check(current);
            assert_eq!(outcome.is_ok(), proceeds, "{if_match:?} {if_none_match:?} {current:?}");
            if let Err(error) = outcome {
                assert_eq!((error.status, error.code.as_str()), (412, "PreconditionFailed"));
            }
        }
    }

    #[test]
    fn api5_headers_without_an_etag_in_them_are_refused() {
        assert_eq!(Conditions::parse(Some("\"\""), None).expect_err("empty").status, 400);
        assert_eq!(Conditions::parse(None, Some(&"a,".repeat(65))).expect_err("many").status, 400);
        assert_eq!(body_etag("x"), "\"x\"");
        assert_eq!(body_etag("\"x\""), "\"x\"");
    }
}
