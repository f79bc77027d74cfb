//! The operator's page shows what the service does, as text, from its own listener alone.

use std::{fs, net::SocketAddr, path::Path, thread};

use alloy::primitives::U256;
use serde_json::Value;
use tempfile::TempDir;

use super::browser::Browser;
use crate::support::client::{Answer, Connection};
use crate::support::process::{Process, free_port, own_ip};
use crate::support::signing::{ALICE, Draft};
use crate::support::time::{SOON, until};
use crate::support::{chain::Chain, service::Service, settings::Settings, stop::Stop, wire::Request};

/// The stake of tier 4, in the token's smallest unit.
const DIAMOND: u128 = 500_000_000_000_000_000_000_000;

/// Parts of the configuration that nobody may see.
const SECRETS: [&str; 3] = ["provider-key-in-path", "password-of-nobody", "header-value-of-nobody"];

/// A service with a gateway, and what it needs.
struct Stage {
    chain: Chain,
    gateway: SocketAddr,
    upstream: SocketAddr,
    service: Service,
    _upstream: Process,
    _upstreams_folder: TempDir,
}

impl Stage {
    fn start(change: impl FnOnce(Settings) -> Settings) -> Self {
        let (chain, gateway, upstream) = (Chain::dev(), free_port(own_ip()), free_port(own_ip()));
        let settings =
            Settings::new(chain.node, &chain.contracts).set("listen.gateway", vec![gateway.to_string()]);
        // Some tests have none.
        let settings = settings.set("gateway.allow_empty", true);
        let service = Service::prepare(change(settings));
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_tiergate-dev"));
        let arguments = ["--only-upstream", "--upstream", &upstream.to_string()].map(str::to_owned);
        let process = Process::start(program, &arguments, &folder.path().join("log"), "");
        until("the upstream answers", SOON, || Connection::open(upstream).ok());
        fs::create_dir(service.folder.path().join("tenants.d")).unwrap();
        Self { chain, gateway, upstream, service, _upstream: process, _upstreams_folder: folder }
    }

    /// Starts the service and waits until it is ready.
    fn launch(&mut self) {
        self.service.start_again("");
        self.service.await_ready();
    }

    /// Puts a tenant into a file of `tenants.d`.
    fn tenant(&self, file: &str, text: &str) {
        let text = text.replace("UPSTREAM", &self.upstream.to_string());
        fs::write(self.service.folder.path().join("tenants.d").join(file), text).unwrap();
    }

    /// Changes the configuration file.
    fn edit(&self, change: impl FnOnce(String) -> String) {
        let file = self.service.folder.path().join("tiergate.toml");
        fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
    }

    /// A request to the gateway.
    fn ask(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        get(self.gateway, host, path, headers)
    }

    fn page(&self) -> String {
        format!("http://{}", self.service.admin)
    }

    fn admin(&self, path: &str) -> Answer {
        get(self.service.admin, &self.service.admin.to_string(), path, &[])
    }
}

fn get(address: SocketAddr, host: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = Request::new("GET", host, path);
    let request = headers.iter().fold(request, |request, (name, value)| request.with(name, value));
    let mut connection = Connection::open(address).unwrap();
    connection.write(&request.bytes()).unwrap();
    connection.read(false).unwrap()
}

const WEATHER: &str = "id = \"weather\"\nhosts = [\"weather.example\", \"*.weather.example\"]\nupstreams = [\"UPSTREAM\"]\n\
                       [[routes]]\npath = \"/public/*\"\naccess = \"public\"\n";

/// Key of an agent of tier 4.
fn key(stage: &Stage) -> String {
    let agent = stage.chain.mint(ALICE, "ipfs://card");
    stage.chain.stake(agent, U256::from(DIAMOND));
    let body = Draft::new(agent, ALICE, stage.chain.contracts.identity).body();
    stage.service.generate(&body).success(201)["apiKey"].as_str().unwrap().to_owned()
}

