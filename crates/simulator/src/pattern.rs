//! Placeholders in the texts of a template: `{n}`, `{n:03}`, `{n%50}`, `{n/20:02}` and `{a|b|c}`.

use serde_json::Value;

/// Fills every text of a template for its nth cluster.
pub(crate) fn fill(template: &Value, n: u32) -> Result<Value, String> {
    Ok(match template {
        Value::String(text) => Value::String(fill_text(text, n)?),
        Value::Array(items) => Value::Array(items.iter().map(|item| fill(item, n)).collect::<Result<_, _>>()?),
        Value::Object(fields) => {
            let filled = fields.iter().map(|(key, value)| Ok((key.clone(), fill(value, n)?)));
            Value::Object(filled.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

fn fill_text(text: &str, n: u32) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let length = rest[open..].find('}').ok_or_else(|| format!("'{text}' lacks a closing brace"))?;
        filled.push_str(&rest[..open]);
        filled.push_str(&placeholder(&rest[open + 1..open + length], n)?);
        rest = &rest[open + length + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

fn placeholder(inner: &str, n: u32) -> Result<String, String> {
    if inner.contains('|') {
        let choices: Vec<&str> = inner.split('|').collect();
        return Ok(choices[(n as usize - 1) % choices.len()].to_owned());
    }
    let refuse =
        || format!("'{{{inner}}}' is not a placeholder: use {{n}}, {{n:03}}, {{n%50}}, {{n/20:02}} or {{a|b|c}}");
    let (number, width) = match inner.split_once(':') {
        Some((number, width)) => (number, width.parse::<usize>().ok().filter(|width| *width <= 9).ok_or_else(refuse)?),
        None => (inner, 0),
    };
    let by = |text: &str| text.parse::<u32>().ok().filter(|by| *by > 0).ok_or_else(refuse);
    let number = match number.strip_prefix('n').ok_or_else(refuse)? {
        "" => n,
        rest if rest.starts_with('%') => (n - 1) % by(&rest[1..])? + 1,
        rest if rest.starts_with('/') => (n - 1) / by(&rest[1..])? + 1,
        _ => return Err(refuse()),
    };
    Ok(format!("{number:0width$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_count_pad_cycle_and_group() {
        let cases = [
            ("c-{n}", 7, "c-7"),
            ("c-{n:03}", 7, "c-007"),
            ("g{n%50:02}", 51, "g01"),
            ("g{n/20}", 21, "g2"),
            ("{a|b|c}", 5, "b"),
            ("{x|y}-{n}", 2, "y-2"),
            ("plain", 1, "plain"),
        ];
        for (text, n, expect) in cases {
            assert_eq!(fill_text(text, n).as_deref(), Ok(expect), "{text}");
        }
        for bad in ["{", "{m}", "{n%0}", "{n:x}", "{}", "{n+1}"] {
            assert!(fill_text(bad, 1).is_err(), "{bad}");
        }
    }
}
