//! The image, the units of systemd and the manifests of Kubernetes: each is valid for a tool of its own, is as confined as
//! the pages say, and gives the process the time that it takes to drain.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::Path, process::Command, time::Duration};

use yaml_rust2::{Yaml, YamlLoader};

use super::{read, root, tool};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tiergate");

const UNITS: [&str; 2] = ["tiergate.service", "tiergate.socket"];

/// The highest exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE_MAX: &str = "20";

/// How long the process takes to end by default.
fn drain() -> Duration {
    let settings: toml::Table = read("conf/tiergate.toml").parse().unwrap();
    let shutdown = settings.get("shutdown").unwrap();
    let of = |key: &str| humantime::parse_duration(shutdown.get(key).unwrap().as_str().unwrap()).unwrap();
    of("delay") + of("grace")
}

fn passes(name: &str, arguments: &[&str], folder: &Path) -> Option<String> {
    let output = tool(name, arguments, folder)?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stdout}{stderr}");
    Some(stdout)
}

#[test]
fn the_image_is_built_from_the_lock_file_and_its_linter_finds_nothing() {
    assert!(read("Dockerfile").contains("cargo build --release --locked"));
    passes("hadolint", &["Dockerfile"], &root());
}

/// Its EVM has accounts whose keys everybody knows.
#[test]
fn what_ships_has_no_development_chain_and_is_stripped_with_its_symbols_beside_it() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    assert!(manifest["features"].get("default").is_none());
    assert_eq!(manifest["profile"]["release"]["strip"].as_str(), Some("symbols"));
    let dockerfile = read("Dockerfile");
    let stage = |start: &str| dockerfile.split("\nFROM ").find(|stage| stage.starts_with(start)).unwrap();
    assert!(
        !stage("source AS build\n").contains("feature") && dockerfile.contains("\nFROM scratch AS symbols\n")
    );
    let shipped = dockerfile.rsplit("\nFROM ").next().unwrap();
    assert!(!shipped.contains("-dev") && shipped.contains("COPY --from=build /image/tiergate "), "{shipped}");
    let is_development = |program: &&toml::Value| program["name"].as_str() == Some("tiergate-dev");
    let development = manifest["bin"].as_array().unwrap().iter().find(is_development).unwrap();
    assert_eq!(development["required-features"].as_array().unwrap(), &[toml::Value::from("dev-chain")]);
    let dist = read("scripts/dist");
    assert!(dist.contains("\nprograms=\"tiergate: tiergate-dev:dev-chain\"\n"));
    for text in [dockerfile.clone(), dist] {
        for step in
            ["RELEASE_DEBUG=line-tables-only", "--only-keep-debug", "--strip-all --add-gnu-debuglink="]
        {
            assert!(text.contains(step), "{step}");
        }
    }
}

/// How the script types a section: in the container, beside it, and in a clone.
const WAYS: [&str; 3] = ["typed", "typed_beside", "typed_in_clone"];

/// They need root and containers: `make dist-try` types them before a release.
#[test]
fn each_section_of_the_page_about_installing_that_has_commands_is_typed_by_the_try_of_a_release() {
    let (page, script) = (read("docs/install.md"), read("scripts/dist-try"));
    let sections = page.split("\n## ").flat_map(|section| section.split("\n### "));
    let mut typed = 0;
    for section in sections.filter(|section| section.contains("\n```sh\n")) {
        let heading = section.lines().next().unwrap();
        let is_typed = |how: &&str| script.contains(&format!(" {how} \"{heading}\""));
        assert!(WAYS.iter().any(is_typed), "{heading}");
        typed += 1;
    }
    assert_eq!(WAYS.map(|how| script.matches(&format!(" {how} \"")).count()).iter().sum::<usize>(), typed);
}

