//! The command line: one file per command. Errors are one plain sentence on standard error and a non-zero exit code.
mod check;
mod client;
mod explain;
mod health;
mod init;
mod keys;
mod keystore;
mod output;
mod run;
mod secret;
mod sign;
mod signing;
mod typed_data;
mod verify;

#[cfg(feature = "dev-chain")]
mod dev;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{fmt, fs::File, process::ExitCode, sync::mpsc, thread, time::Duration};

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::panic_guard::is_catching;

/// A gateway that lets verified on-chain agents through.
#[derive(Parser)]
#[command(name = "tiergate", version = VERSION, about, max_term_width = 100, after_help = include_str!("help/exit-codes.txt"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Run),
    Init(init::Init),
    Check(check::Check),
    #[command(subcommand)]
    Config(check::Config),
    Health(health::Health),
    Explain(explain::Explain),
    Sign(sign::Sign),
    #[command(subcommand)]
    Keys(keys::Keys),
    Verify(verify::Verify),
    /// Print completions for a shell: `source <(tiergate completions bash)`.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands into a folder.
    Man {
        /// The folder.
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Print the version, the commit that it was built from, and the features that are compiled in.
    Version,
}

/// Which configuration file to read.
#[derive(clap::Args)]
struct ConfigFile {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "tiergate.toml", env = "TIERGATE_CONFIG")]
    config: PathBuf,
}

/// Made by the build script.
const VERSION: &str = env!("BUILD_VERSION");

/// The section of the manual about variables, most of which no flag of the first page tells.
const ENVIRONMENT: &[u8] = include_bytes!("help/environment.roff");

/// How long a line on standard error is waited for.
const COMPLAINT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long that of a panic is: others may wait for its thread.
const PANIC_TIME_MAX: Duration = Duration::from_secs(1);

/// The exit code for whatever has no other.
const FAILED: u8 = 1;

/// The exit code for a fault of ours, as after a panic.
const INTERNAL_ERROR: u8 = 101;

/// The exit code for a configuration or arguments that can't be used.
const BAD_CONFIGURATION: u8 = 2;

/// The exit code after a change of a key whose outcome, or whose key, is lost.
const KEY_UNSURE: u8 = 3;

/// Why a command failed: a sentence for people, and the exit code.
#[derive(Debug)]
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code: FAILED }
    }

    /// Arguments or a configuration that can't be used.
    fn unusable(message: impl fmt::Display) -> Self {
        Self::new(message).with_code(BAD_CONFIGURATION)
    }

    /// A key that was changed, or may have been, and that nobody has.
    fn with_key_unsure(mut self) -> Self {
        self.message.push_str(
            "\nthe key may have been changed: `tiergate keys status` says if there is one, `tiergate verify` if yours is \
             good; if there is one and you have none that is good, rotate or revoke it",
        );
        self.with_code(KEY_UNSURE)
    }

    fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// An error that says enough by itself, or a sentence.
impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// `tiergate`: runs the command that the arguments name.
pub fn main() -> ExitCode {
    exit_code(|| match Cli::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Init(init) => init.run(),
        Command::Check(check) => check.run(),
        Command::Config(config) => config.run(),
        Command::Health(health) => health.run(),
        Command::Explain(explain) => explain.run(),
        Command::Sign(sign) => sign.run(),
        Command::Keys(keys) => keys.run(),
        Command::Verify(verify) => verify.run(),
        Command::Completions { shell } => completions(shell),
        Command::Man { folder } => manual(folder.as_deref()),
        Command::Version => say(format_args!("tiergate {VERSION}")),
    })
}

/// `tiergate-dev`, a program of its own: the one that runs in production has no chain whose keys everybody knows.
#[cfg(feature = "dev-chain")]
pub fn development() -> ExitCode {
    exit_code(|| dev::Dev::parse().run())
}

/// Runs a program to its end.
fn exit_code(program: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    pingora::tls::install_default_crypto_provider();
    std::panic::set_hook(Box::new(report_panic));
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(format_args!("{}", failure.message));
            ExitCode::from(failure.code)
        }
    }
}

/// A panic is a fault of ours; where it happened is what we need to know, in one line.
fn report_panic(panic: &std::panic::PanicHookInfo<'_>) {
    if is_catching() {
        return;
    }
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let what = panic.payload_as_str().unwrap_or("no words");
    complain_for(PANIC_TIME_MAX, format_args!("internal error at {place}: {what}"));
}

fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tiergate", &mut script);
    print(&script)
}

/// Prints the first page of the manual, or writes all of them into a folder.
fn manual(folder: Option<&Path>) -> Result<(), Failure> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        page.extend(ENVIRONMENT);
        return print(&page);
    };
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .and_then(|()| File::options().append(true).open(folder.join("tiergate.1"))?.write_all(ENVIRONMENT));
    written.map_err(|cause| Failure::new(format!("cannot write to {}: {cause}", folder.display())))
}

fn print(text: &[u8]) -> Result<(), Failure> {
    say(format_args!("{}", String::from_utf8_lossy(text).trim_end()))
}

/// A line on standard output. A reader that has seen enough is no failure; a disk that is full is.
fn say(line: fmt::Arguments<'_>) -> Result<(), Failure> {
    match write(line) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn write(line: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
}

fn complain(line: fmt::Arguments<'_>) {
    complain_for(COMPLAINT_TIME_MAX, line);
}

/// A line on standard error, for which nothing can be done when it can't be written. A reader that has stopped is waited for no longer
/// than this: the writer of the log may hold standard error.
fn complain_for(longest: Duration, line: fmt::Arguments<'_>) {
    let line = format!("tiergate: {line}\n");
    let (ends, has_ended) = mpsc::channel::<()>();
    let write = move || {
        let _ = io::stderr().write_all(line.as_bytes());
        drop(ends);
    };
    if thread::Builder::new().name("complaint".to_owned()).spawn(write).is_ok() {
        let _ = has_ended.recv_timeout(longest);
    }
}
