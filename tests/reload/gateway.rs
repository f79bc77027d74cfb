//! The real program with a gateway in front of these tenants, and what makes it read them again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, net::SocketAddr, path::Path, process::Command};

use tempfile::TempDir;

use super::tables::Tables;
use crate::support::process::{Process, free_port, free_ports, own_ip};
use crate::support::time::{SOON, until};
use crate::support::{client::Connection, metrics::Samples};

/// The running program.
pub(crate) struct Program {
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    // Ends before its files do.
    pub(crate) process: Process,
    pub(crate) folder: TempDir,
}

impl Program {
    /// Starts it by a shell's line, or by itself, with further sections of its configuration.
    pub(crate) fn start(folder: TempDir, sections: &str, line: &str) -> Self {
        let ((api, admin), address) = (free_ports(own_ip()), free_port(own_ip()));
        let config = folder.path().join("tiergate.toml");
        let text = format!(
            "[listen]\napi = \"{api}\"\ngateway = [\"{address}\"]\nadmin = \"{admin}\"\n\
             [chain]\nrpc_urls = [\"http://127.0.0.1:1\"]\nchain_id = 8004\n[chain.contracts]\n\
             identity = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"\n\
             stake_vault = \"0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512\"\n{sections}"
        );
        fs::write(&config, text).unwrap();
        let arguments = ["run", "--config", config.to_str().unwrap()].map(str::to_owned);
        let program = Path::new(env!("CARGO_BIN_EXE_tiergate"));
        let process = Process::start(program, &arguments, &folder.path().join("log"), line);
        let open = |listener| Connection::open(listener).is_ok();
        until("the listeners take connections", SOON, || {
            assert!(!process.log().contains("tiergate: "), "{}", process.log());
            (open(address) && open(admin)).then_some(())
        });
        until("SIGHUP is listened to", SOON, || catches_hangup(process.pid).then_some(()));
        Self { address, admin, process, folder }
    }

    /// A connection to ask [`Self::samples`] on.
    pub(crate) fn admin(&self) -> Connection {
        Connection::open(self.admin).unwrap()
    }

    pub(crate) fn samples(admin: &mut Connection) -> Samples {
        Samples::parse(&admin.send("GET", "/metrics", &[], None).unwrap().text())
    }

    pub(crate) fn hang_up(&self) {
        // A builtin of every shell, where a program of that name may be missing.
        let signal = format!("kill -HUP {}", self.process.pid);
        assert!(Command::new("sh").args(["-c", &signal]).status().unwrap().success());
    }
}

/// A gateway in front of tenants that follow each other, and which version of them may be in force.
pub(crate) struct Gateway {
    pub(crate) program: Program,
    tables: Tables,
    /// The version that is in force for certain, unless a later one is.
    confirmed: AtomicUsize,
    /// The latest that may be in force.
    announced: AtomicUsize,
}

impl Gateway {
    /// Starts the program with version 0 of the tenants.
    pub(crate) fn start(upstreams: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tables = Tables::write(folder.path(), upstreams);
        let store = format!("[store.embedded]\ncreate = true\npath = {:?}\n", folder.path().join("data"));
        let program = Program::start(folder, &store, "");
        let (confirmed, announced) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { program, tables, confirmed, announced }
    }

    pub(crate) fn confirmed(&self) -> usize {
        self.confirmed.load(Ordering::SeqCst)
    }

    pub(crate) fn announced(&self) -> usize {
        self.announced.load(Ordering::SeqCst)
    }

    /// How often the tenants were read again with this result.
    pub(crate) fn reloads(admin: &mut Connection, result: &str) -> usize {
        let series = format!("tiergate_config_reloads_total{{result=\"{result}\"}}");
        let count = Program::samples(admin).get(&series);
        format!("{count:.0}").parse().unwrap()
    }

    /// Puts the next version in place, and comes back when it is in force.
    pub(crate) fn reload(&self, admin: &mut Connection) {
        let before = Self::reloads(admin, "applied");
        let next = self.announced.fetch_add(1, Ordering::SeqCst) + 1;
        self.tables.put_in_place(next);
        self.program.hang_up();
        until("the next tenants are in force", SOON, || {
            (Self::reloads(admin, "applied") > before).then_some(())
        });
        self.confirmed.store(next, Ordering::SeqCst);
    }

    /// Takes all tenants away until a reload has been refused, and puts them back as they were.
    pub(crate) fn lose_tenants(&self, admin: &mut Connection, is_empty: bool) {
        let before = ["refused", "applied"].map(|result| Self::reloads(admin, result));
        self.tables.take_away(is_empty);
        self.program.hang_up();
        until("a folder without tenants is refused", SOON, || {
            (Self::reloads(admin, "refused") > before[0]).then_some(())
        });
        self.tables.put_in_place(self.announced());
        self.program.hang_up();
        until("the tenants are read again", SOON, || {
            (Self::reloads(admin, "applied") > before[1]).then_some(())
        });
    }
}

/// Until then the signal would end the process.
fn catches_hangup(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 == 1
}
