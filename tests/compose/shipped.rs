//! The files of `conf/compose` agree with each other: names, ports, addresses and paths.

use std::{fs, path::Path, process::Command};

use toml::Table;

use super::composition::Composition;
use super::running::{API, GATEWAY, OWNERS, REPLICAS, is_installed, program};

/// Words of a line of `haproxy.cfg`, for each line that begins with this word.
fn lines<'a>(config: &'a str, word: &str) -> Vec<Vec<&'a str>> {
    let lines = config.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.first() == Some(&word)).collect()
}

/// The services that `text` names with a port: `name:PORT`.
fn port_of<'a>(text: &'a str, composition: &Composition) -> (&'a str, u16) {
    let (name, port) = text.rsplit_once(':').unwrap();
    let name = name.rsplit('/').next().unwrap();
    assert!(composition.services.contains_key(name), "{text} names no service");
    (name, port.parse().unwrap())
}

#[test]
fn every_file_volume_and_image_of_the_composition_is_there() {
    let composition = Composition::shipped();
    let mut mounted = 0;
    for (name, service) in &composition.services {
        for (file, inside) in &service.files {
            assert!(file.is_file() && inside.starts_with('/'), "{name}: {}", file.display());
            mounted += 1;
        }
        for (volume, _) in &service.volumes {
            assert!(composition.names("volumes").contains(&volume.as_str()), "{name}: {volume}");
        }
        match (service.image.as_str(), &service.builds_at) {
            ("tiergate" | "tiergate-dev", Some(context)) => {
                let target = if service.image == "tiergate-dev" { "dev" } else { "" };
                assert_eq!(service.target, target, "{name}");
                assert!(context.join("Dockerfile").is_file(), "{name}: {}", context.display());
                assert!(service.is_read_only, "{name} writes nowhere");
            }
            (image, None) => assert!(image.contains(':'), "{name}: {image} has no version"),
            (image, Some(_)) => panic!("{name}: {image} is not what is built"),
        }
        let is_for_trying_out = ["chain", "upstream"].contains(&name.as_str());
        assert_eq!(service.has_health_check, !is_for_trying_out, "{name}");
    }
    assert_eq!(mounted, 7);
    assert_eq!(composition.names("secrets"), ["redis-password"]);
    assert!(!composition.text("redis-password").trim().is_empty());
}

