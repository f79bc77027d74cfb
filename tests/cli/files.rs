//! The program's texts about itself: its version, completions, manual pages and a first configuration.

use std::process::{Command, Stdio};
use std::{fs, io::Write as _, path::Path};

use super::{REGISTRY, command, failure, tiergate};

/// A stake vault.
const VAULT: &str = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512";

/// Standard output of a run that went well.
fn printed(args: &[&str]) -> String {
    let output = tiergate(args);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_version_says_which_features_are_compiled_in_however_it_is_asked_for() {
    let features = if cfg!(feature = "dev-chain") { "dev-chain" } else { "none" };
    for args in [["version"], ["--version"], ["-V"]] {
        let printed = printed(&args);
        assert!(printed.starts_with(concat!("tiergate ", env!("CARGO_PKG_VERSION"), " (")), "{printed}");
        assert!(printed.ends_with(&format!("features: {features})\n")), "{printed}");
    }
}

/// The lines of the build script for cargo, in this folder.
fn built(script: &Path, folder: &Path, variables: &[(&str, &str)]) -> String {
    let mut build = Command::new(script);
    build.current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let output = build.env("CARGO_PKG_VERSION", "1.2.3").envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_release_names_its_commit_and_a_debug_build_is_not_built_again_for_each_commit() {
    let folder = tempfile::tempdir().unwrap();
    let (script, work) = (folder.path().join("script"), folder.path().join("work"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    let compiled = Command::new("rustc").args(["--edition", "2024", source, "-o"]).arg(&script).status();
    assert!(compiled.unwrap().success());
    fs::create_dir(&work).unwrap();
    let release = ("PROFILE", "release");
    assert!(built(&script, &work, &[release]).ends_with("=BUILD_VERSION=1.2.3 (features: none)\n"));

    let git = |args: &str| {
        let output = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@test"])
            .args(args.split(' '))
            .current_dir(&work)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    git("init");
    git("commit --allow-empty --message first");
    let commit = git("rev-parse --short=12 HEAD");
    let said = built(&script, &work, &[release, ("CARGO_FEATURE_DEV_CHAIN", "1")]);
    assert!(said.ends_with(&format!("=1.2.3 (commit {commit}, features: dev-chain)\n")), "{said}");
    let watched = |said: &str| {
        let file = said.lines().find_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
        file.map(|file| fs::read_to_string(work.join(file)).unwrap())
    };
    let before = watched(&said);
    assert!(before.is_some());
    git("commit --allow-empty --message second");
    assert_ne!(watched(&said), before, "cargo asks again when the commit changes");

    assert_eq!(watched(&built(&script, &work, &[("PROFILE", "debug")])), None);
    let said = built(&script, &work, &[release, ("BUILD_COMMIT", "given")]);
    assert!(said.ends_with("(commit given, features: none)\n") && watched(&said).is_none(), "{said}");
    fs::create_dir(work.join("unpacked")).unwrap();
    let said = built(&script, &work.join("unpacked"), &[release, ("BUILD_COMMIT", "")]);
    assert!(said.ends_with("(features: none)\n"), "the commit of the folder above is not ours: {said}");
}

#[test]
fn completions_are_printed_for_every_shell_and_name_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for word in ["explain", "rotate", "--ready", "init"] {
            assert!(script.contains(word.trim_start_matches('-')), "{shell}: {word}");
        }
    }
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(printed(&["completions", "bash"]).as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
}

#[test]
fn every_command_has_a_manual_page() {
    let page = printed(&["man"]);
    assert!(page.starts_with(".ie") && page.contains("tiergate\\-explain(1)"), "{page}");
    assert!(page.contains("Exit codes:"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    printed(&["man", pages.to_str().unwrap()]);
    for name in ["tiergate", "tiergate-run", "tiergate-keys-rotate", "tiergate-completions"] {
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(failure(&tiergate(&["man", file.to_str().unwrap()]), 1).contains("cannot write to"));
}

#[test]
fn a_first_configuration_names_a_service_as_no_other_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| command(args).current_dir(folder.path()).output().unwrap();
    let names = ["one.toml", "two.toml"].map(|file| {
        assert!(run(&["init", file]).status.success());
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        text.lines().find(|line| line.starts_with("domain_name = ")).unwrap().to_owned()
    });
    assert!(names[0] != names[1] && names[0].len() > 20, "{names:?}");
}

#[test]
fn a_first_configuration_passes_the_check_once_chain_and_contracts_are_named_and_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiergate.toml");
    let run = |args: &[&str]| command(args).current_dir(folder.path()).output().unwrap();
    assert!(run(&["init", "--name", "API \"one\""]).status.success());
    let written = fs::read_to_string(&file).unwrap();
    let said = failure(&run(&["check"]), 2);
    assert!(said.contains("used: 3 problems\n"), "chain and contracts alone are missing: {said}");
    assert!(said.contains("chain.chain_id: is required; write the id of the chain"), "{said}");
    assert!(said.contains("contracts.identity") && said.contains("contracts.stake_vault"), "{said}");
    assert!(written.contains("domain_name = 'API \"one\"'"), "{written}");
    let named = ["--name", "API \"one\"", "--chain-id", "8453"];
    let flags = [&named[..], &["--identity", REGISTRY, "--stake-vault", VAULT]].concat();
    assert!(failure(&run(&[&["init"], &flags[..]].concat()), 1).contains("cannot create tiergate.toml"));
    assert_eq!(fs::read_to_string(&file).unwrap(), written);

    let by_hand = written.replace("# chain_id = ...", "chain_id = 8453");
    let by_hand = by_hand.replace("# identity = \"0x...\"", &format!("identity = \"{REGISTRY}\""));
    let by_hand = by_hand.replace("# stake_vault = \"0x...\"", &format!("stake_vault = \"{VAULT}\""));
    fs::write(&file, &by_hand).unwrap();
    let checked = run(&["check", "--strict"]);
    assert!(checked.status.success(), "{checked:?}");
    assert!(run(&[&["init", "other.toml"], &flags[..]].concat()).status.success());
    assert_eq!(fs::read_to_string(folder.path().join("other.toml")).unwrap(), by_hand);
    let mistyped = REGISTRY.replacen('F', "f", 1);
    for wrong in ["0x12", &mistyped, &REGISTRY[2..], "0x0000000000000000000000000000000000000000"] {
        let said = String::from_utf8(run(&["init", "third.toml", "--identity", wrong]).stderr).unwrap();
        assert!(said.contains("--identity") && !folder.path().join("third.toml").exists(), "{said}");
    }
}

#[test]
fn a_first_configuration_for_erc8004_needs_a_chain_alone_where_its_registries_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiergate.toml");
    let run = |args: &[&str]| command(args).current_dir(folder.path()).output().unwrap();
    let init = |further: &[&str]| {
        let _ = fs::remove_file(&file);
        let written = run(&[&["init", "--name", "API", "--registries", "erc8004"], further].concat());
        assert!(written.status.success(), "{written:?}");
        (run(&["check", "--strict"]), fs::read_to_string(&file).unwrap().parse::<toml::Table>().unwrap())
    };
    let (checked, written) = init(&["--chain-id", "8453"]);
    assert!(checked.status.success(), "{checked:?}");
    let keys = |section: &str| written[section].as_table().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys("chain"), ["chain_id", "contracts", "registries", "rpc_urls"]);
    assert_eq!(keys("tiers"), ["requests_per_minute", "source", "tier"]);
    assert_eq!(written["tiers"]["source"].as_str(), Some("everyone"));

    let has_remark = || fs::read_to_string(&file).unwrap().contains("no feedback can give tiers");
    assert!(!has_remark());
    let (checked, _) = init(&["--chain-id", "2741"]);
    assert!(checked.status.success() && has_remark(), "{checked:?}");

    let (checked, _) = init(&["--chain-id", "31337"]);
    assert!(
        failure(&checked, 2).contains("chain.contracts.identity: is required; no ERC-8004 registry is known")
    );
    let (checked, written) = init(&["--chain-id", "31337", "--identity", REGISTRY, "--stake-vault", VAULT]);
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(written["chain"]["registries"].as_str(), Some("erc8004"));
    assert!(written["tiers"].get("stake").is_some() && written["tiers"].get("source").is_none());
    assert!(!run(&["init", "other.toml", "--registries", "erc721"]).status.success());
}
