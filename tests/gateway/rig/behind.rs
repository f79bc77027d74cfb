//! Programs of others that ask Tiergate before they forward. Each runs the configuration that ships in `conf/behind`, with other
//! addresses.

use std::path::{Path, PathBuf};
use std::{cell::Cell, fs, net::SocketAddr};

use tempfile::TempDir;

use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage};
use crate::rig::tenants::Tenant;
use crate::support::process::{Process, free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::{client::Answer, skip::skip, wire::Request};

/// The one page whose origin may ask.
pub(crate) const PAGE: &str = "https://page.example";

/// What gateways send in `X-Authz-Secret`.
const SECRET: &str = "the-secret-of-other-gateways-0001";

/// How a program asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Nginx,
    Caddy,
    HaProxy,
    EnvoyHttp,
    EnvoyGrpc,
    Traefik,
}

/// A program: its name, how it asks, and its file in `tools/servers`, or its name on the path.
type Program = (&'static str, Asks, &'static str);

const PROGRAMS: [Program; 7] = [
    ("nginx", Asks::Nginx, "nginx"),
    ("Caddy", Asks::Caddy, "caddy/caddy"),
    ("HAProxy", Asks::HaProxy, "haproxy"),
    ("the oldest Envoy, HTTP", Asks::EnvoyHttp, "envoy-oldest/envoy"),
    ("the newest Envoy, HTTP", Asks::EnvoyHttp, "envoy/envoy"),
    ("the oldest Envoy, gRPC", Asks::EnvoyGrpc, "envoy-oldest/envoy"),
    ("the newest Envoy, gRPC", Asks::EnvoyGrpc, "envoy/envoy"),
];

/// It loses more than the others, so that cases about its file alone start it.
const TRAEFIK: Program = ("Traefik", Asks::Traefik, "traefik/traefik");

/// A text of a file, and what stands there instead.
pub(crate) type Change<'a> = (&'a str, &'a str);

/// The longest that an agent's verification may take, but for cases in which it fails.
pub(crate) const PATIENT: &str = "25s";

