//! The pool over real HTTP.

mod heads;
mod lanes;
mod lead;
mod sick;
