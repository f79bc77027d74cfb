//! The keys of one route, and which routes none ever gets to.

use std::collections::{BTreeSet, HashMap};

use crate::config::tenants::context::{Context, upstreams};
use crate::config::written::{quoted, valid};
use crate::config::{reader::Reader, tier_sources::TIERS, tiers::REQUESTS_PER_MINUTE};
use crate::domain::{
    CallPatterns, MCP_METHOD, NEVER_FORWARDED, NamePattern, PathPattern, Quota, Route, RouteAccess,
    mcp::is_method, tier::passing_tier,
};

/// How many methods a route may name.
const METHODS_MAX: usize = 32;

/// The longest method, in bytes.
const METHOD_BYTES_MAX: usize = 32;

/// How many tools a route may name.
const TOOLS_MAX: usize = 256;

const LIMIT: &str = "requests_per_minute";
const BOT_LIMIT: &str = "bot_requests_per_minute";

const ACCESS: [(&str, RouteAccess); 3] =
    [("agents", RouteAccess::Agents), ("public", RouteAccess::Public), ("deny", RouteAccess::Deny)];

/// Reads one route; `taken` is what those before it take.
pub(super) fn read(reader: &mut Reader, taken: &mut Taken, context: &Context) -> Option<Route> {
    taken.routes += 1;
    let mut of_mcp = Vec::new();
    read_all!(reader: Route {
        /// Up to 1024 bytes. A path without * takes itself and whatever is below it. A * stands for anything within one segment, a
        /// final /* for whatever is below.
        /// Example: "/v1/orders"
        path: reader.required_text("path", path),
        /// Those who may pass: verified "agents", the "public", or nobody ("deny").
        access: reader.word("access", "agents", &ACCESS),
        /// Optional. The lowest tier that passes; without it the tenant's. Only for agents.
        /// Example: 3
        min_tier: Some(reader.integer("min_tier", None, &TIERS).and_then(passing_tier)),
        /// Optional. 1 to 32 methods in upper case, but for CONNECT and TRACE, which are never forwarded; without it all of them. Or methods of
        /// MCP, such as "resources/read", and beginnings of some, such as "resources/*": then messages with these alone are taken.
        /// Example: ["POST", "DELETE"]
        methods: {
            let all = reader.optional_texts("methods", METHODS_MAX, any_method);
            let all = all.and_then(|methods| reader.distinct("methods", methods));
            all.map(|all| {
                let (calls, methods) = all.into_iter().partition(|own| is_method(own));
                of_mcp = calls;
                methods
            })
        },
        /// Optional. How many requests one client network may make here in any 60 seconds, 1 to 1000000; without it there is no
        /// limit. Only for the public.
        /// Example: 60
        requests_per_minute:
            Some(reader.integer(LIMIT, None, &REQUESTS_PER_MINUTE).map(Quota::per_minute)),
        /// Optional. How many requests each bot of [web_bot_auth] may make here in any 60 seconds, from wherever, in place of its network's
        /// limit; without it a bot is a client as others. Only for the public.
        /// Example: 600
        bot_requests_per_minute:
            Some(reader.integer(BOT_LIMIT, None, &REQUESTS_PER_MINUTE).map(Quota::per_minute)),
        /// Optional. Where these requests go, 1 to 64; without it where the tenant's go.
        /// Example: ["127.0.0.1:9001"]
        upstreams: upstreams(reader, context, false),
        /// true: WebSocket upgrades are passed on.
        upgrades: reader.boolean("upgrades", false),
        /// true: the path is that of an endpoint of MCP. So it is where a route has tools, or methods of MCP.
        mcp: reader.boolean("mcp", false).map(|mcp| mcp || !of_mcp.is_empty() || reader.is_given("tools")),
        /// Optional. 1 to 256 tools of MCP whose calls are taken, and no other requests: names as the server has them, or beginnings of names,
        /// such as "billing_*". All routes of a tenant may have 1024 of these and methods of MCP.
        /// Example: ["search", "billing_*"]
        calls: {
            let tools = reader.optional_texts("tools", TOOLS_MAX, tool);
            let tools = tools.and_then(|tools| reader.distinct("tools", tools));
            let patterns = |names: &[Box<str>]| names.iter().filter_map(|name| NamePattern::parse(name)).collect();
            tools.map(|tools| CallPatterns { methods: patterns(&of_mcp), tools: patterns(&tools) })
        },
    } then {
        if reader.is_given("min_tier") && access.is_some_and(|access| access != RouteAccess::Agents) {
            let phrase = "has no meaning without agents; remove it, or write access \"agents\"";
            reader.report(&["min_tier"], phrase);
        }
        let limits = [LIMIT, BOT_LIMIT].into_iter().filter(|path| reader.is_given(path)).collect::<Vec<_>>();
        for path in limits.into_iter().filter(|_| access.is_some_and(|access| access != RouteAccess::Public)) {
            let phrase =
                "has no meaning where agents have limits of their own; remove it, or write access \"public\"";
            reader.report(&[path], phrase);
        }
        let of_bots = [
            (context.lacks_bots, "is for nobody: web_bot_auth.domains and private_domains are empty"),
            (
                !reader.is_given(LIMIT),
                "limits bots that prove a domain and nobody else; write requests_per_minute too",
            ),
        ];
        let is_read = access == Some(RouteAccess::Public) && reader.is_given(BOT_LIMIT);
        for (_, phrase) in of_bots.into_iter().filter(|(is_wrong, _)| is_read && *is_wrong) {
            reader.warn(&[BOT_LIMIT], phrase);
        }
        let forwards = [("upstreams", reader.is_given("upstreams")), ("upgrades", upgrades == Some(true))];
        for (path, _) in forwards.iter().filter(|(_, is_set)| *is_set && access == Some(RouteAccess::Deny)) {
            let phrase = "has no meaning with access \"deny\", which forwards nothing; remove it";
            reader.report(&[path], phrase);
        }
        let takes_calls = calls.as_ref().is_some_and(|calls: &CallPatterns| !calls.is_empty());
        if takes_calls && methods.as_ref().is_some_and(|methods: &Vec<_>| !methods.is_empty()) {
            reader.report(&["methods"], "are of HTTP, and the route takes calls of MCP; write two routes");
        }
        let own = methods.as_ref().zip(calls.as_ref()).map(|(methods, calls)| {
            let calls = calls.written().map(String::into_boxed_str);
            methods.iter().cloned().chain(calls).collect::<Vec<_>>()
        });
        let takers = path.as_ref().zip(own.as_ref());
        if let Some(takers) = takers.and_then(|(path, methods)| taken.take(path, methods)) {
            let takers: Vec<String> = takers.iter().map(|number| format!("routes[{number}]")).collect();
            let phrase = format!(
                "is never reached; {} before it take all of its paths and methods",
                takers.join(" and ")
            );
            reader.report_table(phrase);
        }
    })
}