/// Time limits of the files, and those that are longer than [`PATIENT`].
const WAITS: [Change<'static>; 3] =
    [("timeout: 2s", "timeout: 30s"), ("_timeout 2s", "_timeout 30s"), ("\" 1600", "\" 30000")];

/// A running program.
pub(crate) struct Other {
    pub(crate) name: &'static str,
    pub(crate) asks: Asks,
    pub(crate) address: SocketAddr,
    process: Process,
    _folder: TempDir,
}

/// Tiergate, and programs that ask it.
pub(crate) struct Behind {
    // Dropped in this order: the programs before what they lead to.
    pub(crate) others: Vec<Other>,
    pub(crate) site: Site,
    /// Where they ask.
    pub(crate) authz: SocketAddr,
    _secret: TempDir,
}

impl Behind {
    /// Starts all programs that are installed, and Tiergate with this time limit. They forward to the upstream of the site.
    pub(crate) fn start(
        stage: &Stage,
        timeout: &str,
        change: impl FnOnce(SiteBuilder<'_>) -> SiteBuilder<'_>,
    ) -> Self {
        let (secret, authz) = (tempfile::tempdir().unwrap(), free_port(own_ip()));
        let file = secret.path().join("secret");
        fs::write(&file, SECRET).unwrap();
        let site = Site::of(stage).tenant(|_| weather());
        let upstream = site.upstream().address.to_string();
        let site = site.tenant(|tenant| tenant.set("upstreams", vec![upstream]));
        let site = site.set("listen.authz", vec![authz.to_string()]);
        let site = site.set("log.format", "json").set("listen.trusted_proxies", vec!["127.0.0.1"]);
        let site = site.set("authz.secret_file", file.to_str().unwrap()).set("authz.timeout", timeout);
        let site = change(site).agent(4).start();
        let waits: &[Change<'_>] = if timeout == PATIENT { &WAITS } else { &[] };
        let start = |program| Other::start_with(program, authz, site.upstream.address, None, waits);
        Self { others: PROGRAMS.into_iter().filter_map(start).collect(), site, authz, _secret: secret }
    }
}

/// The tenant that the configurations name.
fn weather() -> Tenant {
    let tenant = Tenant::of("weather", &[ACME], &[]).public();
    let tenant = tenant.route("/denied/*", r#"access = "deny""#).route("/socket/*", "upgrades = true");
    let tenant = tenant.route("/open-socket/*", "access = \"public\"\nupgrades = true");
    let tenant = tenant.route("/posted/*", "methods = [\"POST\"]").route("/posted/*", r#"access = "deny""#);
    tenant.set("cors.origins", vec![PAGE])
}

impl Other {
    /// Starts a program; none if it is not installed.
    fn start(program: Program, authz: SocketAddr, api: SocketAddr) -> Option<Self> {
        Self::start_with(program, authz, api, None, &WAITS)
    }

    /// Starts a program with a change to its file: one text in place of another.
    fn start_with(
        (name, asks, file): Program,
        authz: SocketAddr,
        api: SocketAddr,
        change: Option<Change<'_>>,
        waits: &[Change<'_>],
    ) -> Option<Self> {
        let Some(program) = installed(file) else {
            skip(name);
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let address = free_port(own_ip());
        let arguments = asks.arguments(folder.path(), address, authz, api, change, waits);
        Some(Self::run((name, asks, program), address, &arguments, folder))
    }

    /// Caddy in front of a gateway, to which it speaks HTTP/2; none if it is not installed.
    pub(crate) fn caddy_before(gateway: SocketAddr) -> Option<Self> {
        let (name, asks, file) = PROGRAMS[1];
        let Some(program) = installed(file) else {
            skip(name);
            return None;
        };
        let (folder, address) = (tempfile::tempdir().unwrap(), free_port(own_ip()));
        let site = format!("http://{ACME}:{} {{\n\tbind {}", address.port(), address.ip());
        let text = format!("{{\n\tadmin off\n}}\n{site}\n\treverse_proxy h2c://{gateway}\n}}\n");
        fs::write(folder.path().join("Caddyfile"), text).unwrap();
        let arguments = ["run", "--config", "Caddyfile"].map(str::to_owned);
        Some(Self::run((name, asks, program), address, &arguments, folder))
    }

    fn run(
        (name, asks, program): (&'static str, Asks, PathBuf),
        address: SocketAddr,
        arguments: &[String],
        folder: TempDir,
    ) -> Self {
        // Caddy writes into its home.
        let home = format!("export HOME={}; cd $HOME", folder.path().display());
        let process = Process::start(&program, arguments, &folder.path().join("log"), &home);
        until(&format!("{name} listens"), SOON, || {
            assert_eq!(process.exit_code(), None, "{}", process.log());
            std::net::TcpStream::connect(address).ok()
        });
        // Traefik listens before it has read its file.
        let is_ready =
            || asks != Asks::Traefik || Request::get(ACME, "/public/ready").ask(address).status != 404;
        until(&format!("{name} has its routes"), SOON, || is_ready().then_some(()));
        Self { name, asks, address, process, _folder: folder }
    }

    pub(crate) fn traefik(behind: &Behind) -> Option<Self> {
        Self::start(TRAEFIK, behind.authz, behind.site.upstream.address)
    }

    /// One more program of a kind, whose file has a broken line.
    pub(crate) fn broken(asks: Asks, behind: &Behind, change: Change<'_>) -> Option<Self> {
        let program = PROGRAMS.into_iter().chain([TRAEFIK]).rev().find(|(_, other, _)| *other == asks)?;
        Self::start_with(program, behind.authz, behind.site.upstream.address, Some(change), &WAITS)
    }

    /// One more nginx, which asks at this address.
    pub(crate) fn nginx(authz: SocketAddr, api: SocketAddr) -> Option<Self> {
        Self::start(PROGRAMS[0], authz, api)
    }

    #[track_caller]
    pub(crate) fn ask(&self, request: &Request) -> Answer {
        request.ask(self.address)
    }

    /// What it has written, for failures.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}

/// Where a program is.
pub(crate) fn installed(file: &str) -> Option<PathBuf> {
    if file.contains('/') {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/servers").join(file);
        return file.exists().then_some(file);
    }
    std::process::Command::new(file).arg("-v").output().is_ok().then(|| file.into())
}

impl Asks {
    /// Writes its configuration into a folder, and gives the arguments that it is started with.
    fn arguments(
        self,
        folder: &Path,
        own: SocketAddr,
        authz: SocketAddr,
        api: SocketAddr,
        change: Option<Change<'_>>,
        waits: &[Change<'_>],
    ) -> Vec<String> {
        let is_changed = Cell::new(change.is_none());
        let shipped = |file: &str| {
            let text =
                fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/behind").join(file));
            let mut text = text.unwrap();
            if let Some((line, broken)) = change.filter(|(line, _)| text.contains(line)) {
                is_changed.set(true);
                text = text.replace(line, broken);
            }
            let text = waits.iter().fold(text, |text, &(limit, longer)| text.replace(limit, longer));
            let text = text.replace("put the value of authz.secret_file here", SECRET);
            [("8000", own), ("9000", api), ("9001", authz)].iter().fold(text, |text, (port, address)| {
                let (ip, new) = (address.ip(), address.port());
                text.replace(&format!("127.0.0.1:{port}"), &address.to_string())
                    .replace(&format!(":{port} {{\n\tbind 127.0.0.1"), &format!(":{new} {{\n\tbind {ip}"))
                    .replace(
                        &format!("address: 127.0.0.1, port_value: {port} "),
                        &format!("address: {ip}, port_value: {new} "),
                    )
            })
        };
        let at = folder.display();
        let write = |file: &str, text: String| {
            assert!(text.contains(&authz.ip().to_string()), "{file} has other addresses");
            assert!(is_changed.get(), "no file has {change:?}");
            fs::write(folder.join(file), text).unwrap();
        };
        let words = match self {
            Self::Nginx => {
                let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|kind| format!("{kind}_temp_path {at}/{kind};"))
                    .join(" ");
                let text = shipped("nginx.conf");
                write(
                    "nginx.conf",
                    text.replace("\nhttp {", &format!("\nhttp {{ access_log off; {temporary}")),
                );
                let alone = format!("daemon off; master_process off; pid {at}/pid; error_log stderr;");
                return [
                    "-p",
                    &at.to_string(),
                    "-c",
                    &format!("{at}/nginx.conf"),
                    "-e",
                    "stderr",
                    "-g",
                    &alone,
                ]
                .map(str::to_owned)
                .to_vec();
            }
            Self::Caddy => {
                write("Caddyfile", format!("{{\n\tadmin off\n}}\n{}", shipped("Caddyfile")));
                "run --config Caddyfile"
            }
            Self::HaProxy => {
                fs::write(folder.join("haproxy.lua"), shipped("haproxy.lua")).unwrap();
                write("haproxy.cfg", shipped("haproxy.cfg"));
                "-db -f haproxy.cfg"
            }
            Self::Traefik => {
                // A file of its own name would be read for other settings.
                write("routes.yaml", shipped("traefik.yaml").replace("weather.example", ACME));
                let quiet = "--global.checknewversion=false --log.level=ERROR";
                &*format!("--entrypoints.web.address={own} --providers.file.filename=routes.yaml {quiet}")
            }
            Self::EnvoyHttp | Self::EnvoyGrpc => {
                let file = if self == Self::EnvoyHttp { "envoy-http.yaml" } else { "envoy-grpc.yaml" };
                write("envoy.yaml", shipped(file));
                "-c envoy.yaml --concurrency 1 --disable-hot-restart --log-level warning"
            }
        };
        words.split(' ').map(str::to_owned).collect()
    }
}
