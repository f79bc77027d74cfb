//! `tenants.d`: one tenant in each file.

use std::{fs, path::PathBuf};

use super::super::{MINIMAL, errors, load};
use crate::config::{
    ConfigSource, FileProbe, NamedFile, RefusedFile, Settings, no_probe, problem::Problem,
    tenants::watched_files, tree::CONFIG_BYTES_MAX,
};

/// A configuration file with a folder of tenants beside it.
pub(super) struct Home(tempfile::TempDir);

impl Home {
    fn new(text: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::write(home.main(), format!("{text}{MINIMAL}")).unwrap();
        home
    }

    pub(super) fn with(text: &str, files: &[(&str, &str)]) -> Self {
        let home = Self::new(text);
        fs::create_dir(home.folder()).unwrap();
        for (name, text) in files {
            fs::write(home.folder().join(name), text).unwrap();
        }
        home
    }

    pub(super) fn main(&self) -> PathBuf {
        self.0.path().join("main.toml")
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.0.path().join("tenants.d")
    }

    /// The ids of all tenants, in their order.
    pub(super) fn ids(&self) -> Vec<String> {
        let settings = load(&self.main()).unwrap_or_else(|found| panic!("{found}"));
        settings.live.tenants.iter().map(|tenant| tenant.id.to_string()).collect()
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let Err(found) = load(&self.main()) else { return Vec::new() };
        errors(&found)
    }
}

/// A tenant that is accepted, with a host of its own.
pub(super) fn tenant(id: &str) -> String {
    format!("id = \"{id}\"\nhosts = [\"{id}.example\"]\nupstreams = [\"127.0.0.1:9000\"]\n")
}

