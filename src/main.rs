//! The `tiergate` command.

fn main() {}
