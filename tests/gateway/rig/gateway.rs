//! A service with a gateway, in a process of its own.

use std::{fs, net::SocketAddr, process::Command};

use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};

use crate::rig::{stage::public_path, tenants::Tenant, upstream::pin};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};
use crate::support::{client::Answer, service::Service, settings::Settings};

/// Sends a process a signal: at once, where a program that does so may be late.
pub(crate) fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) service: Service,
    settings: Settings,
}

impl Gateway {
    /// Everything but the process; `files` are names and texts in `tenants.d`.
    pub(super) fn prepare(settings: Settings, tenants: &[Tenant], files: &[(String, String)]) -> Self {
        let mut settings = settings;
        if !tenants.is_empty() {
            settings = settings.set("tenants", tenants.iter().map(Tenant::value).collect::<Vec<_>>());
        }
        let gateway = Self::with(settings);
        files.iter().for_each(|(name, text)| gateway.put(name, text));
        gateway
    }

    fn with(settings: Settings) -> Self {
        let address = free_port(own_ip());
        let service = Service::prepare(settings.clone().set("listen.gateway", vec![address.to_string()]));
        Self { address, service, settings }
    }

    /// Starts another process with the same configuration, at other addresses.
    pub(crate) fn twin(&self, change: impl FnOnce(Settings) -> Settings) -> Self {
        self.twin_under("", change)
    }

    /// The same with shell commands in front of it.
    pub(crate) fn twin_under(&self, limits: &str, change: impl FnOnce(Settings) -> Settings) -> Self {
        let mut twin = Self::with(change(self.settings.clone()));
        twin.launch(limits);
        twin
    }

    /// Starts the process and waits until it takes requests. `limits` are shell commands in front of it.
    pub(crate) fn launch(&mut self, limits: &str) {
        self.service.start_again(limits);
        self.service.await_ready();
        until("the gateway listens", SOON, || std::net::TcpStream::connect(self.address).ok());
    }

    /// Puts a file into `tenants.d` in one step, as an editor or a deployment does.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let folder = self.service.folder.path();
        let (draft, tenants) = (folder.join("draft"), folder.join("tenants.d"));
        fs::write(&draft, text).unwrap();
        // Without tenants it is not there: a start would take it for a volume that is not mounted.
        fs::create_dir_all(&tenants).unwrap();
        fs::rename(draft, tenants.join(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.service.folder.path().join("tenants.d").join(name)).unwrap();
    }

    /// Asks the process to read its configuration again.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// How often the tenants were read again with this result.
    pub(crate) fn readings(&self, result: &str) -> f64 {
        self.service.samples().get(&format!("tiergate_config_reloads_total{{result=\"{result}\"}}"))
    }

    /// Has the files as they are now read again, and waits until that is counted. The first reading that is counted may
    /// have begun before they were as they are now; the second has not.
    pub(crate) fn reread(&self, result: &str) {
        for _ in 0..2 {
            let before = self.readings(result);
            self.hang_up();
            until(&format!("the reload is {result}"), SOON, || {
                (self.readings(result) > before).then_some(())
            });
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.service.process.as_ref().unwrap().pid, signal);
    }

    /// Stops the process, until it gets [`Signal::CONT`]. Each of its threads stands still then: some go on for a moment.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let pid = self.service.process.as_ref().unwrap().pid;
        let stands = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        until("every thread stands still", SOON, || {
            fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(stands).then_some(())
        });
    }

    /// Sets the softer of two limits of the process on a resource: `fsize`, `nofile`. It can be lifted again.
    pub(crate) fn limit(&self, resource: &str, most: &str) {
        let pid = self.service.process.as_ref().unwrap().pid.to_string();
        let limit = format!("--{resource}={most}:");
        let limited = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(limited.success(), "the limit is set");
    }

    pub(crate) fn connect(&self) -> Wire {
        Wire::open(self.address)
    }

    /// The log with all lines from before now. They are written in order, some time after they were made: this waits for the line of
    /// a request that comes after them.
    pub(crate) fn log_until_now(&self) -> String {
        let path = public_path();
        self.ask(&Request::get("unknown.test", &path));
        self.service.await_log(&[&path])
    }

    /// A connection whose buffers in the system are small, and stay so.
    pub(crate) fn connect_pinned(&self) -> Wire {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None).unwrap();
        pin(&socket);
        socket.connect(&self.address.into()).unwrap();
        Wire::over(socket.into()).unwrap()
    }

    /// Waits until requests for a public path of a host are answered with this status.
    pub(crate) fn until_status(&self, host: &str, wanted: u16) {
        let status = || self.ask(&Request::get(host, &public_path())).status;
        until(&format!("{host} answers {wanted}"), SOON, || (status() == wanted).then_some(()));
    }

    #[track_caller]
    pub(crate) fn ask(&self, request: &Request) -> Answer {
        request.ask(self.address)
    }

    /// Sends bytes on a connection of their own and reads one answer.
    #[track_caller]
    pub(crate) fn ask_raw(&self, bytes: &[u8]) -> Answer {
        let mut wire = self.connect();
        wire.send(bytes);
        wire.answer()
    }
}
