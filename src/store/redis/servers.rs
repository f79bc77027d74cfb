//! All servers of the store: finds the one that has a shard, and asks it.

use std::sync::Arc;

use redis::Value;

use crate::store::redis::answers::Answer;
use crate::store::redis::cluster::Cluster;
use crate::store::redis::link::Link;
use crate::store::redis::names::{self, Shard};
use crate::store::redis::options::Shared;
use crate::store::redis::scripts::Request;
use crate::store::redis::trouble::Trouble;

/// The servers.
pub(super) struct Servers {
    shared: Arc<Shared>,
    pub(super) layout: Layout,
}

/// How shards are spread over them.
pub(super) enum Layout {
    /// One has them all.
    One(Arc<Link>),
    /// Several have some each.
    Cluster(Arc<Cluster>),
}

impl Servers {
    pub(super) const fn new(shared: Arc<Shared>, layout: Layout) -> Self {
        Self { shared, layout }
    }

    /// Asks the server that has the shard.
    pub(super) async fn ask(&self, shard: Shard, request: Request<'_>) -> Result<Value, Trouble> {
        let request = self.shared.timed(request);
        let answer = self.link(shard)?.ask(&request).await;
        match self.redirected(&answer) {
            Some(link) => link.ask(&request).await,
            None => answer,
        }
    }

    /// Asks the server that has the shard to write something that may be written twice, and that its replicas must have.
    pub(super) async fn write(&self, shard: Shard, request: Request<'_>) -> Result<Value, Trouble> {
        let request = self.shared.timed(request);
        let link = self.link(shard)?;
        let answer = link.ask_acknowledged(&link.line()?, &request, |_| true).await;
        match self.redirected(&answer) {
            Some(link) => link.ask_acknowledged(&link.line()?, &request, |_| true).await,
            None => answer,
        }
    }

    /// Asks for a step that may use a nonce up. `request` is given the identity that the step is for.
    ///
    /// When the epoch in the slot is not that of the process that is connected to, nothing was done; the epoch is begun
    /// anew, and the step taken once more.
    pub(super) async fn spend<'a>(
        &self,
        shard: Shard,
        request: impl Fn(&str) -> Request<'a>,
    ) -> Result<Answer, Trouble> {
        let mut link = self.link(shard)?;
        let mut answer = self.spend_at(&link, &request).await;
        if let Some(other) = self.redirected(&answer) {
            link = other;
            answer = self.spend_at(&link, &request).await;
        }
        let answer = answer?;
        if answer != Answer::Strange {
            return Ok(answer);
        }
        link.renew(shard).await?;
        let answer = self.spend_at(&link, &request).await?;
        if answer == Answer::Strange { Err(Trouble::Strange) } else { Ok(answer) }
    }

    /// Writes to every server, to see whether it can be. A node whose slot is on its way is one that answers.
    pub(super) async fn probe(&self) -> Result<(), Trouble> {
        let links = match &self.layout {
            Layout::One(link) => vec![Arc::clone(link)],
            Layout::Cluster(cluster) => cluster.one_shard_each()?,
        };
        for link in links {
            let probe = Request::command("SET").arg(names::probe(link.first_shard())).arg("");
            match (&self.layout, link.ask(&probe.arg("EX").arg(60)).await) {
                (Layout::Cluster(_), Err(trouble)) if trouble.is_elsewhere() => {}
                (Layout::One(_) | Layout::Cluster(_), written) => drop(written?),
            }
        }
        Ok(())
    }

    async fn spend_at<'a>(
        &self,
        link: &Link,
        request: &impl Fn(&str) -> Request<'a>,
    ) -> Result<Answer, Trouble> {
        let line = link.line()?;
        let request = self.shared.timed(request(&line.identity));
        Answer::read(&link.ask_acknowledged(&line, &request, is_written).await?)
    }

    fn link(&self, shard: Shard) -> Result<Arc<Link>, Trouble> {
        match &self.layout {
            Layout::One(link) => Ok(Arc::clone(link)),
            Layout::Cluster(cluster) => cluster.link(shard),
        }
    }

    /// Where a request goes that a node has only redirected and not done.
    fn redirected<T>(&self, answer: &Result<T, Trouble>) -> Option<Arc<Link>> {
        match (&self.layout, answer) {
            (Layout::Cluster(cluster), Err(Trouble::Moved(host))) => cluster.moved_to(host),
            _ => None,
        }
    }
}

/// Whether an answer tells of something that replicas must have.
fn is_written(value: &Value) -> bool {
    matches!(Answer::read(value), Ok(Answer::Admitted { .. } | Answer::Done(_)))
}
