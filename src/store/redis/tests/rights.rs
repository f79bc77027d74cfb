//! The rights of the product's user on a server, which `docs/redis.md` names: all that are needed, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::store::redis::scripts::Scripts;

const PAGE: &str = include_str!("../../../../docs/redis.md");

/// The commands of the login, which the library sends.
const LOGIN: [&str; 2] = ["auth", "select"];

/// The rights that the documents name for a server, without those of a cluster.
pub(super) fn documented() -> Vec<&'static str> {
    let (_, line) = PAGE.split_once("user tiergate on >PASSWORD ~tg2:* ").unwrap();
    line.lines().next().unwrap().split(' ').collect()
}

/// The first words after `before` in quotes of this kind.
fn quoted<'a>(text: &'a str, before: &'a str, quote: char) -> impl Iterator<Item = String> {
    text.split(before).skip(1).filter_map(move |rest| Some(rest.split_once(quote)?.0.to_lowercase()))
}

#[test]
fn the_documented_rights_are_those_of_the_scripts_and_of_what_is_sent_beside_them() {
    let code = Scripts::new("").code();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis");
    let sources = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let sources = sources.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).unwrap());
    let sources = sources.collect::<String>();
    let commands = quoted(&code, "redis.call('", '\'')
        .chain(quoted(&sources, "command(\"", '"'))
        .chain(quoted(&sources, "redis::cmd(\"", '"'))
        .chain(LOGIN.map(str::to_owned))
        .filter(|command| !["cluster", "sentinel"].contains(&command.as_str()));
    let needed: BTreeSet<String> = commands
        .map(|command| match command.as_str() {
            "config" => "+config|get".to_owned(),
            "script" => "+script|load".to_owned(),
            _ => format!("+{command}"),
        })
        .collect();
    let (first, named) = documented().split_first().map(|(first, rest)| (*first, rest.to_vec())).unwrap();
    assert_eq!(first, "-@all");
    let named: BTreeSet<String> = named.into_iter().map(str::to_owned).collect();
    assert_eq!(named, needed);
}