// threat: The operator's page leaks
#[test]
fn the_page_shows_what_the_service_does_and_asks_nobody_else() {
    let Some(mut browser) = Browser::start() else { return };
    let mut stage = Stage::start(|settings| settings);
    stage.tenant("weather.toml", WEATHER);
    let nobody = free_port(own_ip());
    let sick = format!(
        "id = \"sick\"\nhosts = [\"sick.example\"]\nupstreams = [\"{nobody}\"]\n[health]\npath = \"/\"\ninterval = \"1s\"\n"
    );
    stage.tenant("sick.toml", &sick);
    stage.launch();
    let key = key(&stage);
    for _ in 0..7 {
        assert_eq!(stage.ask("weather.example", "/public/forecast", &[]).status, 200);
    }
    for _ in 0..5 {
        assert_eq!(stage.ask("weather.example", "/forecast", &[("X-API-Key", &key)]).status, 200);
    }
    for _ in 0..3 {
        stage.ask("weather.example", "/forecast", &[]).error(401, "INVALID_API_KEY");
    }
    stage.ask("nobody.example", "/", &[]).error(404, "NOT_FOUND");
    stage.service.verify(&key).success(200);
    stage.service.verify("svc_live_v1_wrong").error(400, "VALIDATION_ERROR");

    browser.look(1_280, 900, false);
    browser.open(&format!("{}/", stage.page()));
    browser.text("state", "Ready");
    browser.row("readiness", &["Store", "ok"]);
    browser.row("readiness", &["Chain", "ok"]);
    browser.row("tenants", &["weather", "weather.example *.weather.example", "*", "*", "12", "3", "0", "0"]);
    browser.row("tenants", &["(none)", "unknown hosts", "*", "*", "0", "1", "0", "0"]);
    browser.row("decisions", &["4", "6", "0", "0"]);
    browser.row("refusals", &["INVALID_API_KEY", "0", "3"]);
    browser.row("refusals", &["VALIDATION_ERROR", "1", "0"]);
    browser.row("upstreams", &["weather", &format!("http://{}", stage.upstream), "healthy", "0"]);
    browser.row("upstreams", &["sick", &format!("http://{nobody}"), "fails its checks", "0"]);
    browser.row("nodes", &[&format!("http://{}", stage.chain.node), "healthy"]);
    browser.text("chain", "following");
    let head = stage.chain.head();
    browser.text("chain", &format!("Head{head}"));
    browser.text("store", "embedded");
    browser.row("configuration", &["chain.poll_interval", "\"250ms\""]);
    browser.text("reload", "None since the start");
    assert_eq!(browser.until("document.title"), "Ready – Tiergate");

    // Rates and plots move with traffic, which goes on until it was seen.
    let rate =
        |is: &str| format!("document.getElementById('tenants').rows[0].cells[2].textContent {is} '0.0'");
    browser.until(&rate("==="));
    let (gateway, stop) = (stage.gateway, Stop::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            until("they were seen", SOON * 10, || {
                get(gateway, "weather.example", "/public/forecast", &[]);
                stop.is_set().then_some(())
            });
        });
        let _stops = stop.at_end();
        browser.until(&rate(">"));
        browser
            .until("Number.parseFloat(document.getElementById('routes').rows[0].cells[3].textContent) > 0");
    });
    browser.until("document.querySelector('#tenants svg').getAttribute('aria-label').startsWith('Requests of weather per second: now ')");
    browser.until("document.querySelector('#traffic polyline').getAttribute('points').split(' ').length > 2");
    browser.row("routes", &["GET /public/* weather"]);
    browser.row("routes", &["POST /verify"]);

    browser.write("#find", "poll_interval");
    browser.until("document.getElementById('configuration').rows.length === 1");
    browser.click("#pause");
    browser.until("document.getElementById('pause').getAttribute('aria-pressed') === 'true'");
    browser.picture("operator-page.png");
    // The page is no wider than a phone, and the dark colours are others.
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.until(ground);
    browser.look(360, 740, true);
    browser.until("document.documentElement.scrollWidth <= 360");
    assert_ne!(browser.until(ground), light);
    browser.picture("operator-page-phone.png");
    browser.has_kept_to(&stage.page());
}

