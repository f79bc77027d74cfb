//! Connections whose commands go out together.
//!
//! Each command wakes the task that drives its connection, and a runtime runs next what was woken last: one after the other
//! the commands of a busy moment would each cost a write, a read and a wait of their own. So the driver lets everybody who
//! is ready have a turn first, and then writes what all of them had to say.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use tokio::net::TcpStream;
use tokio::task::yield_now;

/// Connects and logs in. The connection lives in the runtime of the caller, and ends with the last of its clones.
pub(super) async fn connect(
    (host, port): (&str, u16),
    account: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let stream = TcpStream::connect((host, port)).await?;
    // What is gathered is whole: waiting for more would only cost time.
    stream.set_nodelay(true)?;
    let (connection, driver) = MultiplexedConnection::new_with_config(account, stream, config).await?;
    tokio::spawn(Gathering { driver: Box::pin(driver), gave_way: false });
    Ok(connection)
}

/// A future that gives way once each time it is woken.
struct Gathering<F> {
    driver: Pin<Box<F>>,
    gave_way: bool,
}

impl<F: Future<Output = ()>> Future for Gathering<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.gave_way = !self.gave_way;
        if self.gave_way {
            // Its first poll has us woken when nobody else is ready, or the runtime looks for events.
            return pin!(yield_now()).poll(context);
        }
        self.driver.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::sync::oneshot;

    use super::Gathering;

    /// How many words there were each time that this was polled, until nobody can say more.
    async fn listen(mut words: UnboundedReceiver<()>) -> Vec<usize> {
        let mut heard = Vec::new();
        poll_fn(|context| {
            heard.push(0);
            while let Poll::Ready(word) = words.poll_recv(context) {
                match (word, heard.last_mut()) {
                    (Some(()), Some(count)) => *count += 1,
                    _ => return Poll::Ready(()),
                }
            }
            Poll::Pending
        })
        .await;
        heard
    }

    /// As a connection is used: in a runtime that runs next what was woken last.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_many_say_at_once_goes_out_together() {
        let at_once = async {
            let (sender, words) = unbounded_channel();
            let (tell, told) = oneshot::channel();
            let driver = async move { tell.send(listen(words).await).unwrap() };
            tokio::spawn(Gathering { driver: Box::pin(driver), gave_way: false });
            for _ in 0..32 {
                let sender = sender.clone();
                // Nobody waits for it, so that it wakes nobody but the driver.
                drop(tokio::spawn(async move { sender.send(()).unwrap() }));
            }
            drop(sender);
            told.await.unwrap()
        };
        let heard = tokio::spawn(at_once).await.unwrap();
        assert_eq!(heard.iter().sum::<usize>(), 32);
        assert!(heard.iter().any(|count| *count >= 16) && heard.len() <= 8, "{heard:?}");
    }
}