/// The package's unit is made from ours by replacing these lines, each of which has to be there once.
#[test]
fn the_unit_has_the_lines_that_the_package_replaces() {
    let (unit, script) = (read("deploy/systemd/tiergate.service"), read("scripts/dist.d/package.py"));
    for line in
        ["ExecStart=/usr/local/bin/", "# A user that exists while the service runs. ", "DynamicUser=yes"]
    {
        assert_eq!(unit.matches(line).count(), 1, "{line}");
        assert!(script.contains(&format!("(\"{line}\"")), "{line}");
    }
}

#[test]
fn the_chart_names_the_image_by_its_digest_if_there_is_one() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let Some(with) = rendered_with(&format!("image: {{repository: registry.example/x, digest: '{digest}'}}"))
    else {
        return;
    };
    assert!(with.contains(&format!("image: \"registry.example/x@{digest}\"")), "{with}");
    let without = rendered(&[]).unwrap();
    assert!(without.contains(concat!("image: \"tiergate:", env!("CARGO_PKG_VERSION"), "\"")), "{without}");
    assert_eq!(read("deploy/helm/tiergate/values.yaml").matches("\n  digest: \"\"\n").count(), 1);
}

#[test]
fn every_package_says_that_its_licence_is_not_decided_and_none_names_one() {
    let packages = ["Cargo.toml", "clients/python/pyproject.toml", "clients/typescript/package.json"];
    for file in
        ["README.md", packages[0], packages[1], "clients/python/README.md", "clients/typescript/README.md"]
    {
        assert!(read(file).contains("licence is not decided yet"), "{file}");
    }
    for file in packages {
        let names_one = |line: &str| line.trim_start().trim_start_matches('"').starts_with("license");
        assert!(!read(file).lines().any(names_one), "{file}");
    }
}

#[test]
fn the_units_of_systemd_are_valid_and_confined() {
    let folder = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let text = read(&format!("deploy/systemd/{unit}")).replace("/usr/local/bin/tiergate", PROGRAM);
        fs::write(folder.path().join(unit), text).unwrap();
    }
    passes("systemd-analyze", &["verify", "./tiergate.service", "./tiergate.socket"], folder.path());
    let security =
        ["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX, "tiergate.service"];
    passes("systemd-analyze", &security, folder.path());
}

/// A socket at another address than the listener's takes the port from it, and the start fails.
#[test]
fn the_sockets_of_systemd_have_the_addresses_of_the_file_that_init_writes() {
    let settings: toml::Table = read("conf/tiergate.toml").parse().unwrap();
    let init: toml::Table = read("src/cli/init.toml").parse().unwrap();
    let gateway = init["listen"]["gateway"][0].as_str();
    let expected = [gateway, settings["listen"]["api"].as_str(), settings["listen"]["admin"].as_str()];
    let unit = read("deploy/systemd/tiergate.socket");
    let sockets = unit.lines().filter_map(|line| line.strip_prefix("ListenStream="));
    assert_eq!(sockets.map(Some).collect::<Vec<_>>(), expected);
}

/// An address that comes late or a disk that is full must not leave the unit failed for good, nor a socket without an address.
#[test]
fn systemd_tries_a_start_that_fails_again_for_as_long_as_it_takes() {
    let [service, socket] = UNITS.map(|unit| read(&format!("deploy/systemd/{unit}")));
    let section = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("[{name}]\n")).unwrap();
        rest.split("\n[").next().unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |text: &str, name: &str, line: &str| section(text, name).iter().any(|found| found == line);
    assert!(has(&service, "Unit", "StartLimitIntervalSec=0"));
    assert!(has(&service, "Service", "Restart=always"));
    assert!(has(&socket, "Socket", "FreeBind=yes"));
}

#[test]
fn systemd_waits_longer_than_the_process_drains() {
    let unit = read("deploy/systemd/tiergate.service");
    let wait = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    assert!(Duration::from_secs(wait.parse().unwrap()) > drain(), "{wait}");
}

/// The chart as it is rendered with these further arguments; `None` without Helm.
fn rendered(arguments: &[&str]) -> Option<String> {
    let base = ["template", "agents", "tiergate", "--values", "examples/shared.yaml"];
    passes("helm", &[&base, arguments].concat(), &root().join("deploy/helm"))
}

