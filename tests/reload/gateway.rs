//! The real program with a gateway in front of these tenants, and what makes it read them again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, net::SocketAddr, path::Path, process::Command};

use tempfile::TempDir;

use super::tables::Tables;
use crate::support::process::{Process, free_port, free_ports, own_ip};
use crate::support::time::{SOON, until};
use crate::support::{client::Connection, metrics::Samples};

/// A running gateway, and which version of its tenants may be in force.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    tables: Tables,
    /// The version that is in force for certain, unless a later one is.
    confirmed: AtomicUsize,
    /// The latest that may be in force.
    announced: AtomicUsize,
    process: Process,
    _folder: TempDir,
}

impl Gateway {
    /// Starts the program with version 0 of the tenants.
    pub(crate) fn start(upstreams: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tables = Tables::write(folder.path(), upstreams);
        let ((api, admin), address) = (free_ports(own_ip()), free_port(own_ip()));
        let config = folder.path().join("tiergate.toml");
        let text = format!(
            "[listen]\napi = \"{api}\"\ngateway = [\"{address}\"]\nadmin = \"{admin}\"\n\
             [chain]\nrpc_urls = [\"http://127.0.0.1:1\"]\nchain_id = 8004\n[chain.contracts]\n\
             identity = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"\n\
             stake_vault = \"0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512\"\n\
             [store.embedded]\ncreate = true\npath = {:?}\n",
            folder.path().join("data")
        );
        fs::write(&config, text).unwrap();
        let arguments = ["run", "--config", config.to_str().unwrap()].map(str::to_owned);
        let program = Path::new(env!("CARGO_BIN_EXE_tiergate"));
        let process = Process::start(program, &arguments, &folder.path().join("log"), "");
        let open = |listener| Connection::open(listener).is_ok();
        until("the listeners take connections", SOON, || {
            assert!(!process.log().contains("tiergate: "), "{}", process.log());
            (open(address) && open(admin)).then_some(())
        });
        until("SIGHUP is listened to", SOON, || catches_hangup(process.pid).then_some(()));
        let (confirmed, announced) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { address, admin, tables, confirmed, announced, process, _folder: folder }
    }

    pub(crate) fn confirmed(&self) -> usize {
        self.confirmed.load(Ordering::SeqCst)
    }

    pub(crate) fn announced(&self) -> usize {
        self.announced.load(Ordering::SeqCst)
    }

    /// How often the tenants were read again with this result.
    pub(crate) fn reloads(&self, admin: &mut Connection, result: &str) -> usize {
        let text = admin.send("GET", "/metrics", &[], None).unwrap().text();
        let series = format!("tiergate_config_reloads_total{{result=\"{result}\"}}");
        let count = Samples::parse(&text).get(&series);
        format!("{count:.0}").parse().unwrap()
    }

    /// A connection to ask [`Self::reloads`] on.
    pub(crate) fn admin(&self) -> Connection {
        Connection::open(self.admin).unwrap()
    }

    /// Puts the next version in place, and comes back when it is in force.
    pub(crate) fn reload(&self, admin: &mut Connection) {
        let before = self.reloads(admin, "applied");
        let next = self.announced.fetch_add(1, Ordering::SeqCst) + 1;
        self.tables.put_in_place(next);
        self.hang_up();
        until("the next tenants are in force", SOON, || {
            (self.reloads(admin, "applied") > before).then_some(())
        });
        self.confirmed.store(next, Ordering::SeqCst);
    }

    /// Takes all tenants away until a reload has been refused, and puts them back as they were.
    pub(crate) fn lose_tenants(&self, admin: &mut Connection, is_empty: bool) {
        let before = ["refused", "applied"].map(|result| self.reloads(admin, result));
        self.tables.take_away(is_empty);
        self.hang_up();
        until("a folder without tenants is refused", SOON, || {
            (self.reloads(admin, "refused") > before[0]).then_some(())
        });
        self.tables.put_in_place(self.announced());
        self.hang_up();
        until("the tenants are read again", SOON, || {
            (self.reloads(admin, "applied") > before[1]).then_some(())
        });
    }

    fn hang_up(&self) {
        // A builtin of every shell, where a program of that name may be missing.
        let signal = format!("kill -HUP {}", self.process.pid);
        assert!(Command::new("sh").args(["-c", &signal]).status().unwrap().success());
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}

/// Until then the signal would end the process.
pub(crate) fn catches_hangup(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 == 1
}