// threat: The operator's page leaks
#[test]
fn the_page_says_what_a_reload_changed_and_shows_markup_as_text() {
    let Some(mut browser) = Browser::start() else { return };
    let markup = "<img src=x onerror=alert(1)>";
    let mut stage = Stage::start(|settings| settings.set("signature.domain_name", markup));
    stage.tenant("weather.toml", WEATHER);
    stage.launch();
    browser.open(&format!("{}/", stage.page()));
    browser.row("configuration", &["signature.domain_name", &format!("\"{markup}\"")]);

    stage.tenant("weather.toml", &WEATHER.replace("id =", "min_tier = 2\nid ="));
    browser.text("reload", "Applied");
    browser.text("changes", "Tenant weather changed");
    browser.text("changes", "min_tier: 1 → 2");
    stage.tenant("<b>acme.toml", "id = \"acme\"\nhosts = [\"acme.example\"]\nupstreams = [\"UPSTREAM\"]\n");
    browser.text("changes", "Tenant acme added");
    browser.text("changes", "acme.toml: id: not set → \"acme\"");
    // Defaults of a new tenant are no change.
    browser.until("!document.getElementById('changes').textContent.includes('timeouts')");
    browser.row("tenants", &["acme", "acme.example"]);
    browser.until("document.getElementById('configuration').textContent.includes('<b>acme.toml')");

    stage.edit(|text| text.replace("info,tiergate=trace", "info").replace("\"250ms\"", "\"500ms\""));
    let change = |text| {
        format!("[...document.querySelectorAll('#changes li')].some((li) => li.textContent === '{text}')")
    };
    browser.until(&change("log.level: \"info,tiergate=trace\" → \"info\""));
    browser.until(&change("chain.poll_interval: \"250ms\" → \"500ms\" (after a restart)"));
    browser.row("configuration", &["log.level", "\"info\""]);
    browser.row("configuration", &["chain.poll_interval", "\"250ms\""]);

    stage.tenant("weather.toml", &WEATHER.replace("id =", &format!("min_tier = \"{markup}\"\nid =")));
    browser.text("reload", "Applied but for refused files");
    browser.text("changes", "min_tier");
    // The refused configuration is not in force.
    browser.until("document.getElementById('configuration').textContent.includes('min_tier2')");
    assert_eq!(browser.until("document.querySelectorAll('main img, main b').length + 1"), 1);
    browser.has_kept_to(&stage.page());
}

#[test]
fn a_page_that_stays_open_shows_the_configuration_of_the_next_process() {
    let Some(mut browser) = Browser::start() else { return };
    let mut stage = Stage::start(|settings| settings.set("signature.domain_name", "first"));
    stage.tenant("weather.toml", WEATHER);
    stage.launch();
    browser.open(&format!("{}/", stage.page()));
    browser.row("configuration", &["signature.domain_name", "\"first\""]);
    stage.service.kill();
    stage.edit(|text| text.replace("first", "second"));
    stage.launch();
    browser.row("configuration", &["signature.domain_name", "\"second\""]);
}

#[test]
fn a_certificate_is_called_replaced_when_its_file_holds_another() {
    let folder = tempfile::tempdir().unwrap();
    let issue = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["weather.example".to_owned()]).unwrap();
        // The key is written first: the two are read when nothing has changed for a while.
        fs::write(folder.path().join("tls.key"), key.serialize_pem()).unwrap();
        fs::write(folder.path().join("tls.crt"), certificate.self_signed(&key).unwrap().pem()).unwrap();
    };
    issue();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let mut stage = Stage::start(|settings| settings);
    let pair = format!("[upstream_tls]\ncert = \"{}\"\nkey = \"{}\"\n", path("tls.crt"), path("tls.key"));
    let weather = WEATHER
        .replace("\"UPSTREAM", "\"https://UPSTREAM")
        .replace("[[routes]]", &format!("{pair}[[routes]]"));
    stage.tenant("weather.toml", &weather);
    stage.launch();
    let reload = |stage: &Stage, certificates: bool| {
        until("the reload is applied", SOON, || {
            let reload = stage.admin("/status.json").json()["lastReload"].clone();
            (reload["applied"] == true && reload["certificates"] == certificates).then_some(reload)
        })
    };
    // It expires when the former one does.
    issue();
    reload(&stage, true);
    if let Some(mut browser) = Browser::start() {
        browser.look(1_400, 900, false);
        browser.open(&format!("{}/", stage.page()));
        browser.until("document.querySelectorAll('#certificates tr').length > 0 || null");
        let cut = "[...document.querySelectorAll('#certificates')].map((body) => body.closest('.scroll')).filter((card) => \
                   card.scrollWidth > card.clientWidth).length === 0 || null";
        browser.until(cut);
        browser.picture("certificates.png");
    }
    // One more tenant uses it.
    let acme = weather.replace("weather", "acme");
    stage.tenant("acme.toml", &acme);
    let applied = reload(&stage, false);
    assert_eq!(applied["tenants"][0]["tenant"], "acme", "{applied}");
}

