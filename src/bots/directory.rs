//! The keys that a domain publishes for its bots (RFC 7517), read over HTTPS within bounds.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::ACCEPT;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::net::lookup_host;

use crate::addresses::is_public;
use crate::domain::bot::{DIRECTORY_PATH, Reach};

/// The type of a directory.
const TYPE: &str = "application/http-message-signatures-directory+json";

/// The longest directory, in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// How many keys a directory may have.
const KEYS_MAX: usize = 64;

/// How long a read may take.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Public keys for Ed25519 by their thumbprints (RFC 7638), and when each counts, in Unix seconds.
pub(super) type Keys = HashMap<Box<str>, ([u8; 32], Range<u64>)>;

/// The reader of directories.
pub(super) struct Directories {
    public: Client,
    anywhere: Client,
}

/// Why a directory can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error("{0}")]
    Connection(#[from] reqwest::Error),
    #[error("it is answered with {0}")]
    Status(StatusCode),
    #[error("it is longer than 64 KiB")]
    TooLong,
    #[error("it is no JWK Set of up to 64 keys")]
    Malformed,
}

/// Resolves names to public addresses alone: what is judged is what is connected to.
struct PublicAddresses;

impl Resolve for PublicAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err("it has no public address".into());
            }
            Ok::<Addrs, _>(Box::new(public.into_iter()))
        })
    }
}

impl Directories {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let client = || {
            let builder = Client::builder().https_only(true).redirect(Policy::none()).no_proxy();
            builder.timeout(TIME_MAX).pool_max_idle_per_host(0).user_agent("tiergate")
        };
        Ok(Self {
            public: client().dns_resolver(Arc::new(PublicAddresses)).build()?,
            anywhere: client().build()?,
        })
    }

    /// The keys of a domain now.
    pub(super) async fn read(&self, domain: &str, reach: Reach) -> Result<Keys, Unread> {
        let client = match reach {
            Reach::Below | Reach::Public => &self.public,
            Reach::Anywhere => &self.anywhere,
        };
        let url = format!("https://{domain}{DIRECTORY_PATH}");
        let mut answer = client.get(url).header(ACCEPT, TYPE).send().await?;
        if answer.status() != StatusCode::OK {
            return Err(Unread::Status(answer.status()));
        }
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            if piece.len() > BYTES_MAX - body.len() {
                return Err(Unread::TooLong);
            }
            body.extend_from_slice(&piece);
        }
        parse(&body).ok_or(Unread::Malformed)
    }
}

/// The keys of a JWK Set. Those of other kinds are left out, and names that it gives to keys mean nothing.
pub(super) fn parse(json: &[u8]) -> Option<Keys> {
    #[derive(Deserialize)]
    struct KeySet {
        keys: Vec<Jwk>,
    }
    #[derive(Deserialize)]
    struct Jwk {
        kty: String,
        crv: Option<String>,
        x: Option<String>,
        nbf: Option<u64>,
        exp: Option<u64>,
    }
    let KeySet { keys } =
        serde_json::from_slice(json).ok().filter(|set: &KeySet| set.keys.len() <= KEYS_MAX)?;
    let key = |jwk: Jwk| {
        let is_ed25519 = jwk.kty == "OKP" && jwk.crv.as_deref() == Some("Ed25519");
        let x = jwk.x.filter(|_| is_ed25519)?;
        let key = URL_SAFE_NO_PAD.decode(&x).ok()?.try_into().ok()?;
        let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let times = jwk.nbf.unwrap_or(0)..jwk.exp.unwrap_or(u64::MAX);
        Some((URL_SAFE_NO_PAD.encode(Sha256::digest(canonical)).into(), (key, times)))
    };
    Some(keys.into_iter().filter_map(key).collect())
}
