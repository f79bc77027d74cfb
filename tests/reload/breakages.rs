//! Each file of a configuration is broken in turn, and mended, while clients ask.

use std::fs::{self, Permissions};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::{net::SocketAddr, os::unix::fs::PermissionsExt, process::Command, thread};

use rcgen::{CertificateParams, KeyPair};

use super::gateway::Program;
use super::upstreams::{Upstreams, answer};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::{client::Connection, whole};

/// How many reloads there are at least.
const RELOADS: usize = 60;

/// How many clients ask.
const CLIENTS: usize = 4;

/// How many more descriptors, and threads, may be held after [`RELOADS`] than after each file was broken once. That is less than one
/// for each file that is read.
const HELD_MORE: usize = 6;

/// How many requests there are while a file is broken, and as many while it is whole.
const REQUESTS: usize = 40;

/// As root the process could read every file, whatever its mode.
const WITHOUT_PRIVILEGES: &str = "log=$1; shift; set -- \"$log\" setpriv \
     --bounding-set -dac_override,-dac_read_search \"$@\"";

/// A file, and what becomes of it.
struct Breakage {
    file: &'static str,
    how: How,
    /// True if a reload reads the file.
    is_read: bool,
}

#[derive(Clone, Copy)]
enum How {
    Text(&'static str),
    Pipe,
    Mode,
    Gone,
}

const BREAKAGES: &[Breakage] = &[
    Breakage { file: "client.crt", how: How::Text("no certificate"), is_read: true },
    Breakage { file: "client.crt", how: How::Pipe, is_read: true },
    Breakage { file: "client.key", how: How::Mode, is_read: true },
    Breakage { file: "ca.crt", how: How::Gone, is_read: true },
    Breakage { file: "agents", how: How::Text("1 3\n2"), is_read: true },
    Breakage { file: "agents", how: How::Mode, is_read: true },
    Breakage { file: "password", how: How::Text(""), is_read: false },
    Breakage { file: "password", how: How::Pipe, is_read: false },
    Breakage { file: "password", how: How::Mode, is_read: false },
    Breakage { file: "header", how: How::Text(""), is_read: false },
    Breakage { file: "tenants.d/shown.toml", how: How::Text("id = "), is_read: true },
    Breakage {
        file: "tenants.d/shown.toml",
        how: How::Text("id = \"guarded\"\nhosts = [\"shown.test\"]"),
        is_read: true,
    },
    Breakage { file: "tenants.d/shown.toml", how: How::Pipe, is_read: true },
    Breakage { file: "tenants.d/guarded.toml", how: How::Mode, is_read: true },
    Breakage { file: "tiergate.toml", how: How::Text("[listen"), is_read: true },
    Breakage { file: "tiergate.toml", how: How::Pipe, is_read: true },
    Breakage { file: "tiergate.toml", how: How::Mode, is_read: true },
];

/// How many requests clients may still make.
#[derive(Default)]
struct Budget {
    left: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Budget {
    /// False when the test is over.
    fn take(&self) -> bool {
        let mut left = self.changed.wait_while(self.left.lock().unwrap(), |left| *left == Some(0)).unwrap();
        let Some(count) = left.as_mut() else { return false };
        *count -= 1;
        drop(left);
        self.changed.notify_all();
        true
    }

    /// Has so many requests made, and comes back when the last one has begun.
    fn spend(&self, count: usize, is_alive: impl Fn() -> bool) {
        *self.left.lock().unwrap() = Some(count);
        self.changed.notify_all();
        until("clients ask", SOON, || {
            assert!(is_alive(), "a request was lost");
            (*self.left.lock().unwrap() == Some(0)).then_some(())
        });
    }

    fn end(&self) {
        *self.left.lock().unwrap() = None;
        self.changed.notify_all();
    }
}

/// The running program and its files.
struct Service(Program);

impl Service {
    fn start(upstream: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("tenants.d")).unwrap();
        for (name, text) in [("password", "secret\n"), ("header", "secret\n"), ("agents", "1 3\n")] {
            fs::write(at(name), text).unwrap();
        }
        issue(folder.path());
        let sections = format!(
            "[[chain.rpc_headers]]\nurl = \"http://127.0.0.1:1\"\nname = \"x-key\"\nvalue_file = {:?}\n\
             [store]\nkind = \"redis\"\n[store.redis]\nurl = \"redis://127.0.0.1:1\"\npassword_file = {:?}\n\
             [tiers]\nsource = \"list\"\nfile = {:?}\n[log]\nlevel = \"info\"\n",
            at("header"),
            at("password"),
            at("agents"),
        );
        let public = "[[routes]]\npath = \"/*\"\naccess = \"public\"\n";
        let [ca, cert, key] = ["ca.crt", "client.crt", "client.key"].map(at);
        let tls = format!("[upstream_tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}\n");
        let tenant = |id: &str, rest: &str| {
            let text =
                format!("id = \"{id}\"\nhosts = [\"{id}.test\"]\nupstreams = [\"{upstream}\"]\n{rest}");
            fs::write(at(&format!("tenants.d/{id}.toml")), text).unwrap();
        };
        tenant("shown", &format!("{tls}{public}"));
        tenant("guarded", "");
        Self(Program::start(folder, &sections, WITHOUT_PRIVILEGES))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.folder.path().join(name)
    }

    fn refused(admin: &mut Connection) -> f64 {
        Program::samples(admin).get("tiergate_config_refused_files")
    }

    fn reloads(&self) -> f64 {
        Program::samples(&mut self.0.admin()).sum("tiergate_config_reloads_total", &[])
    }

