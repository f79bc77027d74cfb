//! Listeners that outlive a process: an upgrade by SIGUSR2, sockets that systemd holds, and what systemd is told.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, os::unix::net::UnixDatagram, thread, time::Duration};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};

use crate::drain::event_stream;
use crate::rig::case::{Case, cases};
use crate::rig::gateway::{Gateway, send};
use crate::rig::h2c::{self, Message};
use crate::rig::scripts::Cue;
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::support::process::{Process, own_ip, stop_listening};
use crate::support::relay::Relay;
use crate::support::stop::Stop;
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    upgrades_under_load_lose_no_request_and_no_stream,
    a_new_process_that_can_not_serve_leaves_the_old_one_serving,
    an_order_to_end_ends_a_new_process_that_does_not_serve_yet,
    an_order_to_end_before_the_process_serves_ends_it_without_a_failure,
    an_order_to_upgrade_before_the_process_serves_is_ignored_and_does_not_end_it,
    orders_to_upgrade_during_an_upgrade_are_ignored_and_start_no_third_process,
    a_new_process_that_fails_while_the_old_one_drains_ends_the_old_one_with_a_failure,
    a_process_that_ends_waits_for_the_one_that_it_replaced,
    an_address_that_somebody_else_listens_on_ends_the_start_and_systemd_hears_of_none,
    systemd_is_told_of_the_start_of_the_new_main_process_and_of_the_end,
];

pub(crate) const ON_A_DISK: &[Case] = cases![
    the_old_process_keeps_its_store_and_an_upgrade_fails,
    a_restart_with_sockets_of_systemd_delays_requests_and_refuses_none,
    the_file_of_init_starts_behind_the_sockets_of_the_unit,
    a_socket_of_systemd_that_is_in_the_way_is_named,
];

/// How many upgrades there are. `TG_UPGRADES` is another number.
const UPGRADES: usize = 4;

/// How many requests are answered between two upgrades.
const REQUESTS: usize = 100;

/// A process that replaced the one that the test started, which nobody else ends.
struct Replacement(u32);

impl Drop for Replacement {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_raw(self.0.cast_signed()).unwrap(), Signal::KILL);
    }
}

fn first(gateway: &Gateway) -> u32 {
    gateway.service.process.as_ref().unwrap().pid
}

fn said(gateway: &Gateway, line: &str) -> usize {
    gateway.service.log().matches(line).count()
}

/// Waits until the log says something once more than before.
fn says_again(gateway: &Gateway, line: &str, happens: impl FnOnce()) {
    let before = said(gateway, line);
    happens();
    until(line, SOON, || (said(gateway, line) > before).then_some(()));
}

/// Replaces the process, waits until the old one has ended, and gives the new one.
fn upgrade(gateway: &Gateway, old: u32, meanwhile: impl FnOnce()) -> Replacement {
    let mut new = None;
    says_again(gateway, ": stopped", || {
        says_again(gateway, "the new process serves", || send(old, Signal::USR2));
        let log = gateway.service.log();
        let (_, id) = log.rsplit_once("the new process serves process=").unwrap();
        new = Some(Replacement(id.split_whitespace().next().unwrap().parse().unwrap()));
        meanwhile();
    });
    new.unwrap()
}

