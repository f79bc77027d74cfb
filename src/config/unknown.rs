//! Keys and variables that nobody asked for, each with the known one that was probably meant.

use strsim::levenshtein;

use crate::config::problem::{Location, Problem};
use crate::config::tree::{Item, Table};
use crate::config::written::{quoted, type_of};

/// The greatest number of wrong characters in a misspelt name.
const TYPING_ERRORS_MAX: usize = 2;

/// The longest name that is compared and shown as it is.
const NAME_BYTES_MAX: usize = 64;

/// The problems of a file after which hints end: for each one a name is compared with all that are known.
const HINTED_MAX: usize = 100;

/// Variables of the command line, which override no key.
const OTHER_VARIABLES: [&str; 6] = [
    "TIERGATE_ALLOW_HTTP",
    "TIERGATE_API_KEY",
    "TIERGATE_CONFIG",
    "TIERGATE_KEYSTORE_PASSWORD",
    "TIERGATE_OWNER_KEY",
    "TIERGATE_URL",
];

/// True if a variable is meant for us: its name begins with ours, in whatever case, and it is none of those that Kubernetes
/// sets in every container of a namespace that has a service called tiergate.
pub(super) fn is_ours(name: &str, value: &str) -> bool {
    let begins = name.get(..9).is_some_and(|start| start.eq_ignore_ascii_case("TIERGATE_"));
    begins && !is_of_kubernetes(name, value) && !OTHER_VARIABLES.contains(&name)
}

/// `X_SERVICE_HOST`, `X_SERVICE_PORT`, `X_SERVICE_PORT_NAME`, `X_PORT` with a URL, and `X_PORT_8080_TCP` with more behind it.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let of_port = |rest: &str| {
        let mut parts = rest.split('_');
        let number = parts.next().unwrap_or_default();
        !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && parts.next().is_some_and(|protocol| ["TCP", "UDP", "SCTP"].contains(&protocol))
    };
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let is_port = name.ends_with("_PORT") && is_url;
    let is_part = name.split_once("_PORT_").is_some_and(|(_, rest)| of_port(rest));
    let is_service = name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT");
    !name.contains("__") && (is_service || is_port || is_part)
}

/// Every variable that is none of the known ones.
pub(super) fn variables<'a>(
    names: impl Iterator<Item = &'a String>,
    known: &'a [String],
) -> impl Iterator<Item = Problem> {
    names.filter(|name| !known.contains(name)).map(|name| {
        // One underscore and small letters are what people write.
        let plain = |name: &str| name.to_uppercase().replace("__", "_");
        let all = || known.iter().map(String::as_str).chain(OTHER_VARIABLES);
        let same = all().find(|known| plain(known) == plain(name));
        let meant = same.or_else(|| below(name, "__", all())).or_else(|| closest(name, all()));
        let nothing =
            || "TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing".to_owned();
        let hint = meant.map_or_else(nothing, |meant| format!("did you mean {meant}?"));
        Problem::new(named(name), format!("is not a known variable; {hint}"))
    })
}

/// Adds a problem for each key in the table of a section, whose name ends with a point, that nobody has asked for.
pub(super) fn keys(
    table: &Table,
    section: &str,
    known: &[&'static str],
    location: &Location,
    problems: &mut Vec<Problem>,
) {
    for (key, node) in table.iter().filter(|(_, node)| !node.is_asked) {
        let path = format!("{section}{}", named(key));
        let inside = format!("{path}.");
        let is_section = known.iter().any(|known| known.starts_with(&inside));
        let phrase = match &node.item {
            Item::Table(table) if is_section => {
                keys(table, &inside, known, location, problems);
                continue;
            }
            Item::List(_) | Item::Plain(_) if is_section => {
                let (found, header) = (node.value(), location.header(&path));
                format!("is {}; write a section that begins with [{header}]", type_of(&found))
            }
            Item::Table(_) | Item::List(_) | Item::Plain(_) => {
                let is_hinted = problems.len() < HINTED_MAX;
                match is_hinted.then(|| meant(key, section, &path, known)).flatten() {
                    Some(meant) => format!("is not a known key; did you mean {meant}?"),
                    None => "is not a known key".to_owned(),
                }
            }
        };
        problems.push(Problem::new(location.of_key(&path), phrase).at(node.key.clone()));
    }
}

/// The known key that is probably meant: one below a section beside it, where it stood in an earlier version or belongs; else a key or
/// section beside it with nearly the same name, else a key of the same name elsewhere.
fn meant(key: &str, section: &str, path: &str, known: &[&'static str]) -> Option<&'static str> {
    let beside = known.iter().filter_map(|path| {
        let rest = path.strip_prefix(section)?;
        let name_len = rest.find('.').unwrap_or(rest.len());
        path.get(..section.len() + name_len)
    });
    let near = || closest(&format!("{section}{key}"), beside);
    let same = || known.iter().copied().find(|path| path.rsplit('.').next() == Some(key));
    below(path, ".", known.iter().copied()).or_else(near).or_else(same)
}

/// The key or variable of the same name in a table below: it stood here in an earlier version, or belongs there.
fn below<'a>(written: &str, separator: &str, mut known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (section, key) = written.rsplit_once(separator)?;
    let [start, end] = [format!("{section}{separator}"), format!("{separator}{key}")];
    known.find(|path| path.starts_with(&start) && path.ends_with(&end))
}

/// The known path or variable that differs least, if the last part of its name differs by little.
fn closest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > NAME_BYTES_MAX {
        return None;
    }
    let near = known.filter_map(|name| {
        let distance = levenshtein(written, name);
        let name_len = name.rsplit("__").next().and_then(|name| name.rsplit('.').next()).map_or(0, str::len);
        (distance <= TYPING_ERRORS_MAX && distance * 2 < name_len).then_some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

/// A name as TOML writes it: bare when it can be, else in quotes.
fn named(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && name.bytes().all(bare) { name.to_owned() } else { quoted(name) }
}
