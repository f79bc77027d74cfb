//! A node in this process, which listens a moment after everything else has begun: who would ask it waits for it.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::ServiceReadyNotifier;
use pingora::services::background::BackgroundService;
use tokio::net::TcpStream;

/// How often it is tried to connect.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// Is ready when somebody listens at the address.
pub(super) struct Listens(pub(super) SocketAddr);

#[async_trait]
impl BackgroundService for Listens {
    async fn start_with_ready_notifier(&self, mut shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        while TcpStream::connect(self.0).await.is_err() {
            tokio::select! {
                () = tokio::time::sleep(TRY_EVERY) => {}
                _ = shutdown.changed() => break,
            }
        }
        ready.notify_ready();
    }
}
