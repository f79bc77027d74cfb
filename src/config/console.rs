//! `[console]`: the owner's page, for owners who keep their key in a wallet.

use crate::config::reader::Reader;
use crate::config::written::{Shown, valid, valid_url};
use crate::domain::{ConsoleSettings, RpcUrl};

/// The longest name that pages and wallets show, in characters.
pub(super) const NAME_CHARS_MAX: usize = 100;

/// The longest symbol of a currency that wallets take, in characters.
const SYMBOL_CHARS_MAX: usize = 6;

impl ConsoleSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        reader.mask(Shown::Host, &["console.rpc_url", "console.development_rpc_url"]);
        read_all!(reader: Self {
            /// true: the API's listener serves the owner's page at /console. Owners make and revoke keys there with their wallet.
            /// Everything in this section is shown to everybody, so put no secret here.
            enabled: reader.boolean("console.enabled", false),
            /// The page's title, 1 to 100 characters.
            title: reader.text("console.title", "Tiergate", |text| short(text, NAME_CHARS_MAX)),
            /// An http(s) URL of JSON-RPC for the chain of signature.chain_id, which wallets may add; without it the page lets owners
            /// sign elsewhere. It is public, also a provider's key in it: take one that is meant for browsers. Wallets want https, but
            /// for localhost.
            rpc_url: reader.text("console.rpc_url", "", url),
            /// That chain's name, up to 100 characters; required with rpc_url.
            chain_name: reader.text("console.chain_name", "", |text| match text {
                "" => Ok(String::new()),
                _ => short(text, NAME_CHARS_MAX),
            }),
            /// The symbol of that chain's currency, 1 to 6 characters.
            currency: reader.text("console.currency", "ETH", |text| short(text, SYMBOL_CHARS_MAX)),
            /// The gateway's address as clients see it, for a first request from the page. Without it the page offers none.
            /// The tenant at this address needs [tenants.cors] with the origin of the API.
            gateway_url: reader.text("console.gateway_url", "", url_without_query),
            /// A path there that takes keys.
            sample_path: reader.text("console.sample_path", "/", path),
            /// true: it is an endpoint of MCP. The page asks it for its tools, and shows an assistant's configuration.
            sample_mcp: reader.boolean("console.sample_mcp", false),
            /// true: the page shows an agent's image from the https URL that its registration (ERC-8004) names. Anybody may have written that
            /// URL, and who is behind it learns the address of each owner who looks.
            images: reader.boolean("console.images", false),
            /// For development alone: an http(s) URL of a node whose unlocked accounts sign for everybody. The page offers them as a wallet.
            development_rpc_url: reader.text("console.development_rpc_url", "", url),
        } then {
            if let (Some(Some(_)), Some("")) = (&rpc_url, chain_name.as_deref()) {
                let phrase = "is empty; wallets ask for the name of the chain at console.rpc_url";
                reader.report(&["console.chain_name"], phrase);
            }
        })
    }
}

pub(super) fn short(text: &str, chars_max: usize) -> Result<String, String> {
    let is_shown = !text.contains(char::is_control) && (1..=chars_max).contains(&text.chars().count());
    let wanted = format_args!("1 to {chars_max} characters in one line");
    valid(text, is_shown.then(|| text.to_owned()), wanted)
}

/// A URL that anybody may know, or none.
fn url(text: &str) -> Result<Option<RpcUrl>, String> {
    match text {
        "" => Ok(None),
        _ => open_url(text, "or nothing").map(Some),
    }
}

/// A URL without a login. `advice` ends the problem.
pub(super) fn open_url(text: &str, advice: &str) -> Result<RpcUrl, String> {
    let is_open = |url: &RpcUrl| url.reveal().username().is_empty() && url.reveal().password().is_none();
    let wanted = format_args!("an http:// or https:// URL without a login, {advice}");
    valid_url(text, RpcUrl::parse(text).filter(is_open), wanted)
}

pub(super) fn url_without_query(text: &str) -> Result<Option<RpcUrl>, String> {
    let url = url(text)?;
    match url.as_ref().and_then(|url| url.reveal().query()) {
        None => Ok(url),
        Some(_) => Err("has a query; write the address alone".to_owned()),
    }
}

/// A path that stands behind an address as it is written.
fn path(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"#\\\"'".contains(&byte);
    let is_path = text.starts_with('/') && text.bytes().all(is_plain);
    let wanted = "a path of printable ASCII characters that begins with /";
    valid(text, is_path.then(|| text.to_owned()), wanted)
}
