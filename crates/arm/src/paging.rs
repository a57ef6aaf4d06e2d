//! `$top`, `$skipToken`, `$filter` and next links (`arm-api.md` §6).

use serde_json::{Map, Value};

use crate::{error::ArmError, path::Query};

/// Which part of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many at most.
    pub top: u32,
    /// The serial of the last one on the page before.
    pub after: Option<u64>,
}

impl Page {
    /// The most that one page holds.
    pub const MOST: u32 = 1000;
    /// What a page holds unless `$top` says otherwise.
    pub const USUAL: u32 = 100;

    /// Reads `$top` and `$skipToken`.
    pub fn of(query: &Query) -> Result<Self, ArmError> {
        let top = match query.get("$top") {
            None => Self::USUAL,
            Some(text) => number(text).filter(|top| (1..=Self::MOST).contains(top)).ok_or_else(|| {
                let got: String = text.chars().take(40).collect();
                ArmError::invalid_parameter("$top", format!("'{got}' is not a number from 1 to {}", Self::MOST))
            })?,
        };
        let after = match query.get("$skipToken") {
            None => None,
            Some(token) => Some(serial(token).ok_or_else(|| {
                ArmError::invalid_parameter("$skipToken", "not a token of this service: follow nextLink as it is")
            })?),
        };
        Ok(Self { top, after })
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// The token after the resource with a serial. Opaque to clients; the letter leaves room for other kinds.
pub fn skip_token(serial: u64) -> String {
    format!("a{serial:x}")
}

fn serial(token: &str) -> Option<u64> {
    let digits = token.strip_prefix('a')?;
    let canonical = u64::from_str_radix(digits, 16).ok()?;
    (skip_token(canonical) == token).then_some(canonical)
}

/// The URL of the page after the resource with a serial: the request's own, with another token.
pub fn next_link(base: &str, path: &str, query: &Query, serial: u64) -> String {
    format!("{}{path}?{}", base.trim_end_matches('/'), query.with("$skipToken", &skip_token(serial)))
}

/// The body of a list.
pub fn list(value: Vec<Value>, next_link: Option<String>) -> Value {
    let mut body = Map::new();
    body.insert("value".into(), value.into());
    if let Some(link) = next_link {
        body.insert("nextLink".into(), link.into());
    }
    Value::Object(body)
}

/// What `$filter` asks of gates. Absent parts hold for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateFilter {
    /// `Pending`, `Skipped` or `Completed`.
    pub state: Option<&'static str>,
    /// `Approval` or `ScheduledStart`.
    pub gate_type: Option<&'static str>,
}

impl GateFilter {
    /// Reads `$filter`, such as `state eq Pending and gateType eq 'Approval'`.
    pub fn of(query: &Query) -> Result<Self, ArmError> {
        const HELP: &str = "use state eq Pending|Skipped|Completed, gateType eq Approval|ScheduledStart, joined by and";
        let mut filter = Self::default();
        for (property, value) in comparisons(query, HELP)? {
            let (slot, words): (_, &[&str]) = match property.as_str() {
                "state" => (&mut filter.state, &["Pending", "Skipped", "Completed"]),
                "gatetype" => (&mut filter.gate_type, &["Approval", "ScheduledStart"]),
                _ => return Err(ArmError::invalid_parameter("$filter", HELP)),
            };
            let word = words.iter().find(|word| word.eq_ignore_ascii_case(&value)).copied();
            let word = word.ok_or_else(|| ArmError::invalid_parameter("$filter", HELP))?;
            if slot.is_some_and(|earlier| earlier != word) {
                let message = format!("{property} cannot equal two things at once; {HELP}");
                return Err(ArmError::invalid_parameter("$filter", message));
            }
            *slot = Some(word);
        }
        Ok(filter)
    }

    /// Whether a gate is wanted.
    pub fn wants(&self, state: &str, gate_type: &str) -> bool {
        self.state.is_none_or(|wanted| wanted == state) && self.gate_type.is_none_or(|wanted| wanted == gate_type)
    }
}

/// What `$filter` asks of members: the update group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberFilter {
    /// The group wanted; absent: all members.
    pub group: Option<String>,
}

impl MemberFilter {
    /// Reads `$filter`, such as `group eq 'canary'`.
    pub fn of(query: &Query) -> Result<Self, ArmError> {
        const HELP: &str = "use group eq NAME";
        match &comparisons(query, HELP)?[..] {
            [] => Ok(Self::default()),
            [(property, value)] if property == "group" => Ok(Self { group: Some(value.clone()) }),
            _ => Err(ArmError::invalid_parameter("$filter", HELP)),
        }
    }

    /// Whether a member is wanted.
    pub fn wants(&self, member: &flotta_model::Member) -> bool {
        let group = member.group.as_ref().map(flotta_model::Name::as_str);
        self.group.as_deref().is_none_or(|wanted| Some(wanted) == group)
    }
}