/// Clients of every kind ask until something has happened; each request has to be answered with 200. Gives their number.
fn under_load(site: &Site, happens: impl FnOnce(&dyn Fn())) -> usize {
    let (asked, stop, gateway) = (AtomicUsize::new(0), Stop::default(), site.gateway.address);
    let kept = || {
        let (mut wire, mut used, mut is_last) = (Wire::open(gateway), Stopwatch::start(), false);
        while !stop.is_set() {
            // A process that drains closes one that is not used for three seconds.
            if is_last || used.elapsed() > Duration::from_secs(2) {
                wire = Wire::open(gateway);
            }
            let answer = site.by_key().ask_on(&mut wire);
            assert_eq!(answer.status, 200);
            (used, is_last) = (Stopwatch::start(), answer.header("connection") == Some("close"));
            asked.fetch_add(1, Ordering::SeqCst);
        }
    };
    let repeated = |ask: &dyn Fn()| {
        while !stop.is_set() {
            ask();
            asked.fetch_add(1, Ordering::SeqCst);
        }
    };
    let new = || repeated(&|| assert_eq!(site.status(), 200));
    let over_http_2 = || {
        repeated(&|| {
            let request = Message::request(http::Method::GET, ACME, &public_path());
            assert_eq!(h2c::ask(gateway, &request).unwrap().status, 200);
        });
    };
    let verifying = || repeated(&|| drop(site.gateway.service.verify(site.key()).success(200)));
    let scraping = || repeated(&|| drop(site.gateway.service.samples()));
    thread::scope(|scope| {
        let _stops = stop.at_end();
        let clients = [
            scope.spawn(kept),
            scope.spawn(kept),
            scope.spawn(new),
            scope.spawn(new),
            scope.spawn(over_http_2),
            scope.spawn(verifying),
            scope.spawn(scraping),
        ];
        let go_on = || {
            let goal = asked.load(Ordering::SeqCst) + REQUESTS;
            until("the load is on", SOON, || {
                assert!(!clients.iter().any(|client| client.is_finished()), "a request failed");
                (asked.load(Ordering::SeqCst) >= goal).then_some(())
            });
        };
        go_on();
        happens(&go_on);
        go_on();
    });
    asked.into_inner()
}

fn loaded(stage: &Stage) -> SiteBuilder<'_> {
    Site::of(stage).unlimited().agent(4).set("shutdown.grace", "24h")
}

#[expect(clippy::print_stdout, reason = "the figures of a long run")]
fn upgrades_under_load_lose_no_request_and_no_stream(stage: &Stage) {
    let site = loaded(stage).set("shutdown.delay", "1h").start();
    let Site { gateway, upstream, .. } = &site;
    let upgrades = std::env::var("TG_UPGRADES").map_or(UPGRADES, |count| count.parse().unwrap());
    let mut last = None;
    let asked = under_load(&site, |go_on| {
        for _ in 0..upgrades {
            let cues = [Cue::new(), Cue::new()];
            let mut events = event_stream(gateway, upstream, &cues);
            let old = last.as_ref().map_or_else(|| first(gateway), |process: &Replacement| process.0);
            last = Some(upgrade(gateway, old, || {
                go_on();
                gateway.service.await_ready();
                // Of the old process.
                for (cue, expected) in cues.iter().zip(["data: 2\n\n", "data: 3\n\n"]) {
                    cue.give();
                    assert_eq!(events.chunk().unwrap().unwrap(), expected.as_bytes());
                }
                assert_eq!(events.chunk().unwrap(), None);
                drop(events);
            }));
            go_on();
        }
    });
    let log = gateway.service.log();
    assert_eq!((log.matches(": stopped").count(), log.contains("cut off")), (upgrades, false));
    println!("{upgrades} upgrades, {asked} requests, none lost");
    assert!(gateway.service.command("health", &[]).status.success());
}

/// Exchanges the node for one that does not answer: a new process never gets to serve.
fn take_the_node_away(gateway: &Gateway) -> String {
    let file = gateway.service.folder.path().join("tiergate.toml");
    let text = fs::read_to_string(&file).unwrap();
    let node = text.lines().find(|line| line.starts_with("rpc_urls")).unwrap();
    fs::write(&file, text.replace(node, "rpc_urls = [\"http://127.0.0.1:1\"]")).unwrap();
    text
}

fn a_new_process_that_can_not_serve_leaves_the_old_one_serving(stage: &Stage) {
    let site = loaded(stage).start();
    let gateway = &site.gateway;
    let file = gateway.service.folder.path().join("tiergate.toml");
    let fails = || {
        says_again(gateway, "the upgrade failed, and this process goes on: the new process ended", || {
            send(first(gateway), Signal::USR2);
        });
    };
    let good = take_the_node_away(gateway);
    under_load(&site, |go_on| {
        fails();
        go_on();
        fs::write(&file, "broken").unwrap();
        fails();
    });
    assert_eq!((said(gateway, "does not take over"), said(gateway, ": stopped")), (1, 0), "of the new one");
    fs::write(&file, good).unwrap();
    let _new = upgrade(gateway, first(gateway), || ());
    assert_eq!(site.status(), 200);
}

