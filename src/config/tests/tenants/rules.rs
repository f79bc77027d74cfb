//! `[[tenants_rules]]`: what tenants in files of their own may name.

use std::fs;

use super::super::load;
use super::folder::{Home, no_certificate, over, over_with, tenant};

/// Rules for files that begin with `a-`, and for all others but `c`.
const RULES: &str = "
[[tenants_rules]]
tenants = \"a-*\"
hosts = [\"*.a.example\", \"a.example\"]
upstreams = [\"*.a.internal:80\", \"10.1.0.9\", \"[fd00::1]:80\", \"localhost\"]
networks = [\"10.1.0.0/16\", \"fd00::1\", \"127.0.0.1\"]
[[tenants_rules]]
tenants = \"b\"
hosts = [\"*\"]
upstreams = [\"*\"]
";

/// A tenant with this id, these hosts and these upstreams.
fn of(id: &str, hosts: &str, upstreams: &str) -> String {
    let list =
        |items: &str| items.split(' ').map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(", ");
    format!("id = \"{id}\"\nhosts = [{}]\nupstreams = [{}]\n", list(hosts), list(upstreams))
}

fn problems_of(files: &[(&str, &str)]) -> Vec<String> {
    Home::with(RULES, files).problems()
}

#[test]
fn a_tenant_within_its_rule_is_read_as_without_and_held_to_its_networks() {
    let inside = of(
        "a-1",
        "a.example x.a.example *.y.a.example",
        "v1.a.internal:80 10.1.0.9:1 [fd00::1]:80 localhost:9",
    );
    let other = of("b", "*.example other", "anything:1 192.0.2.1:2");
    let home = Home::with(RULES, &[("a-1.toml", &inside), ("b.toml", &other)]);
    let load = |home: &Home| load(&home.main()).unwrap().live.tenants;
    let tenants = load(&home);
    let networks = tenants[0].networks.as_deref().unwrap();
    let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.1.0.0/16", "fd00::1/128", "127.0.0.1/32"]);
    assert_eq!(tenants[1].networks, None);
    let free = Home::with("", &[("a-1.toml", &inside), ("b.toml", &other)]);
    assert_eq!((load(&free)[0].networks.is_none(), &load(&free)[1]), (true, &tenants[1]));
}

// threat: What is signed for another service is sent on to us
// threat: A tenant takes what is another's or shared
#[test]
fn hosts_upstreams_and_ids_outside_of_the_rule_are_refused_one_by_one() {
    let hosts = of("a-1", "a.example b.example *.example * xa.example", "v1.a.internal:80");
    let upstreams = of(
        "a-2",
        "2.a.example",
        "v1.a.internal:81 https://a.internal:80 xa.internal:80 10.1.0.8:80 10.1.0.9:1 [fd00::2]:80 169.254.169.254:80",
    );
    let routes = of("a-3", "3.a.example", "v1.a.internal:80")
        + "[[routes]]\npath = \"/x\"\nupstreams = [\"127.0.0.1:80\"]\n";
    let id = of("b", "4.a.example", "v1.a.internal:80");
    let signed =
        of("a-5", "5.a.example", "v1.a.internal:80") + "signed_hosts = [\"6.a.example\", \"b.example\"]\n";
    let found = problems_of(&[
        ("a-1.toml", &hosts),
        ("a-2.toml", &upstreams),
        ("a-3.toml", &routes),
        ("a-4.toml", &id),
        ("a-5.toml", &signed),
    ]);
    let outside = "outside of what [[tenants_rules]] allow this file";
    let expected = [
        format!("tenants.d/a-1.toml: hosts: item 2 is \"b.example\", {outside}"),
        format!("tenants.d/a-1.toml: hosts: item 3 is \"*.example\", {outside}"),
        format!("tenants.d/a-1.toml: hosts: item 4 is \"*\", {outside}"),
        format!("tenants.d/a-1.toml: hosts: item 5 is \"xa.example\", {outside}"),
        format!("tenants.d/a-2.toml: upstreams: item 1 is http://v1.a.internal:81, {outside}"),
        format!("tenants.d/a-2.toml: upstreams: item 2 is https://a.internal:80, {outside}"),
        format!("tenants.d/a-2.toml: upstreams: item 3 is http://xa.internal:80, {outside}"),
        format!("tenants.d/a-2.toml: upstreams: item 4 is http://10.1.0.8:80, {outside}"),
        format!("tenants.d/a-2.toml: upstreams: item 6 is http://[fd00::2]:80, {outside}"),
        format!("tenants.d/a-2.toml: upstreams: item 7 is http://169.254.169.254:80, {outside}"),
        format!("tenants.d/a-3.toml: routes[1].upstreams: item 1 is http://127.0.0.1:80, {outside}"),
        "tenants.d/a-4.toml: id: is \"b\", and the table of [[tenants_rules]] that takes this file takes no such name"
            .to_owned(),
        format!("tenants.d/a-5.toml: signed_hosts: item 2 is \"b.example\", {outside}"),
    ];
    assert_eq!(found, expected);
}

// threat: A tenant takes what is another's or shared
#[test]
fn a_tenant_takes_neither_host_nor_id_from_whose_they_are() {
    // The file that comes first claims what is the second one's.
    let thief = of("b", "b.example", "v1.a.internal:80");
    let found = problems_of(&[("a-1.toml", &thief), ("b.toml", &tenant("b"))]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|line| line.starts_with("tenants.d/a-1.toml: ")), "{found:?}");
    let found = problems_of(&[("a.toml", &tenant("b")), ("b.toml", &tenant("b"))]);
    assert!(found.len() == 1 && found[0].starts_with("tenants.d/a.toml: is a file that no "), "{found:?}");
}

// threat: A tenant takes what is another's or shared
#[test]
fn a_file_under_no_rule_is_refused_and_tenants_of_the_main_file_are_the_operators() {
    let main = format!("{RULES}\n[[tenants]]\n{}", tenant("anything"));
    let home =
        Home::with(&main, &[("b.toml", &tenant("b")), ("c.toml", &tenant("c")), ("b-.toml", &tenant("d"))]);
    let refused = "is a file that no table of [[tenants_rules]] takes; rename it, or add a rule";
    assert_eq!(
        home.problems(),
        [format!("tenants.d/b-.toml: {refused}"), format!("tenants.d/c.toml: {refused}")]
    );
    for name in ["b-.toml", "c.toml"] {
        fs::remove_file(home.folder().join(name)).unwrap();
    }
    assert_eq!(home.ids(), ["anything", "b"]);
}

// threat: A tenant takes what is another's or shared
#[cfg(unix)]
#[test]
fn files_lie_below_the_folders_of_the_rule_whatever_links_lead_to_them() {
    let files = tempfile::tempdir().unwrap();
    let [own, other] = ["own", "other"].map(|name| files.path().join(name));
    for folder in [&own, &other] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("ca.pem"), "").unwrap();
    }
    std::os::unix::fs::symlink(other.join("ca.pem"), own.join("link.pem")).unwrap();
    std::os::unix::fs::symlink("ca.pem", own.join("near.pem")).unwrap();
    let main = format!("{RULES}files = [\"{}\"]\n", own.display());
    for (path, is_allowed) in [
        (own.join("ca.pem"), true),
        (own.join("near.pem"), true),
        (own.join("link.pem"), false),
        (own.join("../other/ca.pem"), false),
        (other.join("ca.pem"), false),
        (own.join("missing.pem"), false),
        ("/etc/passwd".into(), false),
    ] {
        let path = path.display();
        let text =
            format!("{}[upstream_tls]\nca = \"{path}\"\ncert = \"{path}\"\nkey = \"{path}\"\n", tenant("b"));
        let found = Home::with(&main, &[("b.toml", &text)]).problems();
        let expected: Vec<String> = ["ca", "cert", "key"]
            .map(|key| {
                format!(
                    "tenants.d/b.toml: upstream_tls.{key}: is \"{path}\", which is missing, or outside of what [[tenants_rules]] allow this file"
                )
            })
            .into();
        assert_eq!(found, if is_allowed { Vec::new() } else { expected }, "{path}");
    }
    let none = format!("{}[upstream_tls]\nca = \"/etc/passwd\"\n", tenant("b"));
    assert_eq!(Home::with(RULES, &[("b.toml", &none)]).problems().len(), 1, "no folder is no file");
}

#[test]
fn rules_that_do_not_come_into_force_let_nobody_in() {
    let victim = of("a-1", "victim.example", "v1.a.internal:80");
    let home = Home::with(RULES, &[("a-1.toml", &victim), ("b.toml", &of("b", "b.example", "up:1"))]);
    let main = fs::read_to_string(home.main()).unwrap();
    let (former, found) = over(&home, None);
    assert_eq!((former.live.tenants.len(), found), (1, vec![("a-1.toml".to_owned(), false)]));
    // Without rules the file would do. The configuration file is refused: it claims a host that is in force.
    let claims = format!("[[tenants]]\n{}", of("m", "b.example", "up:2"));
    fs::write(home.main(), main.replace(RULES.trim(), &claims)).unwrap();
    let (settings, found) = over(&home, Some(&former));
    let all = [("main.toml".to_owned(), true), ("a-1.toml".to_owned(), false)];
    assert_eq!((settings.live.tenants.len(), found), (1, all.to_vec()));
    // So is one with a mistake of its own.
    fs::write(home.main(), format!("x = 1\n{}", main.replace(RULES.trim(), ""))).unwrap();
    let (settings, found) = over(&home, Some(&settings));
    assert_eq!((settings.live.tenants.len(), found), (1, all.to_vec()));
    // Rules that come into force do.
    fs::write(home.main(), main.replace(RULES.trim(), "")).unwrap();
    let (settings, found) = over(&home, Some(&settings));
    assert_eq!((settings.live.tenants.len(), found), (2, Vec::new()));
    // A former version stays under tighter rules, and claims nothing else.
    fs::write(home.main(), &main).unwrap();
    fs::write(home.folder().join("a-1.toml"), victim.replace("victim", "b")).unwrap();
    let (settings, found) = over(&home, Some(&settings));
    assert_eq!((settings.live.tenants.len(), found), (2, vec![("a-1.toml".to_owned(), true)]));
    assert_eq!(settings.live.tenants[0].hosts[0].to_string(), "victim.example");
}

#[test]
fn rules_of_a_file_of_which_no_tenant_can_be_served_let_nobody_in() {
    let (for_a, for_b) = RULES.split_at(RULES.rfind("[[tenants_rules]]").unwrap());
    let old = format!("{for_b}[[tenants]]\n{}", of("g", "g.example", "up:1"));
    let home = Home::with(&old, &[("a-1.toml", &of("a-1", "a.example", "v1.a.internal:80"))]);
    let (former, found) = over(&home, None);
    assert_eq!((former.live.tenants.len(), &found), (1, &vec![("a-1.toml".to_owned(), false)]));
    let main = fs::read_to_string(home.main()).unwrap();
    let tenant = format!("{}upstream_tls.ca = \"ca\"\n", of("n", "a.example", "https://up:2"));
    let new = format!("{for_a}{for_b}[[tenants]]\n{tenant}");
    fs::write(home.main(), main.replace(old.trim(), &new)).unwrap();
    let (settings, found) = over_with(&home, Some(&former), &mut no_certificate);
    assert_eq!(settings.live.tenants, former.live.tenants);
    assert_eq!(found, [("main.toml".to_owned(), true), ("a-1.toml".to_owned(), false)]);
}

#[test]
fn a_file_outside_of_its_rule_claims_nothing_and_one_with_another_mistake_does() {
    let outside = of("a-1", "b.example", "v1.a.internal:80");
    let home = Home::with(RULES, &[("a-1.toml", &outside), ("b.toml", &of("b", "b.example", "up:1"))]);
    let (settings, _) = over(&home, None);
    assert_eq!((&*settings.live.tenants[0].id, settings.live.unserved_hosts.len()), ("b", 0));
    let missing = format!(
        "{}[upstream_tls]\nca = \"/nowhere/ca.pem\"\n",
        of("a-1", "a.example", "https://x.a.internal:80")
    );
    fs::write(home.folder().join("a-1.toml"), missing).unwrap();
    let (settings, _) = over(&home, None);
    assert_eq!(settings.live.unserved_hosts.len(), 1);
}