#[test]
fn the_image_reads_the_file_that_is_mounted_and_its_checks_are_commands_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dockerfile = fs::read_to_string(root.join("Dockerfile")).unwrap();
    let config = dockerfile.lines().find_map(|line| line.strip_prefix("ENV TIERGATE_CONFIG=")).unwrap();
    let composition = Composition::shipped();
    for replica in REPLICAS {
        let files = &composition.services[replica].files;
        assert!(files.iter().any(|(file, inside)| inside == config && file.ends_with("tiergate.toml")));
    }
    assert!(dockerfile.contains("CMD [\"/usr/local/bin/tiergate\", \"health\"]"));
    assert!(dockerfile.contains("\nUSER 65532:65532\n") && dockerfile.contains("\nSTOPSIGNAL SIGTERM\n"));
    for kept in ["Cargo.toml", "Cargo.lock", "build.rs", "src", "contracts", "benches", "tests"] {
        let ignore = fs::read_to_string(root.join(".dockerignore")).unwrap();
        assert!(ignore.lines().any(|line| line == format!("!{kept}")) && root.join(kept).exists(), "{kept}");
    }
    for service in composition.services.values().filter(|service| service.builds_at.is_some()) {
        let entrypoint = format!("ENTRYPOINT [\"/usr/local/bin/{}\"]", service.image);
        let stage = match service.target.as_str() {
            "" => dockerfile.rsplit("\nFROM ").next(),
            name => dockerfile
                .split("\nFROM ")
                .find(|stage| stage.lines().next().unwrap().ends_with(&format!(" AS {name}"))),
        };
        assert!(stage.unwrap().contains(&entrypoint), "{}", service.image);
        let command = service.command.iter().map(String::as_str).chain(["--help"]);
        let output = Command::new(program(&service.image)).args(command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn what_the_replicas_are_configured_with_is_what_is_composed() {
    let composition = Composition::shipped();
    let config: Table = composition.text("tiergate.toml").parse().unwrap();
    let redis = port_of(config["store"]["redis"]["url"].as_str().unwrap(), &composition);
    assert_eq!(redis, ("redis", 6_379));
    assert!(composition.text("redis.conf").contains("\nport 6379\n"));
    let secret = config["store"]["redis"]["password_file"].as_str().unwrap();
    for user in ["redis", REPLICAS[0], REPLICAS[1]] {
        let files = &composition.services[user].files;
        assert!(files.iter().any(|(_, inside)| inside == secret), "{user} has no {secret}");
    }
    assert!(composition.services["redis"].command.concat().contains(secret));
    for (key, service) in [("chain", "chain"), ("upstream", "upstream")] {
        let text = match key {
            "chain" => config["chain"]["rpc_urls"][0].as_str().unwrap(),
            _ => config["tenants"][0]["upstreams"][0].as_str().unwrap(),
        };
        let (named, port) = port_of(text, &composition);
        let listens = format!("0.0.0.0:{port}");
        assert!(named == service && composition.services[service].command.contains(&listens), "{text}");
    }
    let balancer = composition.services["balancer"].networks["inside"].unwrap();
    let trusted = config["listen"]["trusted_proxies"].as_array().unwrap();
    assert_eq!(trusted, &[balancer.to_string().into()], "the balancer and nobody else");
    assert!(composition.subnets["inside"].contains(&balancer), "{balancer}");
    let listen = |door: &str| config["listen"][door].as_str().unwrap().to_owned();
    assert_eq!(config["listen"]["gateway"][0].as_str().unwrap(), format!("0.0.0.0:{GATEWAY}"));
    assert_eq!(config["listen"]["owners"][0].as_str().unwrap(), format!("0.0.0.0:{OWNERS}"));
    assert_eq!(listen("api"), format!("0.0.0.0:{API}"));
}

#[test]
fn only_replicas_share_networks_with_others_and_nobody_else_reaches_their_admin_listeners() {
    let composition = Composition::shipped();
    let config: Table = composition.text("tiergate.toml").parse().unwrap();
    assert!(!config["listen"].as_table().unwrap().contains_key("admin"), "it would be the same for both");
    for (name, service) in &composition.services {
        let networks: Vec<&str> = service.networks.keys().map(String::as_str).collect();
        if !REPLICAS.contains(&name.as_str()) {
            let is_shared = |other: &&String| {
                *other != name && composition.services[*other].networks.contains_key(networks[0])
            };
            let others: Vec<&String> = composition.services.keys().filter(is_shared).collect();
            assert_eq!(others, REPLICAS, "{name} and its network");
            assert!(networks.len() == 1 && networks != ["admin"], "{name} is in {networks:?}");
            continue;
        }
        let address = service.networks["admin"].unwrap();
        assert!(composition.subnets["admin"].contains(&address), "{address}");
        let admin = ("TIERGATE__LISTEN__ADMIN".to_owned(), format!("{address}:8082"));
        assert_eq!(service.environment, [admin], "{name}");
    }
}

#[test]
fn the_balancer_knows_every_replica_and_asks_its_api_whether_it_is_ready() {
    let composition = Composition::shipped();
    let config = composition.text("haproxy.cfg");
    let servers: Vec<(&str, u16)> =
        lines(&config, "server").iter().map(|words| port_of(words[2], &composition)).collect();
    let every = |port| REPLICAS.map(|replica| (replica, port));
    assert_eq!(servers, [every(GATEWAY), every(OWNERS), every(API)].concat());
    let checks = &lines(&config, "default-server")[0];
    assert!(checks.windows(2).any(|pair| pair == ["port", &API.to_string()]), "{checks:?}");
    let asks = lines(&config, "option").into_iter().filter(|words| words.contains(&"httpchk"));
    let paths: Vec<&str> = asks.map(|words| words[3]).collect();
    assert_eq!(paths, ["/readyz?for=balancer", "/readyz", "/readyz"], "of gateway, owners and API");
    let binds: Vec<u16> = lines(&config, "bind").iter().map(|words| bound(words[1])).collect();
    let published: Vec<u16> =
        composition.services["balancer"].ports.iter().map(|(_, inside)| *inside).collect();
    assert_eq!(published, [GATEWAY, OWNERS, API]);
    assert!(published.iter().all(|port| binds.contains(port)), "{binds:?}");

    if is_installed("haproxy") {
        let file = composition.folder.join("haproxy.cfg");
        let output = Command::new("haproxy").arg("-c").arg("-f").arg(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn bound(address: &str) -> u16 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn the_check_of_the_program_finds_nothing_wrong_with_the_replicas_file() {
    let composition = Composition::shipped();
    let file = composition.folder.join("tiergate.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_tiergate"))
        .args(["check", "--config", file.to_str().unwrap()])
        .env("TIERGATE__STORE__REDIS__PASSWORD_FILE", composition.folder.join("redis-password"))
        .output()
        .unwrap();
    assert!(output.status.success(), "conf/compose/tiergate.toml: {output:?}");
}