/// The process that was started last to replace another one.
fn started_last(gateway: &Gateway) -> Replacement {
    const LINE: &str = "to replace this process process=";
    let log = gateway.service.await_log(&[LINE]);
    let (_, id) = log.rsplit_once(LINE).unwrap();
    Replacement(id.split_whitespace().next().unwrap().parse().unwrap())
}

fn an_order_to_end_ends_a_new_process_that_does_not_serve_yet(stage: &Stage) {
    let site = loaded(stage).start();
    let gateway = &site.gateway;
    take_the_node_away(gateway);
    let watch = Stopwatch::start();
    says_again(gateway, ": serving version", || send(first(gateway), Signal::USR2));
    let new = started_last(gateway);
    let is_late = watch.elapsed() >= Duration::from_secs(5);
    says_again(gateway, ": stopped", || send(first(gateway), Signal::TERM));
    for address in addresses(gateway) {
        until("nobody listens", SOON, || TcpStream::connect(address).err());
    }
    let entry = Path::new("/proc").join(new.0.to_string());
    until("the new process is gone", SOON, || (!entry.exists()).then_some(()));
    // Ten seconds after its start it would end by itself, and say so.
    assert!(is_late || said(gateway, "does not take over") == 0, "{}", gateway.service.log());
}

/// True once it is the program, and handles the signal of this number.
fn handles(process: u32, number: u32) -> bool {
    if fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim() != "tiergate" {
        return false;
    }
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (number - 1) & 1 == 1
}

/// The number of the first signal that the program handles.
const HANGUP: u32 = 1;

/// Without a handler Linux gives no signal to the first process of a container.
fn an_order_to_end_before_the_process_serves_ends_it_without_a_failure(stage: &Stage) {
    let site = loaded(stage).start();
    end(&site.gateway);
    for order in [Signal::TERM, Signal::QUIT, Signal::INT] {
        let started = start_behind(&site.gateway, "");
        until("it handles signals", SOON, || handles(started.pid, HANGUP).then_some(()));
        send(started.pid, order);
        assert_eq!(until("it ends", SOON, || started.exit_code()), 0, "{order:?}");
    }
}

fn an_order_to_upgrade_before_the_process_serves_is_ignored_and_does_not_end_it(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let site = loaded(stage).set("chain.rpc_urls", vec![format!("http://{}", relay.address)]).start();
    let gateway = &site.gateway;
    end(gateway);
    // Behind a socket of systemd it waits for its node for a while.
    relay.close();
    let sockets = [TcpListener::bind(gateway.service.api).unwrap()];
    let started = start_behind(gateway, &passing(&sockets));
    until("it handles signals", SOON, || handles(started.pid, HANGUP).then_some(()));
    send(started.pid, Signal::USR2);
    until("it says so", SOON, || {
        assert_eq!(started.exit_code().filter(|code| *code > 128), None, "a signal ended it");
        (said(gateway, "SIGUSR2 is ignored: this process does not serve yet") > 0).then_some(())
    });
    relay.reopen();
    gateway.service.await_ready();
    let _new = upgrade(gateway, started.pid, || ());
    assert_eq!(site.status(), 200);
    assert_eq!(said(gateway, "the program is started again"), 1);
}

