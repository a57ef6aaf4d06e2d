//! Reading JSON with the path in hand, so that every refusal can say where.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use serde_json::Value;

use crate::error::ArmError;

/// Reads a request body. The top must be an object.
pub fn parse_body(bytes: &[u8]) -> Result<Value, ArmError> {
    let value: Value = serde_json::from_slice(bytes).map_err(ArmError::invalid_request_content)?;
    match value {
        Value::Object(_) => Ok(value),
        other => Err(ArmError::invalid_request_content(format!("expected an object, got {}", kind(&other)))),
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    pub value: &'a Value,
    pub path: String,
}

impl<'a> Field<'a> {
    /// The top of a body.
    pub fn top(value: &'a Value) -> Self {
        Self { value, path: String::new() }
    }

    /// A refusal that names this field.
    pub fn refuse(&self, reason: impl fmt::Display) -> ArmError {
        ArmError::invalid_parameter(self.path.as_str(), reason)
    }

    fn expected(&self, what: &str) -> ArmError {
        if self.path.is_empty() {
            return ArmError::invalid_request_content(format!("expected {what}, got {}", show(self.value)));
        }
        self.refuse(format!("expected {what}, got {}", show(self.value)))
    }

    /// The path of a property of this field.
    pub fn below(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }

    /// A property; `null` counts as absent. Refused where this field is not an object.
    pub fn get(&self, name: &str) -> Result<Option<Field<'a>>, ArmError> {
        let object = self.value.as_object().ok_or_else(|| self.expected("an object"))?;
        let value = object.get(name).filter(|value| !value.is_null());
        Ok(value.map(|value| Field { value, path: self.below(name) }))
    }

    /// A property that must be there.
    pub fn need(&self, name: &str) -> Result<Field<'a>, ArmError> {
        self.get(name)?
            .ok_or_else(|| ArmError::invalid_parameter(self.below(name), "this property is required and is missing"))
    }

    /// The members of an object.
    pub fn entries(&self) -> Result<Vec<(&'a str, Field<'a>)>, ArmError> {
        let object = self.value.as_object().ok_or_else(|| self.expected("an object"))?;
        let entry = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), Field { value, path: format!("{}['{key}']", self.path) })
        };
        Ok(object.iter().map(entry).collect())
    }

    /// The elements of an array.
    pub fn elements(&self) -> Result<Vec<Field<'a>>, ArmError> {
        let array = self.value.as_array().ok_or_else(|| self.expected("an array"))?;
        let element = |(index, value)| Field { value, path: format!("{}[{index}]", self.path) };
        Ok(array.iter().enumerate().map(element).collect())
    }

    /// A string.
    pub fn text(&self) -> Result<&'a str, ArmError> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    /// True or false.
    pub fn truth(&self) -> Result<bool, ArmError> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// A string that holds a number or percentage. A bare number is a common slip, so it gets its own words.
    pub fn text_of_number(&self) -> Result<&'a str, ArmError> {
        match self.value {
            Value::Number(number) => {
                Err(self.refuse(format!("expected a JSON string, got the number {number}: write \"{number}\"")))
            }
            _ => self.text(),
        }
    }

    /// A string in the form of a model type.
    pub fn parse<T: FromStr<Err: fmt::Display>>(&self) -> Result<T, ArmError> {
        self.text()?.parse().map_err(|error| self.refuse(error))
    }

    /// A whole number of seconds, 0 to 2147483647.
    pub fn seconds(&self) -> Result<u32, ArmError> {
        self.whole("seconds", 0..=i32::MAX as u32)
    }

    /// A whole number of something, in a range.
    pub fn whole(&self, of: &str, range: RangeInclusive<u32>) -> Result<u32, ArmError> {
        let number = self.value.as_u64().and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.expected(&format!("a whole number of {of} from {} to {}", range.start(), range.end())))
    }

    /// One of these words, with what each stands for. Case matters.
    pub fn one_of<T: Clone>(&self, words: &[(&str, T)]) -> Result<T, ArmError> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.refuse(format!("{} is not allowed: use one of {}", show(self.value), allowed.join(", ")))
        })
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// What was got, short enough for a message.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.chars().take(80).collect::<String>()),
        Value::Bool(_) | Value::Number(_) => format!("{} ({value})", kind(value)),
        other => kind(other).into(),
    }
}