    /// How many descriptors and threads the process has.
    fn held(&self) -> [usize; 2] {
        let count =
            |what: &str| fs::read_dir(format!("/proc/{}/{what}", self.0.process.pid)).unwrap().count();
        [count("fd"), count("task")]
    }

    /// The memory that the process has now, in KiB.
    fn memory(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.process.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Has a tenant at a host of its own come into force, which waits for no other file.
    fn apply(&self, upstream: SocketAddr, turn: usize) {
        let (host, draft) = (format!("turn-{turn}.test"), self.at("draft"));
        let text = format!(
            "id = \"turn\"\nhosts = [\"{host}\"]\nupstreams = [\"{upstream}\"]\n[[routes]]\npath = \"/*\"\naccess = \"public\"\n"
        );
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.at("tenants.d/turn.toml")).unwrap();
        self.0.hang_up();
        let mut wire = Connection::open(self.0.address).unwrap();
        until(&format!("{host} is served"), SOON, || {
            wire.write(&get("/", &host, "")).unwrap();
            (wire.read(false).unwrap().status == 200).then_some(())
        });
    }
}

/// Writes a certificate, its key and an authority.
fn issue(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(["gateway.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    for (name, text) in
        [("client.crt", cert.pem()), ("client.key", key.serialize_pem()), ("ca.crt", cert.pem())]
    {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn get(path: &str, host: &str, rest: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{rest}\r\n").into_bytes()
}

/// Breaks a file, and gives what mends it.
fn break_file(path: &Path, how: How) -> impl FnOnce() + use<> {
    let (path, aside) = (path.to_owned(), path.with_extension("aside"));
    if let How::Mode = how {
        fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    } else {
        fs::rename(&path, &aside).unwrap();
    }
    match how {
        How::Text(text) => fs::write(&path, text).unwrap(),
        How::Pipe => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
        How::Mode | How::Gone => {}
    }
    move || match how {
        How::Mode => fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap(),
        How::Text(_) | How::Pipe | How::Gone => fs::rename(aside, &path).unwrap(),
    }
}

/// Asks as long as there is a budget: a public host, and one that is for agents alone, without a credential and with a bad
/// one. Gives the number of requests.
fn ask(service: &Service, budget: &Budget) -> usize {
    let mut wire = Connection::open(service.0.address).unwrap();
    let key = format!("X-API-Key: svc_live_v1_{:064x}\r\n", 7);
    let mut count = 0;
    while budget.take() {
        let path = format!("/{count}");
        let (host, rest) = match count % 4 {
            0 | 1 => ("shown.test", ""),
            2 => ("guarded.test", ""),
            _ => ("guarded.test", &*key),
        };
        wire.write(&get(&path, host, rest)).unwrap();
        let answered = wire.read(false).unwrap();
        match count % 4 {
            0 | 1 => assert_eq!((answered.status, answered.text()), (200, answer(0, host, &path))),
            2 => assert_eq!(answered.status, 401, "{}", answered.text()),
            // The store is not there.
            _ => assert!([401, 500].contains(&answered.status), "{}", answered.text()),
        }
        if answered.header("connection") == Some("close") {
            wire = Connection::open(service.0.address).unwrap();
        }
        count += 1;
    }
    count
}

// threat: A half-applied reload, a broken next start
#[test]
fn files_that_are_broken_in_turn_under_load_lose_no_request_and_admit_nobody() {
    let reloads = whole::reloads([RELOADS; 2]);
    let upstreams = Upstreams::start(1);
    let upstream = upstreams.addresses()[0];
    let service = Service::start(upstream);
    let (budget, begun) = (Budget::default(), Stopwatch::start());
    *budget.left.lock().unwrap() = Some(0);
    let mut held = None;
    let asked: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| ask(&service, &budget))).collect();
        let is_alive = || !clients.iter().any(|client| client.is_finished());
        let mut admin = service.0.admin();
        // However it ends, clients do.
        let driven = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut turn = 0;
            while service.reloads() < reloads as f64 {
                let Breakage { file, how, is_read } = &BREAKAGES[turn % BREAKAGES.len()];
                let mend = break_file(&service.at(file), *how);
                service.apply(upstream, 2 * turn);
                budget.spend(REQUESTS, is_alive);
                if *is_read {
                    until(&format!("{file} is refused"), SOON, || {
                        (Service::refused(&mut admin) == 1.0).then_some(())
                    });
                } else {
                    assert_eq!(Service::refused(&mut admin), 0.0, "{file}");
                }
                mend();
                service.apply(upstream, 2 * turn + 1);
                budget.spend(REQUESTS, is_alive);
                until(&format!("{file} is mended"), SOON, || {
                    (Service::refused(&mut admin) == 0.0).then_some(())
                });
                turn += 1;
                held = held.or_else(|| {
                    (turn == BREAKAGES.len()).then(|| (service.held(), service.memory(), service.reloads()))
                });
            }
        }));
        budget.end();
        driven.unwrap_or_else(|panic| {
            print!("{}", service.0.process.log());
            std::panic::resume_unwind(panic)
        });
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    // Threads that have done their work end some seconds later.
    let (before, memory, since) = held.unwrap();
    let mut after = service.held();
    let is_no_more =
        |after: [usize; 2]| after.iter().zip(before).all(|(after, before)| *after <= before + HELD_MORE);
    until(&format!("no more than {before:?} is held after {since} reloads"), SOON, || {
        after = service.held();
        is_no_more(after).then_some(())
    });
    println!(
        "{} reloads, {asked} requests, none lost, nobody admitted, in {:?}; descriptors and threads {before:?}, then {after:?}; memory {memory} KiB, then {} KiB",
        service.reloads(),
        begun.elapsed(),
        service.memory()
    );
}
