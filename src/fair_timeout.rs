//! A time limit for what comes over a connection, fair to whoever answers when it is we who are busy.
//!
//! With the runtime's own limit `an_answer_that_came_in_time_counts_however_late_a_busy_process_comes_to_it` fails.

use std::pin::{Pin, pin};
use std::{future::poll_fn, task::Poll, time::Duration};

use tokio::task::yield_now;
use tokio::time::timeout;

/// How often the runtime gets a turn after the time is over: one to see what has come, one for the connection to read it,
/// one in which others were first.
const TURNS_OF_GRACE: usize = 3;

/// The output of a future within `limit`; `None` when it gives none.
///
/// A process that is busy for longer than the limit comes late to its clock and to the answers that lie there already.
/// Were the clock looked at first, its peers would be blamed for that.
pub(crate) async fn fair_timeout<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    if let Ok(answer) = timeout(limit, future.as_mut()).await {
        return Some(answer);
    }
    for _ in 0..TURNS_OF_GRACE {
        yield_now().await;
        if let Poll::Ready(answer) = poll_once(future.as_mut()).await {
            return Some(answer);
        }
    }
    None
}

/// The output of a future without a wait for it.
pub(crate) async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;

    use super::fair_timeout;

    #[tokio::test]
    async fn what_gives_nothing_is_over_with_its_time() {
        assert_eq!(fair_timeout(Duration::from_millis(1), pending::<()>()).await, None);
        assert_eq!(fair_timeout(Duration::ZERO, async { 7 }).await, Some(7));
    }

    /// An answer is read by another task, as that of a connection; this process does nothing else until its time is over.
    #[tokio::test]
    async fn an_answer_that_came_in_time_counts_however_late_a_busy_process_comes_to_it() {
        let limit = Duration::from_millis(50);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut theirs, _) = listener.accept().await.unwrap();
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move { tell.send(ours.read_u8().await.unwrap()).unwrap() });
        let busy = async {
            theirs.write_all(&[7]).await.unwrap();
            std::thread::park_timeout(limit * 4);
        };
        let (answer, ()) = tokio::join!(fair_timeout(limit, told), busy);
        assert_eq!(answer.unwrap().unwrap(), 7);
    }
}
