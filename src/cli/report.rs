//! Problems of a configuration for a person, each with its place in the file, or for a script.

use serde_json::{Value, json};

use crate::app::online::Finding;
use crate::config::problem::{Position, Problem, Problems};

/// Problems beyond this number are counted only.
const LISTED_MAX: usize = 1_000;

/// A line for each problem, with the place in front, as compilers write it.
pub(super) fn listed(problems: &Problems) -> String {
    let lines = problems.0.iter().take(LISTED_MAX).map(|problem| {
        let place = problem.position.as_ref().map(|position| format!("{position}: ")).unwrap_or_default();
        format!("{place}{}: {problem}", severity_of(problem))
    });
    let rest = problems.0.len().checked_sub(LISTED_MAX).filter(|rest| *rest > 0);
    lines.chain(rest.map(|rest| format!("and {rest} more"))).collect::<Vec<_>>().join("\n")
}

const fn severity_of(problem: &Problem) -> &'static str {
    if problem.is_warning { "warning" } else { "error" }
}

/// An object for each problem, and of the same form for each part that was asked.
pub(super) fn json(problems: &Problems, findings: &[Finding]) -> Value {
    let object = |severity: &str, place: &str, message: &str, at: Option<&Position>| {
        let (file, line, column) = (at.map(|at| &*at.file), at.map(|at| at.line), at.map(|at| at.column));
        json!({
            "severity": severity, "place": place, "message": message, "file": file, "line": line, "column": column
        })
    };
    let problems = problems.0.iter().map(|problem| {
        object(severity_of(problem), &problem.place, &problem.phrase, problem.position.as_ref())
    });
    let findings = findings.iter().map(|(part, state)| match state {
        Ok(seen) => object("info", part, seen, None),
        Err(wrong) => object("error", part, wrong, None),
    });
    problems.chain(findings).collect()
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
