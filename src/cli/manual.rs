//! `tiergate completions` and `tiergate man`: made from the commands as they are.

use std::{fs::File, io::Write as _, path::Path};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::{Cli, Failure, say};

/// The section about variables, most of which no flag of the first page tells.
const ENVIRONMENT: &[u8] = include_bytes!("help/environment.roff");

pub(super) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tiergate", &mut script);
    print(&script)
}

/// Prints the first page, or writes all of them into a folder.
pub(super) fn pages(folder: Option<&Path>) -> Result<(), Failure> {
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