fn orders_to_upgrade_during_an_upgrade_are_ignored_and_start_no_third_process(stage: &Stage) {
    let site = loaded(stage).start();
    let gateway = &site.gateway;
    let good = take_the_node_away(gateway);
    let old = first(gateway);
    says_again(gateway, ": serving version", || send(old, Signal::USR2));
    // As `systemctl kill` does without `--kill-whom=main`.
    let new = started_last(gateway);
    says_again(gateway, "SIGUSR2 is ignored: an upgrade is under way", || send(old, Signal::USR2));
    says_again(gateway, "SIGUSR2 is ignored: this process does not serve yet", || send(new.0, Signal::USR2));
    until("the upgrade fails", SOON, || (said(gateway, "the upgrade failed") == 1).then_some(()));
    assert_eq!(said(gateway, "the program is started again"), 1);
    fs::write(gateway.service.folder.path().join("tiergate.toml"), good).unwrap();
    let cues = [Cue::new(), Cue::new()];
    let mut events = event_stream(gateway, &site.upstream, &cues);
    says_again(gateway, "the new process serves", || send(old, Signal::USR2));
    let _new = started_last(gateway);
    says_again(gateway, "SIGUSR2 is ignored: this process is about to end", || send(old, Signal::USR2));
    says_again(gateway, ": stopped", || {
        cues.iter().for_each(|cue| cue.give());
        while events.chunk().unwrap().is_some() {}
    });
    assert_eq!(said(gateway, "the program is started again"), 2);
}

fn a_new_process_that_fails_while_the_old_one_drains_ends_the_old_one_with_a_failure(stage: &Stage) {
    let site = loaded(stage).start();
    let gateway = &site.gateway;
    let cues = [Cue::new(), Cue::new()];
    let _events = event_stream(gateway, &site.upstream, &cues);
    says_again(gateway, "the new process serves", || send(first(gateway), Signal::USR2));
    send(started_last(gateway).0, Signal::KILL);
    let process = gateway.service.process.as_ref().unwrap();
    assert_eq!(until("the old process ends", SOON, || process.exit_code()), 1);
    assert_eq!(said(gateway, "the process that replaced this one has failed (signal: 9 (SIGKILL))"), 1);
}

/// As `systemctl restart` after an upgrade: systemd kills what is left once the main process has ended.
fn a_process_that_ends_waits_for_the_one_that_it_replaced(stage: &Stage) {
    let site = loaded(stage).set("shutdown.delay", "0s").start();
    let gateway = &site.gateway;
    let cues = [Cue::new(), Cue::new()];
    let mut events = event_stream(gateway, &site.upstream, &cues);
    says_again(gateway, "the new process serves", || send(first(gateway), Signal::USR2));
    let new = started_last(gateway);
    until("the old one drains", SOON, || (said(gateway, ": stopping") == 1).then_some(()));
    says_again(gateway, ": stopping", || send(new.0, Signal::TERM));
    until("nobody listens", SOON, || TcpStream::connect(gateway.address).is_err().then_some(()));
    let watch = Stopwatch::start();
    until("a second has passed", SOON, || {
        assert_eq!(said(gateway, ": stopped"), 0, "one has a request under way, the other waits for it");
        (watch.elapsed() > Duration::from_secs(1)).then_some(())
    });
    cues.iter().for_each(|cue| cue.give());
    while events.chunk().unwrap().is_some() {}
    until("both have ended", SOON, || (said(gateway, ": stopped") == 2).then_some(()));
}

/// Starts the program with these words of bash in front of it.
fn start_behind(gateway: &Gateway, words: &str) -> Process {
    let folder = gateway.service.folder.path();
    let file = folder.join("tiergate.toml");
    let script = format!("{words} exec \"$@\"");
    let program = env!("CARGO_BIN_EXE_tiergate");
    let arguments = ["-c", &script, "bash", program, "run", "--config", file.to_str().unwrap()];
    let arguments = arguments.map(str::to_owned);
    Process::start(Path::new("bash"), &arguments, &folder.join("log"), "")
}

/// Ends the process, which is to start in another way.
fn end(gateway: &Gateway) {
    end_whole(gateway.service.process.as_ref().unwrap());
}

/// As systemd does: its last line comes before it gives its store back.
fn end_whole(process: &Process) {
    send(process.pid, Signal::TERM);
    assert_eq!(until("it has ended", SOON, || process.exit_code()), 0);
}

fn addresses(gateway: &Gateway) -> [SocketAddr; 3] {
    [gateway.address, gateway.service.api, gateway.service.admin]
}

/// What systemd hears of a service.
struct Systemd {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Systemd {
    fn at(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        Self { socket, path }
    }

    /// What is put in front of the program.
    fn words(&self) -> String {
        format!("NOTIFY_SOCKET={}", self.path.display())
    }

