//! Answers for a person or a script.

use serde_json::Value;

use crate::cli::{Failure, say};

/// How an answer is printed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// A line for each field, for people.
    Text,
    /// The service's JSON, errors too.
    Json,
}

impl Output {
    pub(super) fn print(self, answer: &Value) -> Result<(), Failure> {
        say(format_args!("{}", self.text(answer)))
    }

    pub(super) fn text(self, answer: &Value) -> String {
        match self {
            Self::Json => answer.to_string(),
            Self::Text => lines(answer).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// A line for each field, with the names of nested ones joined by dots.
pub(super) fn lines(answer: &Value) -> impl Iterator<Item = String> {
    let mut fields = Vec::new();
    flatten("", answer, &mut fields);
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    fields.into_iter().map(move |(name, value)| shown(&format!("{name:width$}  {value}")))
}

fn flatten(name: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    let below = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(all) => all.iter().for_each(|(key, value)| flatten(&below(key), value, fields)),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(at, value)| flatten(&below(&at.to_string()), value, fields));
        }
        Value::String(text) => fields.push((name.to_owned(), text.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) => fields.push((name.to_owned(), value.to_string())),
    }
}

/// Text from elsewhere, some of it from the chain, without what a terminal obeys.
pub(super) fn shown(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// A word of a command line for a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An object with one more field, if that has a value.
pub(super) fn with(mut body: Value, name: &str, value: Option<impl Into<Value>>) -> Value {
    if let (Some(fields), Some(value)) = (body.as_object_mut(), value) {
        fields.insert(name.to_owned(), value.into());
    }
    body
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::lines;

    // threat: Keys in paths, and forged lines, in the log
    #[test]
    fn every_field_is_a_line_and_no_text_from_the_chain_reaches_the_terminal_as_a_command() {
        let answer = json!({
            "agentId": "4",
            "metadataURI": "a\u{1b}[2J\nb\u{9b}",
            "organizations": [{ "name": "Guild" }],
            "validation": { "latestPassed": null },
        });
        let expected = [
            "agentId                  4",
            "metadataURI              a\u{fffd}[2J\u{fffd}b\u{fffd}",
            "organizations.0.name     Guild",
            "validation.latestPassed  null",
        ];
        assert_eq!(lines(&answer).collect::<Vec<_>>(), expected);
    }
}
