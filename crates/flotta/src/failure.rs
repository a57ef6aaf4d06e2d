//! What went wrong, for the person at the terminal: one block that says what failed, why, where, and the way out.

use std::fmt;

use owo_colors::OwoColorize;

use crate::output::clean;

/// Something that failed, with what helps to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who is to blame; the exit code comes from it.
    pub kind: Kind,
    /// What was being done, such as `cannot create run 'up'`.
    pub what: Box<str>,
    /// Why it did not work.
    pub cause: Box<str>,
    /// The field at fault, as a path.
    pub field: Option<Box<str>>,
    /// Further causes.
    pub details: Box<[Box<str>]>,
    /// The way out.
    pub hint: Option<Box<str>>,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The thing itself failed.
    Failed,
    /// The command line, or a file, is wrong.
    Usage,
    /// The server said no.
    Refused,
    /// Nobody answers.
    Unreachable,
    /// Nothing failed, but somebody should know.
    Warned,
}

impl Kind {
    /// The exit code of the process.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unreachable => 4,
            Self::Warned => 5,
        }
    }
}

impl Failure {
    /// A failure without details.
    pub fn new(kind: Kind, what: impl Into<Box<str>>, cause: impl Into<Box<str>>) -> Self {
        let (what, cause) = (what.into(), cause.into());
        Self { kind, what, cause, field: None, details: Box::default(), hint: None }
    }

    /// The same, with a way out.
    pub fn hint(self, hint: impl Into<Box<str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Plain with `{}`, coloured with `{:#}`.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coloured = f.alternate();
        let label = match (self.kind, coloured) {
            (Kind::Warned, false) => "warning:".to_owned(),
            (Kind::Warned, true) => "warning:".bold().yellow().to_string(),
            (_, false) => "error:".to_owned(),
            (_, true) => "error:".bold().red().to_string(),
        };
        let aside = |text: &str| match coloured {
            true => text.cyan().to_string(),
            false => text.to_owned(),
        };
        write!(f, "{} {}\n  {}", label, clean(&self.what), clean(&self.cause))?;
        // Many a server says it in its message, too.
        if let Some(field) = self.field.as_ref().filter(|field| !self.cause.contains(&***field)) {
            write!(f, "\n  {} {}", aside("field:"), clean(field))?;
        }
        for detail in self.details.iter() {
            write!(f, "\n  - {}", clean(detail))?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  {} {}", aside("hint:"), clean(hint)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_block_with_cause_field_and_way_out() {
        let failure = Failure {
            field: Some("properties.strategy.stages[0].name".into()),
            details: ["(Second) also\u{1b}[31m this".into()].into(),
            ..Failure::new(Kind::Refused, "cannot create run 'up'", "(InvalidParameter) 'A' is not a valid name")
                .hint("use lower-case letters")
        };
        insta::assert_snapshot!(failure, @r"
        error: cannot create run 'up'
          (InvalidParameter) 'A' is not a valid name
          field: properties.strategy.stages[0].name
          - (Second) also�[31m this
          hint: use lower-case letters
        ");
        assert!(format!("{failure:#}").contains("\u{1b}["), "the coloured form has colours");
    }

    #[test]
    fn a_field_that_the_cause_names_is_not_told_twice() {
        let failure = Failure { field: Some("a.b".into()), ..Failure::new(Kind::Refused, "no", "a.b: is wrong") };
        assert_eq!(failure.to_string(), "error: no\n  a.b: is wrong");
    }

    #[test]
    fn each_kind_has_its_exit_code() {
        let codes = [Kind::Failed, Kind::Usage, Kind::Refused, Kind::Unreachable, Kind::Warned].map(Kind::exit_code);
        assert_eq!(codes, [1, 2, 3, 4, 5]);
        assert!(Failure::new(Kind::Warned, "mind", "this").to_string().starts_with("warning: mind"));
    }
}