#[test]
fn the_page_says_why_the_service_is_not_ready() {
    let Some(mut browser) = Browser::start() else { return };
    let nobody = free_port(own_ip());
    let mut stage = Stage::start(|settings| settings.set("chain.rpc_urls", vec![format!("http://{nobody}")]));
    stage.service.start_again("");
    browser.open(&format!("{}/", stage.page()));
    browser.text("state", "Not ready");
    browser.row("readiness", &["Store", "ok"]);
    // The first question at the node may take longer than the page.
    let reason = "document.getElementById('readiness').rows[1]?.cells[1].textContent";
    browser.until(&format!("{reason}.includes('{nobody}')"));
    stage.service.kill();
    browser.text("state", "No answer since");
}

#[test]
fn the_page_that_dev_names_opens() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let addresses = ["--api", "--gateway", "--upstream", "--admin", "--chain"]
        .map(|name| [name.to_owned(), free_port(own_ip()).to_string()]);
    let program = Path::new(env!("CARGO_BIN_EXE_tiergate-dev"));
    let dev = Process::start(program, &addresses.concat(), &folder.path().join("log"), "");
    let page = until("dev names the page", SOON, || {
        let log = dev.log();
        let line = log.lines().find(|line| line.contains("the operator's page"))?;
        line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned)
    });
    browser.open(&page);
    browser.text("state", "Ready");
    browser.row("tenants", &["weather"]);
    browser.row("tenants", &["vault", "vault.example"]);
    browser.has_kept_to(page.trim_end_matches('/'));
}

// threat: The operator's page leaks
#[test]
fn no_secret_is_on_the_page() {
    let mut stage = Stage::start(|settings| {
        let text = settings.text();
        let node = text.split("rpc_urls = [\"").nth(1).unwrap().split('"').next().unwrap();
        let header: toml::Table =
            format!("url = \"{node}\"\nname = \"x-api-key\"\nvalue = \"{}\"", SECRETS[2]).parse().unwrap();
        let settings = settings.set("chain.rpc_urls", vec![format!("{node}/{}", SECRETS[0])]);
        settings.set("chain.rpc_headers", vec![header])
    });
    stage.tenant("weather.toml", WEATHER);
    stage.launch();
    // A reload that is refused is told, but for the secret in it.
    let upstream = format!("http://user:{}@127.0.0.1:1", SECRETS[1]);
    stage.tenant("weather.toml", &WEATHER.replace("UPSTREAM", &upstream));
    until("the reload is refused", SOON, || {
        (stage.admin("/status.json").json()["lastReload"]["applied"] == false).then_some(())
    });
    let shown = stage.admin("/status.json").text() + &stage.admin("/configuration.json").text();
    assert!(shown.contains("chain.rpc_urls"), "{shown}");
    for secret in SECRETS {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
}

// threat: The operator's page leaks
#[test]
fn pages_of_others_can_not_read_frame_or_name_the_page() {
    let mut stage = Stage::start(|settings| settings);
    stage.launch();
    for path in ["/", "/page.js", "/page.css", "/status.json", "/configuration.json"] {
        let own = stage.service.admin.to_string();
        let answer = get(stage.service.admin, &own, path, &[("Origin", "http://attacker.example")]);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control-")), "{path}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        // A stranger's name that was pointed here.
        let rebound = get(stage.service.admin, "attacker.example:9090", path, &[]);
        assert_eq!(rebound.status, 421, "{path}");
        assert!(!rebound.text().contains("readiness"), "{}", rebound.text());
    }
    // Prometheus scrapes under any name.
    assert_eq!(get(stage.service.admin, "tiergate.example:9090", "/metrics", &[]).status, 200);
    let status: Value = stage.admin("/status.json").json();
    assert_eq!(status["readiness"]["isReady"], true, "{status}");
}