#[test]
fn tenants_of_the_file_come_first_then_those_of_the_folder_by_the_names_of_their_files() {
    let main = format!("[[tenants]]\n{}", tenant("z"));
    let files = [("20-b.toml", tenant("b")), ("100.toml", tenant("c")), ("3-a.toml", tenant("a"))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    assert_eq!(Home::with(&main, &files).ids(), ["z", "c", "b", "a"]);
}

#[test]
fn hidden_files_and_other_extensions_are_passed_over() {
    let files = [".a.toml", ".toml", "b.toml~", "c.toml.bak", "README", "d.TOML", "toml", ".e.toml.swp"];
    let files = files.map(|name| (name, "not TOML"));
    let home = Home::with("", &files);
    fs::create_dir(home.folder().join("folder")).unwrap();
    assert_eq!(home.ids(), [""; 0]);
}

#[test]
fn a_file_of_its_own_says_what_a_block_says() {
    let keys = "min_tier = 2\n[timeouts]\nread = \"1h\"\n[[routes]]\npath = \"/a\"\naccess = \"public\"\n";
    let block = "min_tier = 2\n[tenants.timeouts]\nread = \"1h\"\n[[tenants.routes]]\npath = \"/a\"\naccess = \"public\"\n";
    let load = |home: Home| load(&home.main()).unwrap();
    let in_folder = load(Home::with("", &[("a.toml", &format!("{}{keys}", tenant("a")))]));
    let in_file = load(Home::new(&format!("[[tenants]]\n{}{block}", tenant("a"))));
    assert_eq!((&in_folder.live.tenants, in_folder.live.tenant_files.len()), (&in_file.live.tenants, 1));
    assert_eq!(in_file.live.tenant_files.len(), 0);
    assert_eq!(in_folder.live.tenants[0].routes.len(), 1);
}

#[test]
fn mistakes_of_every_file_are_reported_at_once_with_its_name() {
    let main =
        "[keys]\nprefix = \"\"\n[[tenants]]\nid = \"a b\"\nhosts = [\"m.example\"]\nupstreams = [\"m:1\"]\n";
    let wrong_keys = format!("{}min_teir = 1\ntimeouts = 5\n[[routes]]\naces = 1\n", tenant("b"));
    let in_a_tenant = format!("[[tenants]]\n{}", tenant("d"));
    let home = Home::with(
        main,
        &[
            ("a.toml", "id = \"a\"\nid = = 1\n"),
            ("b.toml", &wrong_keys),
            ("c.toml", ""),
            ("d.toml", &in_a_tenant),
        ],
    );
    let found = home.problems();
    let syntax: Vec<&String> = found.iter().filter(|line| line.contains("is not TOML")).collect();
    assert!(
        syntax.len() == 1 && syntax[0].ends_with("/tenants.d/a.toml: is not TOML: duplicate key"),
        "{syntax:?}"
    );
    let others: Vec<&String> = found.iter().filter(|line| !line.contains("is not TOML")).collect();
    assert_eq!(
        others,
        [
            "keys.prefix: is \"\"; write 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
            "tenants[1].id: is \"a b\"; write 1 to 64 characters of A-Z, a-z, 0-9, -, _ and .",
            "tenants.d/b.toml: routes[1].path: is required",
            "tenants.d/b.toml: routes[1].aces: is not a known key; did you mean access?",
            "tenants.d/b.toml: min_teir: is not a known key; did you mean min_tier?",
            "tenants.d/b.toml: timeouts: is an integer; write a section that begins with [timeouts]",
            "tenants.d/c.toml: id: is required",
            "tenants.d/c.toml: hosts: is required",
            "tenants.d/c.toml: upstreams: is required",
            "tenants.d/d.toml: id: is required",
            "tenants.d/d.toml: hosts: is required",
            "tenants.d/d.toml: upstreams: is required",
            "tenants.d/d.toml: tenants: is not a known key",
        ]
    );
}

#[test]
fn no_two_files_share_an_id_or_a_host() {
    let main = format!("[[tenants]]\n{}", tenant("a"));
    let other_id = tenant("a").replace("id = \"a\"", "id = \"b\"");
    let home =
        Home::with(&main, &[("1.toml", &other_id), ("2.toml", &tenant("b")), ("3.toml", &tenant("a"))]);
    assert_eq!(
        home.problems(),
        [
            "tenants.d/1.toml: id: is \"b\", the id of tenants.d/2.toml; write another",
            "tenants.d/1.toml: hosts: item 1 is \"a.example\", a host of tenants[1]; write each host once",
            "tenants.d/2.toml: id: is \"b\", the id of tenants.d/1.toml; write another",
            "tenants.d/3.toml: id: is \"a\", the id of tenants[1]; write another",
            "tenants.d/3.toml: hosts: item 1 is \"a.example\", a host of tenants[1]; write each host once",
        ]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem_with_its_name() {
    let longest = format!("{}{}", tenant("a"), "\n".repeat(CONFIG_BYTES_MAX - tenant("a").len()));
    assert_eq!(Home::with("", &[("a.toml", &longest)]).ids(), ["a"]);
    let home = Home::with("", &[("a.toml", &format!("{longest}\n"))]);
    assert_eq!(home.problems(), [format!("tenants.d/a.toml: is longer than {CONFIG_BYTES_MAX} bytes")]);

    let home = Home::with("", &[("z\n\u{1b}.toml", "id = 1")]);
    fs::write(home.folder().join("bytes.toml"), [0xff]).unwrap();
    fs::create_dir(home.folder().join("folder.toml")).unwrap();
    let found = load(&home.main()).unwrap_err();
    let controls = found.0.iter().filter(|problem| problem.on_one_line().contains(char::is_control));
    assert_eq!(controls.count(), 0, "a name stays on its line: {found:?}");
    let found = errors(&found);
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(found[0].starts_with("tenants.d/bytes.toml: is not UTF-8 text"), "{found:?}");
    assert_eq!(found[1], "tenants.d/folder.toml: is not a regular file");
    assert!(found[2].starts_with(r"tenants.d/z\n\u{1b}.toml: id: is "), "{found:?}");
}

#[cfg(unix)]
#[test]
fn a_link_is_followed_and_one_that_leads_nowhere_is_a_problem() {
    let home = Home::with("", &[(".data", &tenant("a"))]);
    std::os::unix::fs::symlink(".data", home.folder().join("a.toml")).unwrap();
    assert_eq!(home.ids(), ["a"]);
    std::os::unix::fs::symlink("nothing", home.folder().join("b.toml")).unwrap();
    let found = home.problems();
    assert!(found.len() == 1 && found[0].starts_with("tenants.d/b.toml: can't be read: "), "{found:?}");
}

/// The settings that can be used where `former` is in force, and each refused place with whether its former version stays.
pub(super) fn over(home: &Home, former: Option<&Settings>) -> (Settings, Vec<(String, bool)>) {
    over_with(home, former, &mut no_probe)
}

pub(super) fn over_with(
    home: &Home,
    former: Option<&Settings>,
    probe: &mut FileProbe<'_>,
) -> (Settings, Vec<(String, bool)>) {
    let former = former.map(|former| (former, &former.fixed));
    let survey = ConfigSource::alone(&home.main()).read(0, former, probe);
    let place = |refused: &RefusedFile| {
        let name = refused.place.rsplit_once('/').map_or(&*refused.place, |(_, name)| name);
        (name.to_owned(), refused.is_kept)
    };
    let loaded = survey.loaded.unwrap();
    let refused = loaded.refused.iter().map(place).collect();
    (loaded.settings, refused)
}

#[test]
fn each_file_is_used_or_refused_by_itself_and_its_former_version_stays() {
    let ids = |settings: &Settings| -> String {
        settings.live.tenants.iter().map(|tenant| &*tenant.id).collect::<Vec<_>>().join(" ")
    };
    let refused = |places: &[(&str, bool)]| -> Vec<(String, bool)> {
        places.iter().map(|(place, is_kept)| ((*place).to_owned(), *is_kept)).collect()
    };
    let home = Home::with(&format!("[[tenants]]\n{}", tenant("m")), &[("a.toml", &tenant("a"))]);
    let put = |name: &str, text: &str| fs::write(home.folder().join(name), text).unwrap();
    let (first, none) = over(&home, None);
    assert_eq!((ids(&first), none), ("m a".to_owned(), refused(&[])));
    put("a.toml", "id = ");
    put("b.toml", &tenant("b"));
    put("c.toml", "id = ");
    let (settings, found) = over(&home, Some(&first));
    assert_eq!(ids(&settings), "m a b");
    assert_eq!(found, refused(&[("a.toml", true), ("c.toml", false)]));
    assert_eq!(over(&home, None).1, refused(&[("a.toml", false), ("c.toml", false)]), "nothing is in force");
    // The configuration file too, with its tenants.
    let main = fs::read_to_string(home.main()).unwrap();
    fs::write(home.main(), format!("x = 1\n{}", main.replace("\"m\"", "\"n\""))).unwrap();
    put("d.toml", &tenant("n"));
    let (settings, found) = over(&home, Some(&settings));
    assert_eq!(ids(&settings), "m a b n");
    assert_eq!(found[0], ("main.toml".to_owned(), true));
    fs::remove_file(home.main()).unwrap();
    assert_eq!(ids(&over(&home, Some(&settings)).0), "m a b n");
    // What is in force stays with the file that has it, also against the configuration file.
    fs::write(home.main(), main.replace("\"m\"", "\"n\"")).unwrap();
    let (settings, found) = over(&home, Some(&settings));
    assert_eq!((ids(&settings), &found[0]), ("m a b n".to_owned(), &("main.toml".to_owned(), true)));
    // At a start the configuration file comes first.
    let (settings, found) = over(&home, None);
    assert_eq!((ids(&settings), &found[2]), ("n b".to_owned(), &("d.toml".to_owned(), false)));
    // A folder that is lost keeps all its tenants.
    fs::remove_dir_all(home.folder()).unwrap();
    let (settings, found) = over(&home, Some(&settings));
    assert_eq!((ids(&settings), found), ("n b".to_owned(), refused(&[("tenants.d", true)])));
    fs::write(home.folder(), "").unwrap();
    assert_eq!(over(&home, Some(&settings)).1, refused(&[("tenants.d", true)]));
}

/// The hosts that nobody has.
fn unserved(settings: &Settings) -> Vec<String> {
    settings.live.unserved_hosts.iter().map(ToString::to_string).collect()
}

pub(super) fn no_certificate(named: &NamedFile) -> Vec<Problem> {
    named.problem(0, "holds no certificate").into_iter().collect()
}

// threat: A half-applied reload, a broken next start
#[test]
fn the_last_tenant_stays_where_no_newcomer_can_be_served() {
    let last = format!("[[tenants]]\n{}", tenant("last"));
    for (main, of_folder, probe) in [
        (&*last, None, &mut no_certificate as &mut FileProbe<'_>),
        (&last, None, &mut no_probe),
        ("", Some(tenant("last")), &mut no_certificate),
        ("", Some(tenant("last")), &mut no_probe),
    ] {
        let home = Home::with(main, &[]);
        let path = home.folder().join("last.toml");
        of_folder.iter().for_each(|text| fs::write(&path, text).unwrap());
        let (former, _) = over(&home, None);
        assert_eq!(former.live.tenants.len(), 1);
        fs::write(home.main(), MINIMAL).unwrap();
        let _ = fs::remove_file(path);
        // Both claim one id and one host.
        for name in ["a.toml", "b.toml"] {
            let new = tenant("new").replace("127.0.0.1", "https://127.0.0.1");
            fs::write(home.folder().join(name), format!("{new}upstream_tls.ca = \"ca\"\n")).unwrap();
        }
        let (settings, refused) = over_with(&home, Some(&former), probe);
        assert_eq!(settings.live.tenants, former.live.tenants, "{refused:?}");
        assert!(refused.iter().any(|(_, is_kept)| *is_kept), "{refused:?}");
    }
    // Nor can the one that the configuration file has now.
    let home = Home::new(&last);
    let (former, _) = over(&home, None);
    let pair = "tls = { cert = 'a', key = 'b' }";
    let new = format!("listen.{pair}\n[[tenants]]\n{}{pair}\n{MINIMAL}", tenant("new"));
    fs::write(home.main(), new).unwrap();
    let mut of_tenant =
        |named: &NamedFile| if named.is_of_tenant() { no_certificate(named) } else { Vec::new() };
    let (settings, refused) = over_with(&home, Some(&former), &mut of_tenant);
    assert_eq!(
        (settings.live.tenants, refused),
        (former.live.tenants.clone(), vec![("main.toml".to_owned(), true)])
    );
    let in_force = Some((&former, &former.fixed));
    let report = ConfigSource::alone(&home.main()).read(0, in_force, &mut of_tenant);
    let told = report.loaded.unwrap().refused.remove(0).problems;
    assert!(told.iter().any(|line| line.contains("allow_empty")), "{told:?}");
    assert!(told.iter().any(|line| line.contains("tls.cert")), "what kept it from being served: {told:?}");
}

#[test]
fn a_file_with_any_mistake_keeps_its_hosts_from_wildcards_that_have_not_served_them() {
    let home = Home::with("", &[("b.toml", &tenant("b").replace("b.example", "*.example"))]);
    let (served, _) = over(&home, None);
    let main = fs::read_to_string(home.main()).unwrap();
    for wrong in ["wrong = 1", "min_tier = 9", "min_tier = 'x'"] {
        fs::write(home.folder().join("a.toml"), format!("{wrong}\n{}", tenant("a"))).unwrap();
        let (started, _) = over(&home, None);
        assert_eq!(unserved(&started), ["a.example"], "{wrong}");
        // Whatever else is wrong by then.
        fs::write(home.main(), "x").unwrap();
        assert_eq!(unserved(&over(&home, Some(&started)).0), ["a.example"], "{wrong}");
        fs::write(home.main(), &main).unwrap();
        assert_eq!(unserved(&over(&home, Some(&served)).0), [""; 0], "the wildcard goes on: {wrong}");
    }
    // Without a mistake anywhere it is the wildcard's.
    let (started, _) = over(&home, None);
    fs::remove_file(home.folder().join("a.toml")).unwrap();
    assert_eq!(unserved(&over(&home, Some(&started)).0), [""; 0]);
}

// threat: A half-applied reload, a broken next start
#[test]
fn what_the_configuration_file_gives_up_to_several_is_no_wildcards() {
    let home = Home::with(&format!("[[tenants]]\n{}", tenant("a")), &[]);
    let put = |id: &str, hosts: &str| {
        let text = tenant(id).replace(&format!("\"{id}.example\""), hosts);
        fs::write(home.folder().join(format!("{id}.toml")), text).unwrap();
    };
    put("w", "\"*.example\"");
    ["b", "c"].into_iter().for_each(|id| put(id, &format!("\"{id}.example\"")));
    let (former, _) = over(&home, None);
    assert_eq!(former.live.tenants.len(), 4);
    fs::write(home.main(), MINIMAL).unwrap();
    ["b", "c"].into_iter().for_each(|id| put(id, &format!("\"{id}.example\", \"a.example\"")));
    let (settings, found) = over(&home, Some(&former));
    assert_eq!(found, ["b", "c"].map(|id| (format!("{id}.toml"), true)));
    assert_eq!((unserved(&settings), settings.live.tenants.len()), (vec!["a.example".to_owned()], 3));
}

#[test]
fn files_whose_names_are_not_text_are_told_apart() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::with("", &[("x\u{fffd}.toml", &tenant("a"))]);
    let (former, _) = over(&home, None);
    let other = home.folder().join(std::ffi::OsStr::from_bytes(b"x\xff.toml"));
    fs::write(other, "id = ").unwrap();
    let (settings, found) = over(&home, Some(&former));
    assert_eq!((settings.live.tenants.len(), found), (1, vec![("x\\xff.toml".to_owned(), false)]));
}

#[test]
fn tenants_that_move_into_files_with_mistakes_stay_where_they_were() {
    let home = Home::new(&format!("[[tenants]]\n{}", tenant("a")));
    let (former, _) = over(&home, None);
    fs::write(home.main(), fs::read_to_string(Home::new("").main()).unwrap()).unwrap();
    fs::create_dir_all(home.folder()).unwrap();
    fs::write(home.folder().join("a.toml"), format!("wrong = 1\n{}", tenant("a"))).unwrap();
    assert_eq!(over(&home, Some(&former)).0.live.tenants, former.live.tenants);
}

#[test]
fn problems_that_are_told_are_few_and_short() {
    let keys: String = (0..100).map(|number| format!("k{number} = 1\n")).collect();
    let home = Home::with("", &[("a.toml", &format!("{keys}{}", tenant("a")))]);
    let survey = ConfigSource::alone(&home.main()).read(0, None, &mut no_probe);
    let problems = &survey.loaded.unwrap().refused[0].problems;
    assert_eq!(problems.len(), 11);
    assert!(problems[0].contains("tenants.d/a.toml:1:1)"), "{problems:?}");
    assert_eq!(problems[10], "tenants.d/a.toml: 90 more problems");
    let long = RefusedFile::new("x", &["é".repeat(10_000)], false);
    assert_eq!(long.problems[0].chars().count(), 501);
}

#[test]
fn every_file_whose_change_matters_is_watched_and_no_other() {
    let home = Home::new("");
    assert_eq!(watched_files(&home.main()), (vec![home.main()], None));
    let home = Home::with("", &[("b.toml", "not TOML"), ("a.toml", ""), (".c.toml", ""), ("d", "")]);
    let [a, b] = ["a.toml", "b.toml"].map(|name| home.folder().join(name));
    assert_eq!(watched_files(&home.main()), (vec![home.main(), a, b], None));
    fs::remove_dir_all(home.folder()).unwrap();
    fs::write(home.folder(), "").unwrap();
    let (files, unlisted) = watched_files(&home.main());
    assert_eq!(files, [home.main()]);
    assert!(unlisted.unwrap().starts_with("can't be read: "));
}
