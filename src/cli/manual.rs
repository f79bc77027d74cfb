//! `tiergate completions` and `tiergate man`: made from the commands as they are, for packagers and for people's own folders.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::{Cli, Failure, say};

/// Completions to print.
#[derive(clap::Args)]
pub(super) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Pages to print or to write.
#[derive(clap::Args)]
pub(super) struct Pages {
    /// The folder for the pages of all commands. Without it the first page is printed.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Completions {
    /// Prints them.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tiergate", &mut script);
        print(&script)
    }
}

impl Pages {
    /// Prints the first one, or writes all.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Some(folder) = &self.folder else {
            let mut page = Vec::new();
            Man::new(Cli::command()).render(&mut page).map_err(Failure::new)?;
            return print(&page);
        };
        write_all(folder)
            .map_err(|cause| Failure::new(format!("cannot write to {}: {cause}", folder.display())))
    }
}

fn write_all(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}

fn print(text: &[u8]) -> Result<(), Failure> {
    say(format_args!("{}", String::from_utf8_lossy(text).trim_end()))
}