/// The comparisons of a filter, as property in lower case and value: `[properties.]name eq value`, joined by `and`.
fn comparisons(query: &Query, help: &str) -> Result<Vec<(String, String)>, ArmError> {
    let Some(text) = query.get("$filter") else { return Ok(Vec::new()) };
    let got: String = text.chars().take(80).collect();
    let refuse = || ArmError::invalid_parameter("$filter", format!("'{got}' is not understood: {help}"));
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .split(|word| word.eq_ignore_ascii_case("and"))
        .map(|comparison| match comparison {
            [property, eq, value] if eq.eq_ignore_ascii_case("eq") => {
                let property = property.to_ascii_lowercase().replace('/', ".");
                let property = property.strip_prefix("properties.").unwrap_or(&property).to_string();
                Ok((property, unquoted(value).ok_or_else(refuse)?.to_string()))
            }
            _ => Err(refuse()),
        })
        .collect()
}

fn unquoted(text: &str) -> Option<&str> {
    let inner = ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    let value = inner.unwrap_or(text);
    (!value.is_empty() && !value.contains(['\'', '"', '(', ')'])).then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(text).expect(text)
    }

    #[test]
    fn api6_pages_have_a_size_and_a_place() {
        assert_eq!(Page::of(&query("")), Ok(Page { top: 100, after: None }));
        let token = skip_token(300);
        assert_eq!(Page::of(&query(&format!("$top=5&$skipToken={token}"))), Ok(Page { top: 5, after: Some(300) }));
        for bad in ["$top=0", "$top=1001", "$top=-1", "$top=+5", "$top=x", "$top="] {
            assert_eq!(Page::of(&query(bad)).expect_err(bad).target.as_deref(), Some("$top"), "{bad}");
        }
        for bad in ["", "300", "a", "a-1", "A12c", "a0012c", "a12C", "afffffffffffffffff"] {
            let error = Page::of(&query(&format!("$skipToken={bad}"))).expect_err(bad);
            assert_eq!((error.status, error.target.as_deref()), (400, Some("$skipToken")), "{bad}");
        }
    }

    #[test]
    fn api6_next_links_repeat_the_request_with_another_token() {
        let first = query("api-version=2026-06-01&%24top=2&$filter=state eq 'Pending'");
        let link = next_link("http://h:1/", "/x", &first, 7);
        let (path, rest) = link.split_once('?').expect("query");
        let next = query(rest);
        assert_eq!(path, "http://h:1/x");
        assert_eq!(Page::of(&next), Ok(Page { top: 2, after: Some(7) }));
        assert_eq!(next.get("$filter"), Some("state eq 'Pending'"));
        let after = next_link("http://h:1", "/x", &next, 9);
        assert_eq!(after.matches("skipToken").count(), 1, "{after}");
        assert_eq!(list(vec![], None), json!({"value": []}), "no nextLink on the last page");
        assert_eq!(list(vec![json!(1)], Some("l".into())), json!({"value": [1], "nextLink": "l"}));
    }

    #[test]
    fn api6_gate_filters_quoted_or_not() {
        let filter = |text: &str| GateFilter::of(&query(&format!("$filter={text}")));
        let pending = GateFilter { state: Some("Pending"), gate_type: None };
        for text in
            ["state eq Pending", "state eq 'Pending'", "properties.state EQ \"pending\"", "properties/state eq Pending"]
        {
            assert_eq!(filter(text), Ok(pending.clone()), "{text}");
        }
        let both = filter("state eq Completed and gateType eq 'Approval'").expect("both");
        assert!(both.wants("Completed", "Approval") && !both.wants("Completed", "ScheduledStart"));
        assert!(!both.wants("Pending", "Approval") && GateFilter::default().wants("Pending", "Approval"));
        for bad in [
            "",
            "state",
            "state ne Pending",
            "state eq Open",
            "name eq x",
            "state eq Pending or state eq Skipped",
            "state eq Pending and",
            "state eq 'Pending",
            "state eq Pending and state eq Skipped",
            "(state eq Pending)",
        ] {
            let error = filter(bad).expect_err(bad);
            assert_eq!((error.status, error.target.as_deref()), (400, Some("$filter")), "{bad}");
        }
    }

    #[test]
    fn api6_member_filters_know_the_group_and_refuse_the_rest() {
        let filter = |text: &str| MemberFilter::of(&query(&format!("$filter={text}")));
        assert_eq!(filter("properties.group eq 'canary'"), Ok(MemberFilter { group: Some("canary".into()) }));
        assert_eq!(MemberFilter::of(&query("")), Ok(MemberFilter::default()));
        let error = filter("startswith(name,'a')").expect_err("not understood");
        assert!(error.message.contains("group eq NAME"), "{error}");
    }
}
