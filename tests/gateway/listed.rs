//! Agents whose tiers a file lists: it is read again while the process runs, and a version that can't be used changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, agents_path};
use crate::rig::{credentials::signed, gateway::Gateway, refusals::refused, site::Site};
use crate::support::time::{SOON, until};
use crate::support::{agents::Agent, client::Connection, metrics::Samples, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    agents_pass_by_the_list_and_a_changed_list_counts_without_a_restart,
    a_list_that_cannot_be_used_changes_nothing_and_is_named,
];

/// A gateway, and its list of agents.
struct Listed {
    site: Site,
    folder: TempDir,
}

/// What `check` and a start write into the error, and what the log says, of a list with this text.
const BROKEN: &str = "line 2: write an agent's id and its tier, 1 to 4, such as \"1234 3\"";

impl Listed {
    fn start(stage: &Stage, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agents");
        fs::write(&file, text).unwrap();
        let site = Site::of(stage).set("tiers.source", "list").set("tiers.file", file.to_str().unwrap());
        Self { site: site.start(), folder }
    }

    fn gateway(&self) -> &Gateway {
        &self.site.gateway
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("agents")
    }

    /// Exchanges the list in one step.
    fn put(&self, text: &str) {
        put(&self.file(), text);
    }

    /// The status of an agent's request, and the tier that the upstream is told.
    fn status(&self, gateway: &Gateway, agent: &Agent) -> (u16, Option<String>) {
        let path = agents_path();
        let answer = gateway.ask(&Request::get(ACME, &path).with_all(&signed(&agent.draft())));
        if answer.status != 200 {
            return (answer.status, None);
        }
        let seen = self.site.upstream.only(&path);
        assert_eq!(seen.header("x-agent-tier-source"), Some("list"));
        (200, seen.header("x-agent-tier").map(str::to_owned))
    }

    /// Waits until the agent has this tier; 0: until it is refused.
    fn until_tier(&self, gateway: &Gateway, agent: &Agent, tier: u8) {
        let expected = if tier == 0 { (403, None) } else { (200, Some(tier.to_string())) };
        let what = format!("agent {} has tier {tier}", agent.text());
        until(&what, SOON, || (self.status(gateway, agent) == expected).then_some(()));
    }
}

fn put(file: &Path, text: &str) {
    let draft = file.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::rename(draft, file).unwrap();
}

fn sample(samples: &Samples, name: &str) -> f64 {
    samples.get(&format!("tiergate_config_{name}"))
}

fn agents_pass_by_the_list_and_a_changed_list_counts_without_a_restart(stage: &Stage) {
    // Stakes count for nothing.
    let agents = [stage.world().agent(4), stage.world().agent(0), stage.world().agent(0)];
    let [staked, listed, other] = &agents;
    let site = Listed::start(stage, &format!("# ours\n{} 2\n", listed.text()));
    let (gateway, twin) = (site.gateway(), site.gateway().twin(|settings| settings));
    assert_eq!(site.status(gateway, listed), (200, Some("2".to_owned())));
    for unlisted in [staked, other] {
        let answer = gateway.ask(&Request::get(ACME, "/x").with_all(&signed(&unlisted.draft())));
        assert_eq!(refused(&answer, 403), "TIER_BLOCKED");
        let answer = gateway.service.verify_signature(&unlisted.signed());
        let details = answer.error(403, "TIER_BLOCKED");
        assert_eq!((&details["currentTier"], &details["requiredStake"]), (&Value::from(0), &Value::Null));
    }
    let answer = gateway.service.verify_signature(&listed.signed());
    let body = answer.success(200);
    assert_eq!((&body["trustTier"], &body["tierSource"]), (&Value::from(2), &Value::from("list")));
    assert_eq!(answer.allowance().0, 16);
    let asked = ["--host", ACME, "--path", "/x", "--agent-id", &listed.text(), "-o", "json"];
    let explained: Value =
        serde_json::from_slice(&gateway.service.command("explain", &asked).stdout).unwrap();
    assert_eq!((&explained["decision"], &explained["tier"]), (&Value::from("admitted"), &Value::from(2)));
    let checked = gateway.service.command("check", &["--online", "--agent-id", &listed.text()]);
    assert!(String::from_utf8(checked.stdout).unwrap().contains("tier 2 ("));

    // Each process looks at the file by itself.
    site.put(&format!("{} 3\n{} 4\n", listed.text(), other.text()));
    for process in [gateway, &twin] {
        site.until_tier(process, other, 4);
        site.until_tier(process, listed, 3);
    }
    site.put(&format!("{} 4\n", other.text()));
    for process in [gateway, &twin] {
        site.until_tier(process, listed, 0);
        site.until_tier(process, other, 4);
    }
    let samples = gateway.service.samples();
    assert_eq!((sample(&samples, "restart_required"), sample(&samples, "refused_files")), (0.0, 0.0));
    // An empty list lists nobody.
    site.put("");
    gateway.reread("applied");
    assert_eq!(site.status(gateway, other).0, 403);
}

fn a_list_that_cannot_be_used_changes_nothing_and_is_named(stage: &Stage) {
    let [agent, other] = [0, 0].map(|tier| stage.world().agent(tier));
    let good = format!("{} 3\n", agent.text());
    let site = Listed::start(stage, &good);
    let (gateway, file) = (site.gateway(), site.file());
    let half = format!("{} 3\n{}", other.text(), agent.text());
    let breakages: [(&dyn Fn(), &str); 2] =
        [(&|| site.put(&half), BROKEN), (&|| fs::remove_file(&file).unwrap(), "can't be read: ")];
    for (break_it, why) in breakages {
        break_it();
        until(&format!("{why} is said"), SOON, || {
            let said = |line: &str| {
                line.contains(" ERROR ")
                    && line.contains("the configuration is not applied")
                    && line.contains(why)
            };
            gateway.service.log().lines().any(said).then_some(())
        });
        until("the operator's page names it", SOON, || {
            let mut admin = Connection::open(gateway.service.admin).unwrap();
            let page = admin.send("GET", "/status.json", &[], None).unwrap().json();
            let problem = page["lastReload"]["problems"][0].as_str().unwrap_or_default();
            (problem.starts_with(&format!("{}: ", file.display())) && problem.contains(why)).then_some(())
        });
        let samples = gateway.service.samples();
        assert_eq!(
            ["refused_files", "last_reload_successful"].map(|name| sample(&samples, name)),
            [1.0, 0.0]
        );
        assert_eq!(site.status(gateway, &agent), (200, Some("3".to_owned())), "{why}");
        assert_eq!(site.status(gateway, &other).0, 403, "{why}");
        let named = format!("{}: {why}", file.display());
        for (output, code) in [(gateway.service.command("check", &[]), 2), (gateway.service.run_second(), 1)]
        {
            let said = String::from_utf8(output.stderr).unwrap();
            let is_named = ["tiers.file", &named].iter().all(|text| said.contains(text));
            assert!(output.status.code() == Some(code) && is_named, "{named}: {said}");
        }
    }
    site.put(&format!("{good}{} 1\n", other.text()));
    site.until_tier(gateway, &other, 1);
    assert_eq!(sample(&gateway.service.samples(), "refused_files"), 0.0);
}
