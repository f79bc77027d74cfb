//! Gives memory back now and then.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use crate::pipeline::Pipeline;

/// How often memory that no longer matters is given back.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// The background task.
pub(super) struct Sweeper(pub(super) Arc<Pipeline>);

#[async_trait]
impl BackgroundService for Sweeper {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(SWEEP_EVERY) => self.0.sweep(),
                _ = shutdown.changed() => return,
            }
        }
    }
}
