//! The rights of the product's user on a server, which `docs/redis.md` names: all that are needed, and no others.

use std::{collections::BTreeSet, fs, path::Path};

use crate::domain::{RedisUrl, Secret};
use crate::ports::Store;
use crate::store::redis::tests::server::{Admin, RedisServer, own_ip};
use crate::store::redis::tests::{clock, open, opened, options, refused};
use crate::store::{
    contract::agent, redis::options::Options, redis::scripts::Scripts, redis::tests::bound::use_everything,
};

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

/// The page's URL, for a server without TLS at this host.
fn documented_url(host: &str) -> String {
    let (_, example) = PAGE.split_once("```toml\n").unwrap();
    let example: toml::Table = example.split_once("```").unwrap().0.parse().unwrap();
    let url = example["store"]["redis"]["url"].as_str().unwrap();
    url.replace("rediss://", "redis://").replace("redis.example:6379", host)
}

#[tokio::test]
async fn the_documented_user_logs_in_by_the_documented_url_and_every_refusal_says_as_whom() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.acl");
    let user = PAGE.lines().map(str::trim).find(|line| line.starts_with("user tiergate on >PASSWORD "));
    // An administrator with another password, so that nobody gets in by chance.
    let users = format!("user default on >of-admins ~* &* +@all\n{}\n", user.unwrap());
    fs::write(&file, users + "user poor on >PASSWORD ~tg2:* -@all +auth +select\n").unwrap();
    let admin = Admin { password: Some("of-admins"), ..Admin::default() };
    let arguments = ["--aclfile", file.to_str().unwrap()];
    let Some(server) = RedisServer::start_at(own_ip(), &arguments, admin).await else { return };
    let url = documented_url(&server.host.to_string());
    let with = |url: &str, password: Option<&str>| Options {
        url: RedisUrl::parse(url).unwrap(),
        password: password.map(Secret::new),
        ..options(&server.url())
    };
    use_everything(&opened(with(&url, Some("PASSWORD")), &clock()).await).await;

    for (url, password, expected) in [
        (url.clone(), Some("wrong"), "the login as user \"tiergate\" is refused: user or password is wrong"),
        (
            server.url(),
            Some("PASSWORD"),
            "the login as the default user (store.redis.url names none) is refused",
        ),
        (server.url(), None, "Redis refused, asked as nobody (there is no password): NOAUTH"),
        (
            url.replace("tiergate@", "poor@"),
            Some("PASSWORD"),
            "Redis refused, asked as user \"poor\": NOPERM",
        ),
    ] {
        let store = open(with(&url, password), &clock());
        refused(&store).await;
        let fault = store.has_key(agent(1)).await.unwrap_err().to_string();
        assert!(fault.contains(expected), "{fault}");
        assert!(!fault.contains("PASSWORD"), "{fault}");
    }
}