/// The methods of paths that are taken already, each by the first route with both, by its number; "" stands for all methods.
#[derive(Default)]
pub(super) struct Taken {
    /// How many routes there are, wrong ones included.
    routes: usize,
    paths: HashMap<String, HashMap<Box<str>, usize>>,
}

impl Taken {
    /// Takes them for the route that is being read; the numbers of those before it that have left nothing of them.
    fn take(&mut self, path: &PathPattern, methods: &[Box<str>]) -> Option<BTreeSet<usize>> {
        let path = path.normal();
        let hiding: Vec<_> = wider(path).filter_map(|wide| self.paths.get(&wide)).collect();
        let taker = |method: &str| hiding.iter().find_map(|taken| taken.get(method).copied());
        let of_call = |method: &str| is_method(method).then(|| taker(MCP_METHOD)).flatten();
        let of_methods = methods.iter().map(|method| taker(method).or_else(|| of_call(method)));
        let takers = || of_methods.collect::<Option<BTreeSet<_>>>();
        let nothing_left = taker("").map(|route| [route].into()).or_else(takers);
        let taken = self.paths.entry(path.to_owned()).or_default();
        let all = methods.is_empty().then(Box::default);
        for method in methods.iter().cloned().chain(all) {
            taken.entry(method).or_insert(self.routes);
        }
        nothing_left.filter(|routes| !routes.is_empty())
    }
}

/// Patterns that take whatever this one takes: itself, and the folders that it stands in, without and with a final
/// `/*`. Others may do so too; these are what people write.
fn wider(path: &str) -> impl Iterator<Item = String> {
    let folders = path.match_indices('/').filter_map(|(end, _)| path.get(..end));
    let folders = folders.take_while(|folder| !folder.contains('*'));
    std::iter::once(path.to_owned())
        .chain(folders.flat_map(|folder| [folder.to_owned(), format!("{folder}/*")]))
}

fn path(text: &str) -> Result<PathPattern, String> {
    PathPattern::parse(text).map_err(|why| {
        format!("is {}, which {why}; write a path, such as \"/v1\" or \"/public/*\"", quoted(text))
    })
}

fn tool(text: &str) -> Result<Box<str>, String> {
    let wanted = "the name of a tool, or the beginning of names and \"*\", without blanks";
    valid(text, NamePattern::parse(text).map(|_| text.into()), wanted)
}

/// A method of HTTP, or one of MCP.
fn any_method(text: &str) -> Result<Box<str>, String> {
    if is_method(text) && NamePattern::parse(text).is_some() { Ok(text.into()) } else { method(text) }
}

/// A token of RFC 9110, section 5.6.2, without lower-case letters: methods are compared byte by byte, and those in use
/// are upper case. One that is never forwarded would be a rule for nothing.
pub(super) fn method(text: &str) -> Result<Box<str>, String> {
    if NEVER_FORWARDED.contains(&text) {
        return Err(format!("is {}, which is never forwarded; remove it", quoted(text)));
    }
    let plain =
        |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_method = (1..=METHOD_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain);
    valid(text, is_method.then(|| text.into()), "a method in upper case, such as \"GET\"")
}
