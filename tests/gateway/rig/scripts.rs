//! How an upstream answers: orderly, slowly, or not as it should.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::{io, time::Duration};

use serde_json::json;

use crate::rig::upstream::{Exchange, Script, Then, lock};

/// How long an upstream waits for its cue.
const CUE_WITHIN: Duration = Duration::from_secs(240);

/// Turns a closure into a script.
pub(crate) fn script(run: impl Fn(&mut Exchange) -> io::Result<Then> + Send + Sync + 'static) -> Script {
    Arc::new(run)
}

/// Reads the whole request and answers with its target and the length of its body.
pub(crate) fn echo() -> Script {
    script(|exchange| {
        exchange.read_body()?;
        let seen = &exchange.seen;
        let body = json!({ "target": seen.target, "bodyBytes": seen.body_bytes }).to_string();
        exchange.write(&answer("200 OK", &[("Content-Type", "application/json")], body.as_bytes()))?;
        Ok(Then::Goes)
    })
}

/// Reads the whole request and answers with exactly these bytes.
pub(crate) fn bytes(bytes: impl Into<Vec<u8>>, then: Then) -> Script {
    let bytes = bytes.into();
    script(move |exchange| {
        exchange.read_body()?;
        exchange.write(&bytes)?;
        Ok(then)
    })
}

/// Answers with exactly these bytes as soon as the head is there; the body is read afterwards.
pub(crate) fn early(bytes: impl Into<Vec<u8>>) -> Script {
    let bytes = bytes.into();
    script(move |exchange| {
        exchange.write(&bytes)?;
        exchange.read_body()?;
        Ok(Then::Goes)
    })
}

/// Answers with these bytes, and then with nothing more until the other side closes.
pub(crate) fn hang(bytes: impl Into<Vec<u8>>) -> Script {
    let bytes = bytes.into();
    script(move |exchange| {
        exchange.read_body()?;
        exchange.write(&bytes)?;
        exchange.until_closed();
        Ok(Then::Closes)
    })
}

/// Reads the whole request and closes without a word, so often; then answers.
pub(crate) fn closes_first(times: usize) -> Script {
    let left = AtomicUsize::new(times);
    script(move |exchange| {
        let is_over =
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err();
        if is_over { echo()(exchange) } else { exchange.read_body().map(|()| Then::Closes) }
    })
}

/// Sends chunks one by one, each but the first when its cue comes.
pub(crate) fn chunks_on_cue(head: &str, chunks: &[&str], cues: &[Arc<Cue>]) -> Script {
    let head = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    let chunks: Vec<String> =
        chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
    let cues = cues.to_vec();
    script(move |exchange| {
        exchange.read_body()?;
        exchange.write(head.as_bytes())?;
        for (at, chunk) in chunks.iter().enumerate() {
            if let Some(cue) = at.checked_sub(1).and_then(|before| cues.get(before)) {
                cue.wait()?;
            }
            exchange.write(chunk.as_bytes())?;
        }
        exchange.write(b"0\r\n\r\n")?;
        Ok(Then::Goes)
    })
}

/// A whole answer with its length.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// A sign that a case gives to its upstream, or the other way round.
#[derive(Default)]
pub(crate) struct Cue {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Cue {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn give(&self) {
        *lock(&self.given) = true;
        self.changed.notify_all();
    }

    /// Waits for the sign, and fails when it does not come.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let given = lock(&self.given);
        let waited = self.changed.wait_timeout_while(given, CUE_WITHIN, |given| !*given);
        match waited {
            Ok((_, result)) if !result.timed_out() => Ok(()),
            Ok(_) | Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
