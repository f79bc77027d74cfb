//! `GET /console`: the owner's page and its files, which are part of the program (`console/` in the repository).
//!
//! The page runs and loads only files of this listener. It may connect to this listener and, for a first request, to the
//! gateway; to a development node, if one is named. With `console.images` it also loads images by HTTPS from anywhere.

use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::api::routes::Endpoint;
use crate::domain::ConsoleSettings;
use crate::wire::pages::{guarded, settings};
use crate::wire::{Answer, JSON, answers::text};

const INDEX: &str = include_str!("../../console/index.html");

/// The page's files by their names below `/console/`: each of `console/dist`, and those of the TypeScript client that it
/// imports.
const FILES: &[(&str, &str)] = &[
    ("style.css", include_str!("../../console/style.css")),
    ("agent.js", include_str!("../../console/dist/agent.js")),
    ("agents.js", include_str!("../../console/dist/agents.js")),
    ("app.js", include_str!("../../console/dist/app.js")),
    ("client/client.js", include_str!("../../clients/typescript/dist/client.js")),
    ("client/clock.js", include_str!("../../clients/typescript/dist/clock.js")),
    ("client/credential.js", include_str!("../../clients/typescript/dist/credential.js")),
    ("client/erc8128.js", include_str!("../../clients/typescript/dist/erc8128.js")),
    ("client/errors.js", include_str!("../../clients/typescript/dist/errors.js")),
    ("client/explain.js", include_str!("../../clients/typescript/dist/explain.js")),
    ("client/fetch.js", include_str!("../../clients/typescript/dist/fetch.js")),
    ("client/index.js", include_str!("../../clients/typescript/dist/index.js")),
    ("client/options.js", include_str!("../../clients/typescript/dist/options.js")),
    ("client/retry.js", include_str!("../../clients/typescript/dist/retry.js")),
    ("client/signing.js", include_str!("../../clients/typescript/dist/signing.js")),
    ("connect.js", include_str!("../../console/dist/connect.js")),
    ("dom.js", include_str!("../../console/dist/dom.js")),
    ("elsewhere.js", include_str!("../../console/dist/elsewhere.js")),
    ("first.js", include_str!("../../console/dist/first.js")),
    ("keys.js", include_str!("../../console/dist/keys.js")),
    ("mcp.js", include_str!("../../console/dist/mcp.js")),
    ("registration.js", include_str!("../../console/dist/registration.js")),
    ("sign.js", include_str!("../../console/dist/sign.js")),
    ("state.js", include_str!("../../console/dist/state.js")),
    ("wallet.js", include_str!("../../console/dist/wallet.js")),
    ("words.js", include_str!("../../console/dist/words.js")),
];

/// Browsers ask again each time: after an upgrade old and new files would not fit together.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

pub(super) struct Console {
    settings: Vec<u8>,
    policy: HeaderValue,
}

impl Console {
    /// The page with these settings; the chain of the signatures has this id.
    pub(super) fn new(console: &ConsoleSettings, chain_id: u64) -> Self {
        let others = [&console.gateway_url, &console.development_rpc_url].into_iter().flatten();
        let others: String = others.map(|url| format!(" {}", url.origin())).collect();
        let images = if console.images { " https:" } else { "" };
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'{others}; \
             img-src 'self' data:{images}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        // A policy that could not be sent would be none: then the page runs nothing.
        let strict = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        let policy = HeaderValue::from_str(&policy).unwrap_or(strict);
        Self { settings: settings(console, chain_id), policy }
    }

    /// The file at a path of the listener.
    pub(super) fn file(&self, path: &str) -> Option<(HeaderValue, &[u8])> {
        match path.strip_prefix(Endpoint::Console.path())? {
            "" => Some((kind_of("index.html"), INDEX.as_bytes())),
            "/settings.json" => Some((JSON, &self.settings)),
            below => {
                let name = below.strip_prefix('/')?;
                let (_, text) = FILES.iter().find(|(file, _)| *file == name)?;
                Some((kind_of(name), text.as_bytes()))
            }
        }
    }

    /// The file at this path.
    pub(super) fn answer(&self, path: &str) -> Option<Answer> {
        let (kind, body) = self.file(path)?;
        let mut answer = text(StatusCode::OK, HeaderMap::new(), kind, body.to_vec());
        answer.headers_mut().insert(CACHE_CONTROL, ASK_AGAIN);
        Some(guarded(answer, self.policy.clone()))
    }
}

fn kind_of(name: &str) -> HeaderValue {
    HeaderValue::from_static(match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        _ => "application/octet-stream",
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::{collections::BTreeSet, fs};

    use super::{FILES, INDEX, kind_of};

    /// The most that a browser has to load for the page, in bytes.
    const PAGE_BYTES_MAX: usize = 150 * 1024;

    fn file(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
    }

    #[test]
    fn every_file_of_the_page_is_served_as_it_is_and_the_whole_is_below_150_kib() {
        let (of_client, own): (BTreeSet<&str>, BTreeSet<&str>) =
            FILES.iter().map(|(name, _)| *name).partition(|name| name.starts_with("client/"));
        assert_eq!((of_client.len() + own.len(), of_client.contains("client/index.js")), (FILES.len(), true));
        let compiled = fs::read_dir(file("console/dist")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut expected: BTreeSet<String> = compiled.map(|name| name.into_string().unwrap()).collect();
        expected.insert("style.css".to_owned());
        assert_eq!(own, expected.iter().map(String::as_str).collect());
        for (name, text) in FILES {
            let path = match name.strip_prefix("client/") {
                Some(of_client) => format!("clients/typescript/dist/{of_client}"),
                None if *name == "style.css" => "console/style.css".to_owned(),
                None => format!("console/dist/{name}"),
            };
            assert_eq!(*text, fs::read_to_string(file(&path)).unwrap(), "{name}");
            assert_ne!(kind_of(name), "application/octet-stream", "{name}");
            let folder = name.rsplit_once('/').map(|(folder, _)| format!("{folder}/")).unwrap_or_default();
            for named in text.split("from \"./").skip(1).map(|rest| rest.split('"').next().unwrap()) {
                let named = format!("{folder}{named}");
                assert!(
                    FILES.iter().any(|(name, _)| *name == named),
                    "{name} imports {named}, which is not served"
                );
            }
        }
        let bytes = INDEX.len() + FILES.iter().map(|(_, text)| text.len()).sum::<usize>();
        assert!(bytes < PAGE_BYTES_MAX, "{bytes} bytes");
    }

    // threat: The owner's page is framed, runs a text, or keeps a key
    #[test]
    fn the_page_has_no_script_or_style_of_its_own_and_names_no_other_host() {
        for (name, text) in
            [("index.html", INDEX)].iter().chain(FILES.iter().filter(|(name, _)| name.ends_with("css")))
        {
            for word in ["style=", "<style", "javascript:", "onclick", "//", "@import"] {
                assert!(!text.contains(word), "{name} has {word}");
            }
        }
        let scripts = INDEX.matches("<script").count();
        assert!(scripts > 0);
        assert_eq!(INDEX.matches("<script type=\"module\" src=\"console/").count(), scripts);
    }
}
