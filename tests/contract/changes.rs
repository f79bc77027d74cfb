//! Changes of an agent on the chain, for each set of registries, and the profile that answers show once they are followed.

use alloy::primitives::{B256, I256, U256};
use serde_json::{Value, json};

use crate::erc8004::Registries;
use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::signing::{ALICE, Account, BOB, DEPLOYER};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::{chain::Chain, client::Answer};

pub(crate) fn has(answer: &Answer, pointer: &str, value: Value) -> bool {
    answer.status == 200 && answer.json().pointer(pointer) == Some(&value)
}

/// The scores and the count that an answer shows.
pub(crate) fn shows_feedback(total: &str, count: u64) -> impl Fn(&Answer) -> bool {
    move |answer| {
        has(answer, "/reputation/totalScore", json!(total))
            && has(answer, "/reputation/feedbackCount", json!(count))
    }
}

/// A change on the chain, and what shows once it is followed.
pub(crate) struct Change<'a> {
    pub(crate) name: &'static str,
    pub(crate) make: Box<dyn Fn() + 'a>,
    /// Asks with its signature; nobody: the owner at the beginning.
    pub(crate) asks: Option<Agent>,
    /// `None` where the profile is as before.
    pub(crate) shown: Option<IsShown<'a>>,
}

type IsShown<'a> = Box<dyn Fn(&Answer) -> bool + 'a>;

impl<'a> Change<'a> {
    pub(crate) fn shows(
        name: &'static str,
        make: impl Fn() + 'a,
        shown: impl Fn(&Answer) -> bool + 'a,
    ) -> Self {
        Self { name, make: Box::new(make), asks: None, shown: Some(Box::new(shown)) }
    }

    fn shows_nothing(name: &'static str, make: impl Fn() + 'a) -> Self {
        Self { name, make: Box::new(make), asks: None, shown: None }
    }

    /// To this one, who asks.
    pub(crate) fn to(self, asks: &Agent) -> Self {
        Self { asks: Some(asks.clone()), ..self }
    }
}

pub(crate) fn is_of(answer: &Answer, owner: Account) -> bool {
    has(answer, "/owner", json!(owner.address.to_checksum(None)))
}

fn is_refused(answer: &Answer) -> bool {
    answer.status == 401
}

pub(crate) fn is_error(status: u16, error_type: &'static str) -> impl Fn(&Answer) -> bool {
    move |answer| answer.status == status && answer.json()["errorType"] == json!(error_type)
}

/// An agent of Alice's on the documented registries, and an organization that it is no member of.
pub(crate) fn on_documented(chain: &Chain, id: U256, guild: U256) -> Vec<Change<'_>> {
    let staked = json!((THRESHOLDS[3] + U256::from(7)).to_string());
    let give = move |score| move || chain.feedback(id, I256::try_from(score).unwrap());
    let total =
        |text: &'static str| move |answer: &Answer| has(answer, "/reputation/totalScore", json!(text));
    let member = json!(guild.to_string());
    let evidence = |answer: &Answer| has(answer, "/validation/latestEvidence", json!("evidence"));
    let uri = |answer: &Answer| has(answer, "/metadataURI", json!("ipfs://other"));
    vec![
        Change::shows(
            "stake",
            move || chain.stake(id, U256::from(7)),
            move |answer| has(answer, "/stakedAmount", staked.clone()),
        ),
        Change::shows("feedback", give(5), total("5")),
        Change::shows("more feedback", give(-9), total("-4")),
        Change::shows("validation", move || chain.validate(BOB, id, true, "evidence"), evidence),
        Change::shows(
            "joined",
            move || chain.join(guild, id),
            move |answer| has(answer, "/organizations/0/orgId", member.clone()),
        ),
        Change::shows(
            "verified",
            move || chain.set_verified(guild, true),
            |answer| has(answer, "/organizations/0/verified", json!(true)),
        ),
        Change::shows("left", move || chain.leave(guild, id), |it| has(it, "/organizations", json!([]))),
        Change::shows("URI", move || chain.set_uri(ALICE, id, "ipfs://other"), uri),
        Change::shows("transfer", move || chain.transfer(ALICE, BOB, id), |answer| is_of(answer, BOB)),
        Change::shows("unstake", move || chain.unstake(id, THRESHOLDS[3]), is_error(403, "TIER_BLOCKED")),
        Change::shows("burn", move || chain.burn(BOB, id), is_error(404, "AGENT_NOT_FOUND")),
    ]
}

