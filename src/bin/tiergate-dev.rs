//! The `tiergate-dev` command: everything in one process, over a development chain.

use std::process::ExitCode;

/// That of `tiergate`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tiergate::cli::development()
}
