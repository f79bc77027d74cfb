//! One request to a running service.

use std::io::{self, IsTerminal as _};
use std::{net::IpAddr, path::PathBuf, pin::pin, time::Duration};

use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, Method, StatusCode, Url};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::cli::output::{Output, lines, shown};
use crate::cli::{Failure, complain};
use crate::files::{self, PEM_BYTES_MAX};
use crate::tls::pem::handshake_failure;

/// How long a request may take.
pub(super) const TIME_MAX: Duration = Duration::from_secs(30);

/// After how long a terminal shows what the program waits for.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The default of `listen.api`.
const USUAL_URL: &str = "http://127.0.0.1:8080";

/// The flag for the service's address.
#[derive(clap::Args)]
#[command(next_help_heading = "Service")]
pub(super) struct Service {
    /// The service's base address [default: http://127.0.0.1:8080].
    #[arg(long, value_name = "URL", env = "TIERGATE_URL", value_parser = address)]
    pub(super) url: Option<Url>,
    /// Send keys and signatures by plain http to this host too, and not to this machine alone.
    #[arg(long, value_name = "HOST", env = "TIERGATE_ALLOW_HTTP")]
    allow_http: Option<String>,
    /// File with the authorities (PEM) that are believed about the service's certificate, and no others.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Service {
    pub(super) fn base(&self) -> &str {
        self.url.as_ref().map_or(USUAL_URL, Url::as_str).trim_end_matches('/')
    }

    fn client(&self) -> Result<ClientBuilder, Failure> {
        // A request that waits for its connection is known not to be sent.
        let client = ClientBuilder::new().connect_timeout(TIME_MAX / 2).timeout(TIME_MAX);
        let client = if self.is_own_machine() { client.no_proxy() } else { client };
        let Some(ca) = &self.ca else { return Ok(client) };
        let unusable = |why: &str| Failure::unusable(format!("{} {why}", ca.display()));
        let pem = files::bytes(ca, PEM_BYTES_MAX).map_err(|why| unusable(&why))?;
        match Certificate::from_pem_bundle(&pem) {
            Ok(authorities) if !authorities.is_empty() => Ok(client.tls_certs_only(authorities)),
            Ok(_) | Err(_) => Err(unusable("holds no certificate (PEM)")),
        }
    }

    fn is_own_machine(&self) -> bool {
        let host = self.url.as_ref().map_or(Some("localhost"), Url::host_str).unwrap_or_default();
        let ip = host.trim_matches(['[', ']']).parse().map(|ip: IpAddr| ip.to_canonical());
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }

    /// Refuses to show a key or a signature to everybody on the way, and an address with a login: answers and errors quote it.
    fn check_way(&self, has_credential: bool) -> Result<(), Failure> {
        if self.url.as_ref().is_some_and(|url| !url.username().is_empty() || url.password().is_some()) {
            return Err(Failure::unusable("--url: write the address without a login"));
        }
        let url = self.url.as_ref().filter(|url| has_credential && url.scheme() == "http");
        let Some(url) = url else { return Ok(()) };
        let host = url.host_str().unwrap_or_default();
        let bare = |host: &str| host.trim_matches(['[', ']']).to_ascii_lowercase();
        if self.is_own_machine() || self.allow_http.as_deref().is_some_and(|it| bare(it) == bare(host)) {
            return Ok(());
        }
        let ways = format!("use https, or allow it with --allow-http {host}");
        Err(Failure::unusable(format!("others could read keys and signatures on the way to {url}: {ways}")))
    }

    /// Sends one request; each body holds a credential. An error answer is a failure that says what the service said, and if
    /// a key may have been changed.
    pub(super) fn ask(
        &self,
        output: Output,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        self.check_way(body.is_some())?;
        let (client, base) = (self.client()?, self.base());
        let changes_key = method != Method::GET && path.starts_with("/keys");
        let told = if method == Method::DELETE { "success" } else { "apiKey" };
        let failed = |message: String, answer: Option<Value>, error_type, is_unsure| {
            let answer = answer.unwrap_or_else(|| json!({ "error": message, "errorType": error_type }));
            let told = if output == Output::Json { output.print(&answer) } else { Ok(()) };
            let failure = Failure::new(message);
            told.err().unwrap_or(if changes_key && is_unsure { failure.with_key_unsure() } else { failure })
        };
        let answer = exchange(client, method, &format!("{base}{path}"), body);
        let (status, text) = answer.map_err(|(cause, was_sent)| {
            let trouble = if was_sent { "no answer from" } else { "cannot reach" };
            failed(format!("{trouble} {base}: {cause}"), None, "NO_ANSWER", was_sent)
        })?;
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let is_told = answer.get(told).is_some_and(|told| *told == true || told.as_str() > Some(""));
        if status.is_success() && answer.is_object() && (is_told || !changes_key) {
            return Ok(answer);
        }
        let field = |name: &str, otherwise| answer.get(name).and_then(Value::as_str).unwrap_or(otherwise);
        let (error, error_type) = (field("error", "no answer of Tiergate"), field("errorType", "unknown"));
        let mut message = shown(&format!("{} {error_type}: {error}", status.as_u16()));
        if let Some(details) = answer.get("details") {
            message.extend(lines(details).map(|line| format!("\n  {line}")));
        }
        // These two say that nothing was changed; a server in front of the service may say anything else.
        let is_unchanged = matches!(error_type, "RPC_ERROR" | "OVERLOADED");
        let is_unsure = status.is_success() || (status.is_server_error() && !is_unchanged);
        let ours = answer.get("errorType").map(|_| answer.clone());
        Err(failed(message, ours, "UNEXPECTED_ANSWER", is_unsure))
    }
}

/// An address with its scheme.
pub(super) fn address(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or("write all of it, such as https://keys.example or http://127.0.0.1:8080")
}

/// Sends one request and reads the answer. Error: the cause, and true if the service may have got the request.
pub(super) fn exchange(
    client: ClientBuilder,
    method: Method,
    url: &str,
    body: Option<Value>,
) -> Result<(StatusCode, String), (String, bool)> {
    let exchange = async {
        // A redirect would hand the key or the unused signature to another server.
        let mut request = client.redirect(Policy::none()).build()?.request(method, url);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await?;
        Ok((answer.status(), answer.text().await?))
    };
    let answer = wait_for(url, exchange).map_err(|cause| (cause.to_string(), false))?;
    answer.map_err(|cause: reqwest::Error| {
        let was_sent = !(cause.is_connect() || cause.is_builder());
        let mut innermost: &(dyn std::error::Error + 'static) = &cause;
        while let Some(inner) = innermost.source() {
            innermost = inner;
        }
        // The library's own text names its types.
        (handshake_failure(innermost).map_or_else(|| innermost.to_string(), str::to_owned), was_sent)
    })
}

/// Runs a task to its end. A terminal shows what it waits for when that takes long.
pub(super) fn wait_for<T>(what: &str, task: impl Future<Output = T>) -> io::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let mut task = pin!(task);
        if let Ok(done) = timeout(SILENCE_MAX, &mut task).await {
            return done;
        }
        if io::stderr().is_terminal() {
            complain(format_args!("waiting for {what}"));
        }
        task.await
    });
    // A name may still be looked up, for longer than anybody waits.
    runtime.shutdown_background();
    Ok(done)
}
