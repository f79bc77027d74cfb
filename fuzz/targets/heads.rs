//! Shows how heads are read: each file that is named, as a line of its path, kind and parts in hexadecimal, or nothing where it
//! is refused. `fuzz/h11_reads.py` compares them with another reader.

use std::{env::args, fs};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn main() {
    let kind = args().nth(1).expect("request_head or answer_head");
    for path in args().skip(2) {
        let input = fs::read(&path).expect("a file");
        let parts = match kind.as_str() {
            "request_head" => tiergate_fuzz::request_head::parts(&input),
            _ => tiergate_fuzz::answer_head::parts(&input),
        };
        if let Some(parts) = parts {
            println!("{path} {}", parts.iter().map(|part| hex(part)).collect::<Vec<_>>().join(" "));
        }
    }
}
