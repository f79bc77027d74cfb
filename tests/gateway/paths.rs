//! Paths that servers read in more than one way never pass where a plain one would not. Which spellings they are is held by
//! `domain::path` and `domain::routing`.

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, unique};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    no_spelling_of_a_path_passes_where_a_plain_one_would_not,
    with_a_credential_an_ambiguous_path_goes_through_as_it_is,
];

/// Spellings, with `{}` for a word of the case; and the status without a credential, and with the key of an agent of tier 2.
/// golden.test wants tier 3, and tier 2 below /silver; acme.test tier 1, 3 below /gold, and nobody passes below /denied.
const SPELLINGS: &[(&str, &str, u16, u16)] = &[
    // Some server may read any path, so that a denied route denies them.
    (ACME, "/public/../{}", 403, 403),
    (ACME, "/public/{}%00", 403, 403),
    (ACME, "/%64enied/{}", 403, 403),
    // Some server reads a path that is not below `/public`, but none a denied one.
    ("golden.test", "/silver/..%2f{}", 401, 403),
    (ACME, "/gold;x/{}", 401, 403),
    // No path at all.
    (ACME, "acme.test/public/{}", 400, 400),
    (ACME, "http://golden.test/public/{}", 400, 400),
    (ACME, "?{}", 400, 400),
    (ACME, "/public/{}#x", 400, 400),
    (ACME, "\\denied\\{}", 400, 400),
];

/// Spellings that some server reads as a path outside of `/public`, but none as a denied one.
const LIKE_AGENTS: &[&str] =
    &["/public;x/{}", "/public//{}", "/public/{}%2f", "/%70ublic/{}", "/public/{}%2e"];

// threat: Gate and upstream see different paths or hosts
fn no_spelling_of_a_path_passes_where_a_plain_one_would_not(stage: &Stage) {
    let ((_, key), site) = (stage.agent(2), stage.site());
    let (mut wrong, mut words) = (Vec::new(), Vec::new());
    let like_agents = LIKE_AGENTS.iter().map(|pattern| (ACME, *pattern, 401, None));
    let all = SPELLINGS.iter().map(|(host, pattern, without, with)| (*host, *pattern, *without, Some(*with)));
    for (host, pattern, without, with) in all.chain(like_agents) {
        let word = unique();
        let request = Request::get(host, &pattern.replace("{}", &word));
        let mut statuses = vec![(site.gateway.ask(&request).status, without)];
        statuses.extend(with.map(|with| (site.gateway.ask(&request.key(&key)).status, with)));
        if statuses.iter().any(|(status, wanted)| status != wanted) {
            wrong.push(format!("{host} {pattern}: {statuses:?}"));
        }
        words.push(word);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    site.are_unseen(&words);
    let asterisk = site.gateway.ask(&Request::new("OPTIONS", ACME, "*"));
    assert_eq!(asterisk.status, 403, "{}", asterisk.text());
}

/// A tenant's API may use such paths for agents. The last is below `/public` for every reader.
// threat: Gate and upstream see different paths or hosts
fn with_a_credential_an_ambiguous_path_goes_through_as_it_is(stage: &Stage) {
    let ((_, key), site) = (stage.agent(4), stage.site());
    for pattern in LIKE_AGENTS.iter().chain(&["/public/%61{}"]) {
        let word = unique();
        let target = pattern.replace("{}", &word);
        let answer = site.gateway.ask(&Request::get(ACME, &target).key(&key));
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        let seen = site.upstream.seen_with(&word);
        let line = format!("GET {target} HTTP/1.1\r\n");
        assert!(seen.len() == 1 && seen[0].head.starts_with(line.as_bytes()), "{target}: {seen:?}");
    }
}