    fn received(&self) -> String {
        let mut buffer = [0; 100];
        let length = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap().trim_end().to_owned()
    }
}

fn systemd_is_told_of_the_start_of_the_new_main_process_and_of_the_end(stage: &Stage) {
    let site = loaded(stage).set("shutdown.delay", "0s").start();
    let gateway = &site.gateway;
    end(gateway);
    let systemd = Systemd::at(gateway.service.folder.path().join("notify"));
    let started = start_behind(gateway, &systemd.words());
    assert_eq!(systemd.received(), "READY=1");
    for address in addresses(gateway) {
        drop(TcpStream::connect(address).unwrap());
    }
    let new = upgrade(gateway, started.pid, || ());
    assert_eq!(systemd.received(), format!("MAINPID={}", new.0));
    send(new.0, Signal::TERM);
    assert_eq!(systemd.received(), "STOPPING=1");
}

fn an_address_that_somebody_else_listens_on_ends_the_start_and_systemd_hears_of_none(stage: &Stage) {
    let site = loaded(stage).start();
    let gateway = &site.gateway;
    end(gateway);
    take_the_node_away(gateway);
    // Behind one socket of systemd it waits for its node, with the other addresses bound.
    let sockets = [TcpListener::bind(gateway.service.api).unwrap()];
    let systemd = Systemd::at(gateway.service.folder.path().join("notify"));
    let words = [passing(&sockets), systemd.words()].join(" ");
    let mut started = None;
    says_again(gateway, ": serving version", || started = Some(start_behind(gateway, &words)));
    let other = Socket::new(Domain::for_address(gateway.address), Type::STREAM, None).unwrap();
    other.set_reuse_address(true).unwrap();
    other.bind(&gateway.address.into()).unwrap();
    other.listen(1).unwrap();
    let exit_code = || started.as_ref().unwrap().exit_code();
    assert_eq!(until("it ends", SOON, exit_code), 1);
    let sentence = format!("tiergate: cannot listen on {}: Address already in use", gateway.address);
    assert_eq!(said(gateway, &sentence), 1);
    systemd.socket.set_nonblocking(true).unwrap();
    systemd.socket.recv(&mut [0; 100]).unwrap_err();
}

fn the_old_process_keeps_its_store_and_an_upgrade_fails(stage: &Stage) {
    let site = loaded(stage).start();
    let gateway = &site.gateway;
    under_load(&site, |_| {
        says_again(gateway, "the upgrade failed, and this process goes on", || {
            send(first(gateway), Signal::USR2);
        });
    });
    let log = gateway.service.log();
    assert!(log.contains("tiergate: ") && log.contains("is in use"), "{log}");
    assert_eq!(said(gateway, ": stopped"), 0);
}

/// Words that hand these sockets over as systemd does.
fn passing(sockets: &[TcpListener]) -> String {
    // Behind all of them: a copy must not take the place of a socket that is copied after it.
    let last_place = 2 + i32::try_from(sockets.len()).unwrap();
    let beyond = sockets.iter().map(AsRawFd::as_raw_fd).max().unwrap().max(last_place) + 1;
    let (mut copies, mut places) = ("exec".to_owned(), "exec".to_owned());
    for (number, socket) in sockets.iter().enumerate() {
        fcntl_setfd(socket.as_fd(), FdFlags::empty()).unwrap();
        let copy = beyond + i32::try_from(number).unwrap();
        copies += &format!(" {copy}<&{}", socket.as_raw_fd());
        places += &format!(" {}<&{copy}", 3 + number);
    }
    format!("{copies}; {places}; LISTEN_FDS={} LISTEN_PID=$$", sockets.len())
}

fn a_restart_with_sockets_of_systemd_delays_requests_and_refuses_none(stage: &Stage) {
    let site = loaded(stage).set("shutdown.delay", "0s").start();
    let gateway = &site.gateway;
    end(gateway);
    // In another order than that of the configuration, and one too many.
    let other = "127.0.0.1:0".parse().unwrap();
    let sockets = addresses(gateway).into_iter().rev().chain([other]);
    let sockets: Vec<_> = sockets.map(|address| TcpListener::bind(address).unwrap()).collect();
    let words = passing(&sockets);
    let mut process = start_behind(gateway, &words);
    until("it serves", SOON, || (said(gateway, "handed over is closed") == 1).then_some(()));
    under_load(&site, |go_on| {
        for _ in 0..2 {
            end_whole(&process);
            let mut waiting = gateway.connect();
            waiting.send(&Request::get(ACME, &public_path()).bytes());
            process = start_behind(gateway, &words);
            assert_eq!(waiting.answer().status, 200);
            go_on();
        }
    });
}

/// The unit names addresses of this machine; a test has one of its own in their place.
fn sockets_of_the_unit(ip: &str) -> Vec<TcpListener> {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/systemd/tiergate.socket");
    let unit = fs::read_to_string(unit).unwrap();
    let addresses = unit.lines().filter_map(|line| line.strip_prefix("ListenStream="));
    addresses.map(|address| TcpListener::bind(address.replace("127.0.0.1", ip)).unwrap()).collect()
}

fn the_file_of_init_starts_behind_the_sockets_of_the_unit(stage: &Stage) {
    let (folder, ip, chain) = (tempfile::tempdir().unwrap(), own_ip().to_string(), stage.world().chain());
    let file = folder.path().join("tiergate.toml");
    let program = env!("CARGO_BIN_EXE_tiergate");
    let chain_id = chain.contracts.chain_id.to_string();
    let [identity, stake_vault] =
        [chain.contracts.identity, chain.contracts.stake_vault].map(|address| address.to_checksum(None));
    let written = Command::new(program)
        .args(["init", "--name", "Test", "--chain-id", &chain_id, "--identity", &identity])
        .args(["--stake-vault", &stake_vault])
        .arg(&file)
        .output();
    assert!(written.unwrap().status.success());
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("127.0.0.1", &ip)).unwrap();
    let sockets = sockets_of_the_unit(&ip);
    let addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    let systemd = Systemd::at(folder.path().join("notify"));
    let nodes = format!("TIERGATE__CHAIN__RPC_URLS=http://{}", chain.node);
    let words = format!(
        "cd {} && {} {} {nodes} TIERGATE__STORE__EMBEDDED__CREATE=true exec \"$@\"",
        folder.path().display(),
        passing(&sockets),
        systemd.words()
    );
    let arguments = ["-c", &words, "bash", program, "run", "--config", file.to_str().unwrap()];
    let log = folder.path().join("log");
    let process = Process::start(Path::new("bash"), &arguments.map(str::to_owned), &log, "");
    assert_eq!(systemd.received(), "READY=1", "{}", process.log());
    for (address, (path, status)) in
        addresses.into_iter().zip([("/", 401), ("/livez", 200), ("/metrics", 200)])
    {
        assert_eq!(Request::get("localhost", path).ask(address).status, status, "{address}");
    }
    send(process.pid, Signal::TERM);
    process.await_log(&[": stopped"]);
    assert!(!process.log().contains("handed over"), "{}", process.log());
}

fn a_socket_of_systemd_that_is_in_the_way_is_named(stage: &Stage) {
    // A test of another process may have the port at an address of its own.
    let of_another_port = |_| {
        let site = loaded(stage).start();
        end(&site.gateway);
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), site.gateway.service.api.port());
        Some((site, everywhere, [TcpListener::bind(everywhere).ok()?]))
    };
    let (site, everywhere, sockets) = (0..10).find_map(of_another_port).unwrap();
    let gateway = &site.gateway;
    let process = start_behind(gateway, &passing(&sockets));
    assert_eq!(until("it ends", SOON, || process.exit_code().filter(|code| *code != 0)), 1);
    let sentence = format!(
        "cannot listen on {} (listen.api): Address already in use (os error 98); a socket at {everywhere} was handed over: \
         write one address in the configuration and in tiergate.socket",
        gateway.service.api
    );
    assert_eq!(said(gateway, &sentence), 1, "{}", gateway.service.log());
    // Children that were started meanwhile keep it open.
    stop_listening(&sockets[0]);
}
