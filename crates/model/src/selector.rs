//! Labels and Kubernetes label selectors in their string form (`behaviour.md` A5, memberSelector; the Kubernetes
//! documentation "Labels and Selectors").
//!
//! The grammar: requirements joined by commas, all of which must hold: `key`, `!key`, `key=value`, `key==value`,
//! `key!=value`, `key in (a,b)`, `key notin (a,b)`. As in Kubernetes, `!=` and `notin` also match where the label is
//! absent, and a value may be empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use crate::serde_as_text;

/// The labels of a member.
pub type Labels = BTreeMap<String, String>;

/// A parsed label selector. It keeps its text, which is what comes back on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    text: Box<str>,
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

/// The text is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a label selector: {reason} (at character {at}); write requirements such as env=prod, tier!=web, zone in (a,b), !legacy"
)]
pub struct SelectorError {
    reason: String,
    at: usize,
}

/// The text is not a label key or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LabelError(String);

impl Selector {
    /// The longest selector, in characters.
    pub const LONGEST: usize = 512;

    /// Whether the labels meet every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            }
        })
    }

    /// The selector as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Checks a label key: an optional DNS prefix and `/`, then 1–63 letters, digits, `-`, `_`, `.`, bounded by letters or
/// digits.
pub fn check_key(key: &str) -> Result<(), LabelError> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let dns = |prefix: &str| {
        (1..=253).contains(&prefix.len())
            && prefix.split('.').all(|part| {
                !part.is_empty()
                    && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                    && !part.starts_with('-')
                    && !part.ends_with('-')
            })
    };
    if prefix.is_none_or(dns) && !name.is_empty() && plain(name) {
        return Ok(());
    }
    Err(LabelError(format!(
        "'{}' is not a label key: use an optional DNS prefix and '/', then 1 to 63 letters, digits, '-', '_' or '.'",
        short(key)
    )))
}

/// Checks a label value: empty, or 1–63 letters, digits, `-`, `_`, `.`, bounded by letters or digits.
pub fn check_value(value: &str) -> Result<(), LabelError> {
    if value.is_empty() || plain(value) {
        return Ok(());
    }
    Err(LabelError(format!(
        "'{}' is not a label value: use up to 63 letters, digits, '-', '_' or '.', with a letter or digit at either end",
        short(value)
    )))
}

fn plain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| inner(*byte))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Equals,
    NotEquals,
    Not,
    Comma,
    Open,
    Close,
}

/// A recursive-descent reader over the tokens of one selector.
struct Reader {
    tokens: Vec<(Token, usize)>,
    next: usize,
    end: usize,
}

