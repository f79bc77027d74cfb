//! One request to a running service, and its answer for a person or a script.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Method, Url};
use serde_json::Value;

use crate::cli::{Failure, say};

/// How long a request may take.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Where the service is.
#[derive(clap::Args)]
pub(super) struct Service {
    /// The service's base address, such as http://127.0.0.1:8080.
    #[arg(long, value_name = "URL", env = "TIERGATE_URL")]
    url: Url,
}

impl Service {
    /// Sends one request and prints the body of its answer. An error answer is a failure that says what the service
    /// said.
    pub(super) fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<(), Failure> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
        let (status, text) = runtime.block_on(self.send(method, path, body))?;
        if status.is_success() {
            return say(format_args!("{text}"));
        }
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let error = answer.get("error").and_then(Value::as_str).unwrap_or("no error of this service");
        let error_type = answer.get("errorType").and_then(Value::as_str).unwrap_or("unknown");
        say(format_args!("{text}"))?;
        Err(Failure::new(format!("{} {error_type}: {error}", status.as_u16())))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(reqwest::StatusCode, String), Failure> {
        let base = self.url.as_str().trim_end_matches('/');
        let unreachable = |cause: reqwest::Error| {
            let mut innermost: &dyn std::error::Error = &cause;
            while let Some(inner) = innermost.source() {
                innermost = inner;
            }
            Failure::new(format!("cannot reach {base}: {innermost}"))
        };
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
