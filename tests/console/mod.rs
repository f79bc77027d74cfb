//! The owner's page, in a real Chromium with a wallet that really signs, in front of `tiergate-dev`.
mod arriving;
mod elsewhere;
mod late;
mod looks;
mod mcp;
mod owner;
mod redirects;
mod stage;
mod trouble;
