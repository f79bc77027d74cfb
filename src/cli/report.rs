//! Problems of a configuration for a person, with the place in the file drawn, or for a script.

use std::io::{self, IsTerminal};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use crate::app::online::Finding;
use crate::config::problem::{Excerpt, Problem, Problems};

/// Problems beyond this number are counted only.
const DRAWN_MAX: usize = 1_000;

/// A picture for each problem, one after the other; in colour on a terminal.
pub(super) fn drawn(problems: &Problems) -> String {
    // https://no-color.org
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_colour = !is_plain && io::stderr().is_terminal();
    let renderer = if has_colour { Renderer::styled() } else { Renderer::plain() };
    let problems = problems.as_slice();
    let drawn = problems.iter().take(DRAWN_MAX).map(|problem| renderer.render(&[picture(problem)]));
    let rest = problems.len().checked_sub(DRAWN_MAX).filter(|rest| *rest > 0);
    drawn.chain(rest.map(|rest| format!("and {rest} more"))).collect::<Vec<_>>().join("\n\n")
}

fn picture(problem: &Problem) -> Group<'_> {
    let level = if problem.is_warning() { Level::WARNING } else { Level::ERROR };
    let title = level.primary_title(problem.to_string());
    match problem.excerpt() {
        Some(Excerpt { file, line, column, text, .. }) if text.is_empty() => {
            title.element(Origin::path(file).line(*line).char_column(*column))
        }
        Some(found) => {
            let marked = AnnotationKind::Primary.span(found.marked.clone());
            let line = Snippet::source(&found.text).path(&found.file).line_start(found.line);
            title.element(line.annotation(marked))
        }
        None => Group::with_title(title),
    }
}

/// An object for each problem, and of the same form for each part that was asked.
pub(super) fn json(problems: &Problems, findings: &[Finding]) -> Value {
    let objects = problems.as_slice().iter().map(|problem| {
        let place = problem.excerpt();
        json!({
            "severity": if problem.is_warning() { "warning" } else { "error" },
            "place": problem.place(),
            "message": problem.phrase(),
            "file": place.map(|place| &place.file),
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
    use super::{drawn, json};
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

    const PICTURE: &str = "\
error: listen.api: is \"nowhere\"; write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"
 --> tiergate.toml:5:7
  |
5 | api = \"nowhere\"
  |       ^^^^^^^^^

error: listen.gateway: item 2 is \"[::1]:x\"; write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"
 --> tiergate.toml:6:30
  |
6 | gateway = [\"127.0.0.1:8000\", \"[::1]:x\"]
  |                              ^^^^^^^^^

warning: chain.contracts.stake_vault: is the address of chain.contracts.identity; registries are contracts of their own
 --> tiergate.toml:3:15
  |
3 | stake_vault = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"
  |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

error: store.kid: is not a known key; did you mean store.kind?
 --> tiergate.toml:8:1
  |
8 | kid = \"*****\"
  | ^^^

error: TIERGATE__KEYS: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing";

    #[test]
    fn of_a_line_that_is_too_long_the_place_alone_is_shown() {
        let text = format!("{} = 1", "x".repeat(1_000));
        let problems = Settings::parse(&text, std::iter::empty()).unwrap_err();
        assert!(
            drawn(&problems).contains("is not a known key\n--> tiergate.toml:1:1"),
            "{}",
            drawn(&problems)
        );
    }

    #[test]
    fn each_problem_is_drawn_at_its_place() {
        let environment = [("TIERGATE__KEYS".to_owned(), "x".to_owned())];
        let problems = Settings::parse(TEXT, environment.into_iter()).unwrap_err();
        assert_eq!(drawn(&problems), PICTURE);
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
