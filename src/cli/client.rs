//! One request to a running service, and its answer for a person or a script.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;

use crate::cli::health::innermost;
use crate::cli::{Failure, say};

/// How long a request may take.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The default of `listen.api`.
const USUAL_URL: &str = "http://127.0.0.1:8080";

/// Where the service is.
#[derive(clap::Args)]
pub(super) struct Service {
    /// The service's base address [default: http://127.0.0.1:8080].
    #[arg(long, value_name = "URL", env = "TIERGATE_URL")]
    pub(super) url: Option<Url>,
}

/// How an answer is printed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// A line for each field, for people.
    Text,
    /// The service's JSON, errors too.
    Json,
}

impl Service {
    /// The address.
    pub(super) fn base(&self) -> &str {
        self.url.as_ref().map_or(USUAL_URL, Url::as_str).trim_end_matches('/')
    }

    /// Sends one request. An error answer is a failure that says what the service said.
    pub(super) fn ask(
        &self,
        output: Output,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
        let (status, text) = runtime.block_on(self.send(method, path, body))?;
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        if status.is_success() && answer.is_object() {
            return Ok(answer);
        }
        let field = |name: &str, otherwise| answer.get(name).and_then(Value::as_str).unwrap_or(otherwise);
        let (error, error_type) = (field("error", "no answer of Tiergate"), field("errorType", "unknown"));
        let mut message = shown(&format!("{} {error_type}: {error}", status.as_u16()));
        if output == Output::Json {
            say(format_args!("{text}"))?;
        } else if let Some(details) = answer.get("details") {
            message.extend(lines(details).map(|line| format!("\n  {line}")));
        }
        Err(Failure::new(message))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, String), Failure> {
        let base = self.base();
        let unreachable = |cause| Failure::new(format!("cannot reach {base}: {}", innermost(&cause)));
        // A redirect would hand the key or the unused signature to whoever it names.
        let client = reqwest::Client::builder()
            .redirect(Policy::none())
            .timeout(TIME_MAX)
            .build()
            .map_err(unreachable)?;
        let mut request = client.request(method, format!("{base}{path}"));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.map_err(unreachable)?;
        Ok((answer.status(), answer.text().await.map_err(unreachable)?))
    }
}

impl Output {
    /// Prints an answer.
    pub(super) fn print(self, answer: &Value) -> Result<(), Failure> {
        match self {
            Self::Json => say(format_args!("{answer}")),
            Self::Text => lines(answer).try_for_each(|line| say(format_args!("{line}"))),
        }
    }
}

/// A line for each field, with the names of nested ones joined by dots.
fn lines(answer: &Value) -> impl Iterator<Item = String> {
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
fn shown(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::lines;

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