#[test]
fn users_families_of_addresses_and_ways_in_can_be_left_to_the_platform() {
    let values = "podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}\nworkers: 0\nlistenHost: 0.0.0.0\n\
                  service: {type: LoadBalancer, externalTrafficPolicy: Local, loadBalancerClass: example.com/lb,\n  \
                  ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6, IPv4]}\nauthz: {enabled: true, secret: asked}";
    let Some(platform) = rendered_with(values) else { return };
    assert_ne!(is_valid(&platform), Some(false), "{platform}");
    let found = objects(&platform);
    let context = &find(&found, "Deployment")["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(context["runAsNonRoot"].as_bool(), Some(true));
    assert!(
        ["runAsUser", "runAsGroup", "fsGroup"].iter().all(|key| context[*key].is_badvalue()),
        "{context:?}"
    );
    assert!(!platform.contains("LISTEN__WORKERS") && platform.contains("0.0.0.0:8000\\\"]"));
    let services = found.iter().filter(|object| object["kind"].as_str() == Some("Service"));
    let families = services.map(|service| {
        let families: Vec<&str> = items(&service["spec"]["ipFamilies"]).map(text).collect();
        (text(&service["spec"]["ipFamilyPolicy"]), families)
    });
    assert_eq!(families.collect::<Vec<_>>(), vec![("PreferDualStack", vec!["IPv6", "IPv4"]); 4]);
    let spec = &named(&found, "Service", "agents").unwrap()["spec"];
    let way = ["type", "externalTrafficPolicy", "loadBalancerClass"].map(|key| text(&spec[key]));
    assert_eq!(way, ["LoadBalancer", "Local", "example.com/lb"]);

    let usual = objects(&rendered(&[]).unwrap());
    let container = container(find(&usual, "Deployment"));
    let listens = items(&container["env"]).filter(|variable| text(&variable["value"]).contains(":80"));
    assert!(listens.map(|variable| text(&variable["value"])).all(|at| at.contains("[::]:")));
    let spec = &named(&usual, "Service", "agents").unwrap()["spec"];
    assert!(["externalTrafficPolicy", "ipFamilyPolicy"].iter().all(|key| spec[*key].is_badvalue()));
    // Without a limit of processors the program would have a thread for each of the node's.
    let has_workers = items(&container["env"]).any(|variable| text(&variable["name"]).ends_with("WORKERS"));
    assert!(has_workers || !container["resources"]["limits"]["cpu"].is_badvalue());
}

#[test]
fn a_gateway_in_the_cluster_asks_at_the_port_of_the_chart() {
    let Some(rendered) = rendered_with("authz: {enabled: true, secret: asked}") else { return };
    let objects = objects(&rendered);
    let port =
        named(&objects, "Service", "agents-authz").unwrap()["spec"]["ports"][0]["port"].as_i64().unwrap();
    for file in ["istio.yaml", "envoy-gateway.yaml"] {
        assert!(read(&format!("conf/behind/{file}")).contains(&format!("port: {port}\n")), "{file}");
    }
}

/// Values of a chart with everything that a user may add to a pod.
const FURTHER: &str = r#"
autoscaling: {enabled: false}
tlsSecret: tls
replicas: 1
strategy: {type: Recreate}
tenants: {weather: null}
podAnnotations: {example: "yes"}
extraEnv: [{name: TIERGATE__CHAIN__MAX_STALENESS, value: 7s}, {name: ZONE, value: one}]
extraVolumes: [{name: certificates, secret: {secretName: certificates}}]
extraVolumeMounts: [{name: certificates, mountPath: /etc/certificates, readOnly: true}]
"#;

/// The chart with these values over those of the example; `None` without Helm.
fn rendered_with(values: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    fs::write(&file, values).unwrap();
    rendered(&["--values", file.to_str().unwrap()])
}

/// The same where the chart refuses the values: its words.
fn refusal(values: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    fs::write(&file, values).unwrap();
    let arguments = ["template", "agents", "tiergate", "--values", "examples/shared.yaml", "--values"];
    let arguments = [&arguments[..], &[file.to_str().unwrap()]].concat();
    let output = tool("helm", &arguments, &root().join("deploy/helm"))?;
    assert!(!output.status.success(), "{values}");
    Some(String::from_utf8(output.stderr).unwrap())
}

/// All of the pods that are shipped for Kubernetes.
fn manifests() -> Vec<String> {
    let rendered = ["", FURTHER].into_iter().filter_map(rendered_with);
    rendered.chain([read("deploy/kubernetes/sidecar.yaml")]).collect()
}

fn objects(manifests: &str) -> Vec<Yaml> {
    let objects = YamlLoader::load_from_str(manifests).unwrap();
    objects.into_iter().filter(|object| !object["kind"].is_badvalue()).collect()
}

/// True if the manifests are valid for Kubernetes; `None` without its schemas.
fn is_valid(manifests: &str) -> Option<bool> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("all.yaml"), manifests).unwrap();
    let output = tool("kubernetes-validate", &["--strict", "all.yaml"], folder.path())?;
    Some(output.status.success())
}

