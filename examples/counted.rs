//! The `tiergate` command under a name of its own, which `scripts/instructions` counts.

use std::process::ExitCode;

/// That of `tiergate`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tiergate::cli::main()
}