/// An agent of Alice's on ERC-8004's. Evidence may be missing where a node may give none.
pub(crate) fn on_erc8004<'a>(registries: &'a Registries<'_>, id: U256, lenient: bool) -> Vec<Change<'a>> {
    let (on, chain) = (registries.on, registries.chain);
    let [bob, deployer] = [BOB, DEPLOYER].map(|account| registries.of_owner(id, account));
    let set = move |key| move || on.set_wallet(chain, ALICE.address, id, key);
    let give = move |client: Account, value| move || on.feedback(chain, client.address, id, value, "starred");
    let revoke = move |client: Account, index| move || on.revoke(chain, client.address, id, index);
    let request = move |hash| move || on.request(chain, ALICE.address, BOB.address, id, hash);
    let answer = move |hash, response, evidence| {
        move || {
            // The registry dates answers by the second.
            let now = unix_seconds();
            until("the next second", SOON, || (unix_seconds() > now).then_some(()));
            on.answer(chain, BOB.address, hash, (response, evidence));
        }
    };
    let latest = move |count: u64, passed: bool, evidence: &'static str| {
        move |answer: &Answer| {
            let shows = |field: &str, value: Value| has(answer, &format!("/validation/{field}"), value);
            shows("count", json!(count))
                && shows("latestPassed", json!(passed))
                && shows("latestValidator", json!(BOB.address.to_checksum(None)))
                && (shows("latestEvidence", json!(evidence)) || lenient && shows("latestEvidence", json!("")))
        }
    };
    let is_alices = |answer: &Answer| is_of(answer, ALICE);
    let [one, two] = [1, 2].map(B256::with_last_byte);
    vec![
        Change::shows("wallet", set(BOB.key), is_alices).to(&bob),
        Change::shows("no wallet", move || on.unset_wallet(chain, ALICE.address, id), is_refused).to(&bob),
        Change::shows("wallet again", set(BOB.key), is_alices).to(&bob),
        Change::shows("another wallet", set(DEPLOYER.key), is_refused).to(&bob),
        Change::shows("feedback", give(BOB, (802, 3)), shows_feedback("0.802", 1)),
        Change::shows("more feedback", give(BOB, (-5, 0)), shows_feedback("-4.198", 2)),
        Change::shows(
            "another's feedback",
            give(DEPLOYER, (10_i128.pow(38), 18)),
            shows_feedback("99999999999999999995.802", 3),
        ),
        Change::shows_nothing("a response", move || on.respond(chain, ALICE.address, id, (BOB.address, 1))),
        Change::shows("revoked", revoke(DEPLOYER, 1), shows_feedback("-4.198", 2)),
        Change::shows("revoked the first", revoke(BOB, 1), shows_feedback("-5", 1)),
        Change::shows_nothing("a request is no validation", request(one)),
        Change::shows("answered", answer(one, 100, "ipfs://first"), latest(1, true, "ipfs://first")),
        Change::shows("again", answer(one, 99, "ipfs://again"), latest(1, false, "ipfs://again")),
        Change::shows_nothing("another request", request(two)),
        Change::shows("answered it", answer(two, 100, "ipfs://second"), latest(2, true, "ipfs://second")),
        Change::shows("the first one", answer(one, 0, "ipfs://third"), latest(2, false, "ipfs://third")),
        // It takes the wallet away with the owner.
        Change::shows("transfer", move || on.transfer(chain, ALICE.address, BOB.address, id), is_refused)
            .to(&deployer),
    ]
}