fn find<'a>(objects: &'a [Yaml], kind: &str) -> &'a Yaml {
    objects.iter().find(|object| object["kind"].as_str() == Some(kind)).unwrap()
}

/// The container of Tiergate, in which place it may be.
fn container(deployment: &Yaml) -> &Yaml {
    let pod = &deployment["spec"]["template"]["spec"];
    let containers = ["containers", "initContainers"].into_iter().flat_map(|key| pod[key].as_vec()).flatten();
    containers.into_iter().find(|container| container["name"].as_str() == Some("tiergate")).unwrap()
}

fn text(yaml: &Yaml) -> &str {
    yaml.as_str().unwrap()
}

fn items(yaml: &Yaml) -> impl Iterator<Item = &Yaml> {
    yaml.as_vec().into_iter().flatten()
}

fn named<'a>(objects: &'a [Yaml], kind: &str, name: &str) -> Option<&'a Yaml> {
    let is_it = |object: &&Yaml| {
        object["kind"].as_str() == Some(kind) && object["metadata"]["name"].as_str() == Some(name)
    };
    objects.iter().find(is_it)
}

#[test]
fn the_chart_has_no_fault_that_helm_finds() {
    let arguments = ["lint", "--strict", "tiergate", "--values", "examples/shared.yaml"];
    passes("helm", &arguments, &root().join("deploy/helm"));
    let chart = YamlLoader::load_from_str(&read("deploy/helm/tiergate/Chart.yaml")).unwrap().remove(0);
    assert_eq!(text(&chart["appVersion"]), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_manifests_are_valid_for_kubernetes() {
    for manifests in manifests().into_iter().chain([read("deploy/helm/examples/ingress.yaml")]) {
        assert_ne!(is_valid(&manifests), Some(false), "{manifests}");
        if !manifests.contains("kind: Deployment") {
            continue;
        }
        let broken = manifests.replace("readOnlyRootFilesystem:", "readOnlyRoot:");
        assert_ne!(is_valid(&broken), Some(true));
    }
}

#[test]
fn the_manifests_confine_the_process_probe_it_and_wait_until_it_has_drained() {
    for manifests in manifests() {
        let objects = objects(&manifests);
        let deployment = find(&objects, "Deployment");
        let pod = &deployment["spec"]["template"]["spec"];
        let grace = u64::try_from(pod["terminationGracePeriodSeconds"].as_i64().unwrap()).unwrap();
        assert!(Duration::from_secs(grace) > drain(), "{grace}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
        let container = container(deployment);
        let security = &container["securityContext"];
        assert_eq!(security["readOnlyRootFilesystem"].as_bool(), Some(true));
        assert_eq!(security["allowPrivilegeEscalation"].as_bool(), Some(false));
        assert_eq!(text(&security["capabilities"]["drop"][0]), "ALL");
        // An outage of store or chain takes no pod out that has reached both once.
        for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz?for=balancer")] {
            assert_eq!(text(&container[probe]["httpGet"]["path"]), path);
        }
    }
}

/// Writes what a pod sees in `/etc/tiergate` as kubelet does: the files of a folder are links into another one that is
/// exchanged as a whole, and a file that is mounted alone is a copy.
fn mount(objects: &[Yaml], folder: &Path) {
    let deployment = find(objects, "Deployment");
    for mount in items(&container(deployment)["volumeMounts"]) {
        let Some(place) = text(&mount["mountPath"]).strip_prefix("/etc/tiergate") else { continue };
        let is_it = |volume: &&Yaml| volume["name"] == mount["name"];
        let volume = items(&deployment["spec"]["template"]["spec"]["volumes"]).find(is_it).unwrap();
        let Some(map) = volume["configMap"]["name"].as_str() else { continue };
        assert!(volume["configMap"]["items"].is_badvalue(), "a list of files is a part of the pod");
        let data = named(objects, "ConfigMap", map).unwrap()["data"].as_hash().unwrap();
        let data: BTreeMap<&str, &str> = data.iter().map(|(key, value)| (text(key), text(value))).collect();
        let place = folder.join(place.trim_start_matches('/'));
        if let Some(file) = mount["subPath"].as_str() {
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, data.get(file).unwrap()).unwrap();
            continue;
        }
        let version = place.join("..2026_11_24_03_00_00.1");
        fs::create_dir_all(&version).unwrap();
        symlink(version.file_name().unwrap(), place.join("..data")).unwrap();
        for (file, text) in data {
            fs::write(version.join(file), text).unwrap();
            symlink(Path::new("..data").join(file), place.join(file)).unwrap();
        }
    }
}

#[test]
fn the_configurations_in_the_manifests_are_good() {
    for manifests in manifests() {
        let objects = objects(&manifests);
        let folder = tempfile::tempdir().unwrap();
        mount(&objects, folder.path());
        let environment = items(&container(find(&objects, "Deployment"))["env"])
            .map(|variable| (text(&variable["name"]), text(&variable["value"])))
            .filter(|(name, _)| !name.contains("TLS"));
        let output = Command::new(PROGRAM)
            .args(["check", "--strict", "--config"])
            .arg(folder.path().join("tiergate.toml"))
            .envs(environment)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// kubectl applies them one after the other.
#[test]
fn every_object_stands_behind_those_that_it_refers_to() {
    for manifests in manifests() {
        let objects = objects(&manifests);
        let is_behind = |at: usize, kind: &str, name: &Yaml| {
            objects[..at]
                .iter()
                .any(|other| text(&other["kind"]) == kind && other["metadata"]["name"] == *name)
        };
        for (at, object) in objects.iter().enumerate() {
            let pod = &object["spec"]["template"]["spec"];
            let maps = items(&pod["volumes"]).map(|volume| ("ConfigMap", &volume["configMap"]["name"]));
            let account = ("ServiceAccount", &pod["serviceAccountName"]);
            let scaled = ("Deployment", &object["spec"]["scaleTargetRef"]["name"]);
            for (kind, name) in maps.chain([account, scaled]).filter(|(_, name)| !name.is_badvalue()) {
                assert!(is_behind(at, kind, name), "{kind} {name:?}");
            }
        }
    }
}

/// The keys of the tenants' ConfigMap, and the other objects.
fn tenants_and_others(rendered: &str) -> (Vec<String>, Vec<Yaml>) {
    let is_tenants = |object: &Yaml| object["metadata"]["name"].as_str() == Some("agents-tenants");
    let (tenants, others): (Vec<Yaml>, _) = objects(rendered).into_iter().partition(is_tenants);
    let keys = tenants.first().unwrap()["data"].as_hash().unwrap().keys();
    (keys.map(|name| text(name).to_owned()).collect(), others)
}

#[test]
fn a_tenant_more_or_less_changes_no_pod_and_another_configuration_makes_other_pods() {
    let Some(first) = rendered(&[]) else { return };
    let (tenants, others) = tenants_and_others(&first);
    assert_eq!(tenants, ["vault.toml", "weather.toml"]);
    for (values, expected) in [
        ("tenants: {third: \"id = 'third'\"}", &["third.toml", "vault.toml", "weather.toml"][..]),
        ("tenants: {weather: null}", &["vault.toml"]),
        ("tenants: {weather: null, vault: null}", &[]),
        ("tenants: {vault: \"id = 'other'\"}", &["vault.toml", "weather.toml"]),
    ] {
        let (tenants, same) = tenants_and_others(&rendered_with(values).unwrap());
        assert!(same == others, "{values}");
        assert_eq!(tenants, expected, "{values}");
    }
    let (_, changed) = tenants_and_others(&rendered_with("config: \"[store]\\nkind = 'redis'\"").unwrap());
    let changed = changed.iter().zip(&others).filter(|(after, before)| after != before);
    let kinds: Vec<&str> = changed.map(|(after, _)| text(&after["kind"])).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment"]);
}

#[test]
fn what_a_user_adds_to_a_pod_is_in_it() {
    let Some(rendered) = rendered_with(FURTHER) else { return };
    let objects = objects(&rendered);
    let deployment = find(&objects, "Deployment");
    assert_eq!(deployment["spec"]["strategy"].as_hash().unwrap().len(), 1, "Recreate has no parameters");
    let (pod, container) = (&deployment["spec"]["template"], container(deployment));
    assert_eq!(pod["metadata"]["annotations"].as_hash().unwrap().len(), 2);
    let has = |list: &Yaml, name: &str| items(list).any(|item| item["name"].as_str() == Some(name));
    assert!(has(&container["env"], "ZONE") && has(&container["volumeMounts"], "certificates"));
    assert!(has(&pod["spec"]["volumes"], "certificates"));
}

/// Values with an embedded store in place of Redis.
fn embedded(path: &str, further: &str) -> String {
    let path = if path.is_empty() { String::new() } else { format!("[store.embedded]\n  path = '{path}'\n") };
    format!(
        "config: |\n  # kind = \"redis\"\n  [store]\n  kind = 'embedded'\n  {path}  [[tenants]]\n  path = '/x'\n{further}"
    )
}

#[test]
fn the_chart_refuses_an_embedded_store_without_a_volume_or_with_a_second_process() {
    let alone = "autoscaling: {enabled: false}\nreplicas: 1\nstrategy: {type: Recreate}\n";
    let mounted = |at: &str| {
        format!(
            "{alone}extraVolumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]\n\
             extraVolumeMounts: [{{name: data, mountPath: {at}}}]\n"
        )
    };
    for (path, at) in [
        ("", "/var/lib/tiergate/data"),
        ("", "/var/lib"),
        ("./keys", "/var/lib/tiergate/keys/"),
        ("/srv/keys", "/srv"),
    ] {
        let values = embedded(path, &mounted(at));
        if rendered_with(&values).is_none() {
            return;
        }
        let needs = ["autoscaling: {enabled: true}", "replicas: 2", "strategy: {type: RollingUpdate}"];
        for (number, need) in needs.into_iter().enumerate() {
            let without = alone.lines().enumerate().filter(|(line, _)| *line != number);
            let others: Vec<&str> = without.map(|(_, line)| line).chain([need]).collect();
            let words = refusal(&values.replace(alone, &(others.join("\n") + "\n"))).unwrap();
            assert!(words.contains("one process at a time opens the embedded store"), "{words}");
        }
    }
    for (path, at) in
        [("", "/var/lib/tiergate/database"), ("/srv/keys", "/srv/keys/below"), ("/srv", "/etc/x")]
    {
        let words = refusal(&embedded(path, &mounted(at))).unwrap();
        assert!(words.contains("the root of the container is read-only: mount a volume there"), "{words}");
    }
    let read_only = mounted("/srv").replace("mountPath: /srv", "mountPath: /srv, readOnly: true");
    assert!(refusal(&embedded("/srv", &read_only)).unwrap().contains("mount a volume there"));
    assert!(refusal(&embedded("", alone)).unwrap().contains("mount a volume there"));
    let by_variable = "extraEnv: [{name: TIERGATE__STORE__KIND, value: redis}]";
    assert!(rendered_with(&embedded("", by_variable)).is_some());
}

/// Ports of a container by their names.
fn ports(container: &Yaml) -> BTreeMap<&str, i64> {
    let ports = items(&container["ports"]);
    ports.map(|port| (text(&port["name"]), port["containerPort"].as_i64().unwrap())).collect()
}

#[test]
fn metrics_are_open_to_those_who_are_named_and_no_policy_names_a_port_that_there_is_not() {
    let without_peers = "networkPolicy: {clients: null, metrics: null}\npodMonitor: {enabled: false}";
    let asked = "authz: {enabled: true, secret: asked}\nnetworkPolicy: {gateways: [{podSelector: {matchLabels: {app: envoy}}}], metrics: null}\n\
                 podMonitor: {enabled: false}";
    let variants = [rendered(&[]), rendered_with(without_peers), rendered_with(asked)];
    let sidecar = read("deploy/kubernetes/sidecar.yaml");
    for manifests in variants.into_iter().flatten().chain([sidecar]) {
        let objects = objects(&manifests);
        let policy = &find(&objects, "NetworkPolicy")["spec"];
        let deployment = find(&objects, "Deployment");
        let labels = deployment["spec"]["template"]["metadata"]["labels"].as_hash().unwrap();
        for (label, value) in policy["podSelector"]["matchLabels"].as_hash().unwrap() {
            assert_eq!(labels.get(label), Some(value));
        }
        let ports = ports(container(deployment));
        for rule in items(&policy["ingress"]) {
            let named: Vec<&str> = items(&rule["ports"]).map(|port| text(&port["port"])).collect();
            assert!(!named.is_empty() && named.iter().all(|port| ports.contains_key(port)), "{named:?}");
            let is_inside = named.iter().any(|port| !["gateway", "owners"].contains(port));
            assert!(!is_inside || items(&rule["from"]).next().is_some(), "everybody reaches {named:?}");
        }
        let clients = items(&policy["ingress"]).find(|rule| text(&rule["ports"][0]["port"]) == "gateway");
        assert!(clients.is_some());
    }
    let Some(closed) = rendered_with(without_peers) else { return };
    let closed = objects(&closed);
    let open =
        items(&find(&closed, "NetworkPolicy")["spec"]["ingress"]).flat_map(|rule| items(&rule["ports"]));
    assert!(open.into_iter().all(|port| text(&port["port"]) != "metrics"));
    let words = refusal("networkPolicy: {metrics: null}").unwrap();
    assert!(words.contains("networkPolicy.metrics: name Prometheus"), "{words}");
    let for_gateways = rendered_with(asked).unwrap();
    let for_gateways = objects(&for_gateways);
    assert_eq!(ports(container(find(&for_gateways, "Deployment")))["authz"], 8_083);
    let service = named(&for_gateways, "Service", "agents-authz").unwrap();
    assert_eq!(
        (text(&service["spec"]["clusterIP"]), text(&service["spec"]["ports"][0]["targetPort"])),
        ("None", "authz")
    );
    let words = refusal("authz: {enabled: true}").unwrap();
    assert!(words.contains("authz.secret: name a Secret"), "{words}");
    let config = |line: &str| {
        format!("authz: {{enabled: true}}\nconfig: |\n  [store]\n  kind = 'redis'\n  [authz.tls]\n  {line}\n")
    };
    for line in [
        "# client_ca = '/etc/ca'",
        "cert = '/etc/client_ca'",
        "cert = 'x' # client_ca = '/etc/ca'",
        "client_ca = ''",
    ] {
        assert!(refusal(&config(line)).unwrap().contains("authz.secret: name a Secret"), "{line}");
    }
    for line in ["client_ca = '/etc/ca'", "tls = { client_ca = \"/etc/ca\" }"] {
        assert!(rendered_with(&config(line)).is_some(), "{line}");
    }
    let by_variable =
        "authz: {enabled: true}\nextraEnv: [{name: TIERGATE__AUTHZ__TLS__CLIENT_CA, value: /etc/ca}]";
    assert!(rendered_with(by_variable).is_some());
    let without = rendered_with("networkPolicy: {enabled: false}").unwrap();
    assert!(!without.contains("kind: NetworkPolicy"));
}

#[test]
fn the_ingress_leads_agents_to_the_gateway_and_owners_to_their_own_port() {
    let Some(rendered) = rendered(&[]) else { return };
    let objects = objects(&rendered);
    let targets = ports(container(find(&objects, "Deployment")));
    let hosts: Vec<String> =
        tenants_and_others(&rendered).0.iter().map(|file| file.replace("toml", "example")).collect();
    let ingress = YamlLoader::load_from_str(&read("deploy/helm/examples/ingress.yaml")).unwrap().remove(0);
    let mut reached = BTreeMap::new();
    for rule in items(&ingress["spec"]["rules"]) {
        let backend = &rule["http"]["paths"][0]["backend"]["service"];
        let service = named(&objects, "Service", text(&backend["name"])).unwrap();
        let is_it = |port: &&Yaml| port["name"] == backend["port"]["name"];
        let port = items(&service["spec"]["ports"]).find(is_it).unwrap();
        reached.insert(text(&rule["host"]), targets[text(&port["targetPort"])]);
    }
    assert!(hosts.iter().all(|host| reached.remove(host.as_str()) == Some(8_000)), "{reached:?}");
    assert_eq!(reached.into_values().collect::<Vec<_>>(), [8_081]);
}

#[test]
fn no_example_believes_a_network_that_other_pods_are_in() {
    let mut asked = 0;
    let sidecar = objects(&read("deploy/kubernetes/sidecar.yaml"));
    let sidecar: toml::Table = text(&find(&sidecar, "ConfigMap")["data"]["tiergate.toml"]).parse().unwrap();
    let chart = YamlLoader::load_from_str(&read("deploy/helm/examples/shared.yaml")).unwrap().remove(0);
    let of_chart = items(&chart["trustedProxies"]).map(|network| text(network).to_owned());
    let of_sidecar = sidecar["listen"]["trusted_proxies"].as_array().unwrap().iter();
    for network in of_chart.chain(of_sidecar.map(|network| network.as_str().unwrap().to_owned())) {
        let prefix = network.rsplit_once('/').map_or(32, |(_, prefix)| prefix.parse().unwrap());
        assert!(prefix >= 28, "{network}");
        asked += 1;
    }
    assert_eq!(asked, 2);
}

#[test]
fn the_documented_way_to_check_has_the_variables_the_folder_and_the_file_of_the_unit() {
    let unit = read("deploy/systemd/tiergate.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
    let (page, upgrade) = (read("docs/operations.md"), read("scripts/dist.d/postinst"));
    let command = page.split_once("    systemd-run ").unwrap().1.split_once("\n\n").unwrap().0;
    for key in ["EnvironmentFile=", "WorkingDirectory="] {
        let property = format!("--property={key}{} ", value(key).trim_start_matches('-'));
        for command in [command, &upgrade] {
            assert!(command.replace("=-/", "=/").contains(&property), "{property}in {command}");
        }
    }
    let checked = value("ExecStart=").replace(" run ", " check ");
    assert!(command.contains(&checked), "{command} and {checked}");
    let options = command.split_whitespace().take_while(|word| word.starts_with("--"));
    let options: Vec<&str> = options.filter_map(|word| word.split('=').next()).collect();
    let Some(help) = passes("systemd-run", &["--help"], &root()) else { return };
    assert!(options.len() == 4 && options.iter().all(|option| help.contains(option)), "{options:?}");
}
