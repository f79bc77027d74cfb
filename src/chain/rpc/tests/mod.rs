//! The pool over real HTTP.

mod lanes;
mod lead;
mod sick;
