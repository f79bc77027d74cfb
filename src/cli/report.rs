//! Problems of a configuration for a person, each with its place in the file, or for a script.

use serde_json::{Value, json};

use crate::app::online::Finding;
use crate::config::problem::{Problem, Problems};

/// Problems beyond this number are counted only.
const LISTED_MAX: usize = 1_000;

/// A line for each problem.
pub(super) fn listed(problems: &Problems) -> String {
    let problems = &problems.0;
    let lines = problems.iter().take(LISTED_MAX).map(line);
    let rest = problems.len().checked_sub(LISTED_MAX).filter(|rest| *rest > 0);
    lines.chain(rest.map(|rest| format!("and {rest} more"))).collect::<Vec<_>>().join("\n")
}

/// With the place in front, as compilers write it.
fn line(problem: &Problem) -> String {
    let severity = if problem.is_warning { "warning" } else { "error" };
    match &problem.position {
        Some(position) => format!("{position}: {severity}: {problem}"),
        None => format!("{severity}: {problem}"),
    }
}

/// An object for each problem, and of the same form for each part that was asked.
pub(super) fn json(problems: &Problems, findings: &[Finding]) -> Value {
    let objects = problems.0.iter().map(|problem| {
        let place = problem.position.as_ref();
        json!({
            "severity": if problem.is_warning { "warning" } else { "error" },
            "place": &problem.place,
            "message": &problem.phrase,
            "file": place.map(|place| &*place.file),
            "line": place.map(|place| place.line),
            "column": place.map(|place| place.column),
        })
    });
    let findings = findings.iter().map(|(part, state)| {
        let (severity, message) = match state {
            Ok(seen) => ("info", seen),
            Err(wrong) => ("error", wrong),
        };
        json!({
            "severity": severity, "place": part, "message": message, "file": null, "line": null, "column": null
        })
    });
    objects.chain(findings).collect()
}

#[cfg(test)]
mod tests {
    use super::{json, listed};
    use crate::config::Settings;

    const TEXT: &str = "\
[chain.contracts]
identity = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"
stake_vault = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"
[listen]
api = \"nowhere\"  # of no use
gateway = [\"127.0.0.1:8000\", \"[::1]:x\"]
[store]
kid = \"redis\"
[chain]
chain_id = 8004
development = true
";

    const LINES: &str = "\
tiergate.toml:5:7: error: listen.api: is \"nowhere\"; write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"
tiergate.toml:6:30: error: listen.gateway: item 2 is \"[::1]:x\"; write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"
tiergate.toml:3:15: warning: chain.contracts.stake_vault: is the address of chain.contracts.identity; registries are contracts of their own
tiergate.toml:8:1: error: store.kid: is not a known key; did you mean store.kind?
error: TIERGATE__KEYS: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing";

    #[test]
    fn each_problem_is_listed_with_its_place() {
        let environment = [("TIERGATE__KEYS".to_owned(), "x".to_owned())];
        let problems = Settings::parse(TEXT, environment.into_iter()).unwrap_err();
        assert_eq!(listed(&problems), LINES);
        let objects = json(&problems, &[]);
        let first = serde_json::json!({
            "severity": "error",
            "place": "listen.api",
            "message": "is \"nowhere\"; write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"",
            "file": "tiergate.toml",
            "line": 5,
            "column": 7,
        });
        assert_eq!(
            (&objects[0], &objects[2]["severity"], &objects[4]["line"]),
            (&first, &"warning".into(), &().into())
        );
    }
}