impl Reader {
    fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut tokens = Vec::new();
        let mut at = 0;
        while at < chars.len() {
            let start = at;
            let follows = |next: char| chars.get(start + 1) == Some(&next);
            let (token, length) = match chars[at] {
                c if c.is_whitespace() => {
                    at += 1;
                    continue;
                }
                '=' if follows('=') => (Token::Equals, 2),
                '=' => (Token::Equals, 1),
                '!' if follows('=') => (Token::NotEquals, 2),
                '!' => (Token::Not, 1),
                ',' => (Token::Comma, 1),
                '(' => (Token::Open, 1),
                ')' => (Token::Close, 1),
                _ => {
                    let stop = |c: &char| c.is_whitespace() || "=!,()".contains(*c);
                    let word: String = chars[at..].iter().take_while(|c| !stop(c)).collect();
                    let length = word.chars().count();
                    (Token::Word(word), length)
                }
            };
            tokens.push((token, start));
            at = start + length;
        }
        Self { tokens, next: 0, end: chars.len() }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += 1;
        token
    }

    fn error<T>(&self, reason: impl Into<String>) -> Result<T, SelectorError> {
        let at = self.tokens.get(self.next.saturating_sub(1)).map_or(self.end, |(_, at)| *at);
        Err(SelectorError { reason: reason.into(), at: at + 1 })
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = vec![self.requirement()?];
        while let Some(token) = self.take() {
            if token != Token::Comma {
                return self.error("expected a comma between requirements");
            }
            requirements.push(self.requirement()?);
        }
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.peek() == Some(&Token::Not) {
            self.take();
            return Ok(Requirement { key: self.key()?, test: Test::Absent });
        }
        let key = self.key()?;
        let test = match self.peek() {
            None | Some(Token::Comma) => Test::Exists,
            Some(Token::Equals) => {
                self.take();
                Test::In(BTreeSet::from([self.value()?]))
            }
            Some(Token::NotEquals) => {
                self.take();
                Test::NotIn(BTreeSet::from([self.value()?]))
            }
            Some(Token::Word(word)) if word == "in" => {
                self.take();
                Test::In(self.values()?)
            }
            Some(Token::Word(word)) if word == "notin" => {
                self.take();
                Test::NotIn(self.values()?)
            }
            Some(_) => {
                self.take();
                return self.error("expected one of = == != in notin after the key");
            }
        };
        Ok(Requirement { key, test })
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        match self.take() {
            Some(Token::Word(word)) => match check_key(&word) {
                Ok(()) => Ok(word),
                Err(error) => self.error(error.to_string()),
            },
            _ => self.error("expected a label key"),
        }
    }

    /// One value; nothing before a comma or the end is the empty value, as in Kubernetes.
    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            None | Some(Token::Comma | Token::Close) => Ok(String::new()),
            Some(Token::Word(_)) => {
                let Some(Token::Word(word)) = self.take() else { return self.error("expected a label value") };
                match check_value(&word) {
                    Ok(()) => Ok(word),
                    Err(error) => self.error(error.to_string()),
                }
            }
            Some(_) => {
                self.take();
                self.error("expected a label value")
            }
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if self.take() != Some(Token::Open) {
            return self.error("expected ( after in or notin");
        }
        let mut values = BTreeSet::from([self.value()?]);
        loop {
            match self.take() {
                Some(Token::Close) => return Ok(values),
                Some(Token::Comma) => values.insert(self.value()?),
                _ => return self.error("expected , or ) in the list of values"),
            };
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.chars().count() > Self::LONGEST {
            let reason = format!("it is longer than {} characters", Self::LONGEST);
            return Err(SelectorError { reason, at: Self::LONGEST + 1 });
        }
        if text.trim().is_empty() {
            return Err(SelectorError { reason: "it is empty".into(), at: 1 });
        }
        let requirements = Reader::new(text).requirements()?;
        Ok(Self { text: text.into(), requirements })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(Selector);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)], expect: bool) {
        let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let parsed: Selector = selector.parse().expect(selector);
        assert_eq!(parsed.matches(&labels), expect, "{selector} on {labels:?}");
    }

    #[test]
    fn a5_every_operator_of_the_kubernetes_grammar() {
        let prod = [("env", "prod"), ("tier", "web")];
        check("env=prod", &prod, true);
        check("env==prod", &prod, true);
        check("env = prod , tier = web", &prod, true);
        check("env!=prod", &prod, false);
        check("env!=dev", &prod, true);
        check("zone!=a", &prod, true);
        check("env in (prod,dev)", &prod, true);
        check("env in (dev)", &prod, false);
        check("zone in (a)", &prod, false);
        check("env notin (dev, test)", &prod, true);
        check("zone notin (a)", &prod, true);
        check("env", &prod, true);
        check("zone", &prod, false);
        check("!zone", &prod, true);
        check("!env", &prod, false);
        check("env=prod,!zone,tier in (web,api)", &prod, true);
        check("env=", &[("env", "")], true);
        check("env in (,prod)", &[("env", "")], true);
        check("in in (in)", &[("in", "in")], true);
        check("fleet.azure.com/location=westeurope", &[("fleet.azure.com/location", "westeurope")], true);
        check("a=1,a=2", &[("a", "1")], false);
    }

    #[test]
    fn selectors_that_do_not_parse_say_where() {
        for bad in [
            "",
            "  ",
            ",",
            "a,",
            ",a",
            "a=b,,c",
            "=b",
            "a=b=c",
            "a in",
            "a in b",
            "a in (b",
            "a in (b c)",
            "a notin )",
            "!",
            "!!a",
            "a b",
            "a>1",
            "-a",
            "a=b-",
            "a/b/c",
            "A.B_/x",
            "a=(b)",
            "in (a)",
        ] {
            let error = bad.parse::<Selector>().expect_err(bad);
            assert!(error.to_string().contains("at character"), "{error}");
        }
        assert!(format!("a in ({})", "b,".repeat(300)).parse::<Selector>().is_err(), "too long");
    }
}
