//! One read: the fit nodes in their order until one gives an answer that makes sense, within one deadline.
//!
//! Whoever asked decodes the answer here, inside of the loop, so that what a sick node made up never stands for the
//! answer of a healthy one.

use std::collections::VecDeque;
use std::time::Duration;

use alloy::primitives::{Address, Bytes, U64};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::chain::fault::ReadError;
use crate::chain::rpc::Pool;
use crate::chain::rpc::blame::{Blame, blame};
use crate::chain::rpc::breaker::Class;
use crate::chain::rpc::call::{At, CallOutcome, call_params, outcome};
use crate::chain::rpc::deadline::Deadline;
use crate::chain::rpc::health::Gap;
use crate::chain::rpc::lead::latest_seen;
use crate::chain::rpc::places::Lane;
use crate::chain::rpc::transport::{Node, NodeAnswer};
use crate::ports::chain::ChainFault;

/// How a read is made: of which state, on whose behalf, until when.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The state that is read.
    pub at: At,
    /// On whose behalf.
    pub lane: Lane,
    /// When it must be over, waiting for a place included.
    pub deadline: Deadline,
}

/// One read, of any method.
struct Read<'a> {
    method: &'static str,
    params: Value,
    terms: &'a Terms,
}

/// What went wrong so far.
#[derive(Default)]
struct Trouble {
    /// The node that is being asked.
    asking: Option<usize>,
    /// The error that says most.
    told: Option<(usize, ReadError)>,
    /// Errors that turn out to be their node's fault when another node answers.
    unclear: Vec<(usize, ReadError)>,
}

impl Pool {
    /// `eth_call`; without `to`, `data` is run as a contract's creation. `understand` makes something of the outcome, or
    /// finds that what was asked for does not exist; where it can't do either, the next node is asked. That something does
    /// not exist is not believed of a node that lacks the latest block: it may be there since.
    ///
    /// # Errors
    ///
    /// When no node gave an answer that could be understood before the deadline: the error that says most.
    pub async fn call<T>(
        &self,
        terms: &Terms,
        to: Option<Address>,
        data: &Bytes,
        understand: impl Fn(CallOutcome) -> Result<Option<T>, ReadError>,
    ) -> Result<Option<T>, ChainFault> {
        let read = Read { method: "eth_call", params: call_params(terms.at, to, data), terms };
        let understand =
            |node: &Node, gap: Option<Gap>, answer| match (understand(outcome(node, answer)?)?, gap) {
                (None, Some(Gap { head, best, .. })) => Err(ReadError::Behind { head, best }),
                (found, _) => Ok(found),
            };
        self.read(&read, understand).await
    }

    /// `eth_getCode`, understood like [`Pool::call`].
    ///
    /// # Errors
    ///
    /// As [`Pool::call`].
    pub async fn code<T>(
        &self,
        terms: &Terms,
        address: Address,
        understand: impl Fn(Bytes) -> Result<T, ReadError>,
    ) -> Result<T, ChainFault> {
        let read = Read { method: "eth_getCode", params: json!([address, terms.at.param()]), terms };
        // A contract may stand in the block that is missing, too.
        let understand = |node: &Node, gap: Option<Gap>, answer| match (understand(node.result(answer)?), gap)
        {
            (Err(ReadError::NoCode(_)), Some(Gap { head, best, .. })) => {
                Err(ReadError::Behind { head, best })
            }
            (understood, _) => understood,
        };
        self.read(&read, understand).await
    }

    /// `eth_blockNumber`: any fit node's word that it is up.
    ///
    /// # Errors
    ///
    /// As [`Pool::call`].
    pub async fn block_number(&self, terms: &Terms) -> Result<u64, ChainFault> {
        let read = Read { method: "eth_blockNumber", params: json!([]), terms };
        self.read(&read, |node, _, answer| node.result::<U64>(answer).map(|number| number.to())).await
    }

    async fn read<T>(
        &self,
        read: &Read<'_>,
        understand: impl Fn(&Node, Option<Gap>, NodeAnswer) -> Result<T, ReadError>,
    ) -> Result<T, ChainFault> {
        let mut trouble = Trouble::default();
        let left = read.terms.deadline.left(self.clock.monotonic_micros());
        let answer = timeout(left, self.try_nodes(read, understand, &mut trouble)).await;
        match answer {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(self.told(read, trouble, None)),
            Err(_) => Err(self.told(read, trouble, Some(left))),
        }
    }

    /// The first answer of a fit node that `understand` takes for one; nothing when none gave one, or none is fit. Nodes that
    /// lack what is read come last, after they were asked once more how far they are.
    async fn try_nodes<T>(
        &self,
        read: &Read<'_>,
        understand: impl Fn(&Node, Option<Gap>, NodeAnswer) -> Result<T, ReadError>,
        trouble: &mut Trouble,
    ) -> Option<T> {
        self.be_acquainted().await;
        let of_latest = read.terms.at == At::Latest;
        let fit = self.health.lock().order(of_latest, self.clock.monotonic_micros());
        if fit.is_empty() {
            trouble.told = Some(self.health.lock().worst());
            return None;
        }
        let _place = self.places.take(read.terms.lane).await?;
        let mut queue: VecDeque<(usize, Option<Gap>)> = fit.into_iter().map(|place| (place, None)).collect();
        while let Some((place, gap)) = queue.pop_front() {
            let Some(node) = self.nodes.get(place) else { continue };
            let is_unfit = || self.health.lock().complaint(place).is_some();
            // It may have been given up while this read waited for another node.
            if is_unfit() {
                continue;
            }
            trouble.asking = Some(place);
            if of_latest && gap.is_none() {
                let gap = self.gap(place, node).await;
                if gap.is_some() {
                    queue.push_back((place, gap));
                }
                // What it said of its latest block may speak against it.
                if gap.is_some() || is_unfit() {
                    continue;
                }
            }
            let answer = self.ask(node, read.method, read.params.clone()).await;
            match answer.and_then(|answer| understand(node, gap, answer)) {
                Ok(answer) => {
                    self.answered(place, std::mem::take(&mut trouble.unclear));
                    return Some(answer);
                }
                Err(error) => self.not_answered(read, place, error, trouble),
            }
        }
        None
    }

    /// What this node lacks of the latest block. Where it may have got on since it told its head, it is asked again; when
    /// it does not say, what is known stands.
    async fn gap(&self, place: usize, node: &Node) -> Option<Gap> {
        let gap = self.health.lock().gap(place, self.clock.monotonic_micros())?;
        if gap.is_fresh {
            return Some(gap);
        }
        let answer = self.ask(node, "eth_getBlockByNumber", json!(["latest", false])).await;
        let seen = answer.and_then(|answer| latest_seen(node, answer, self.clock.unix_millis()));
        let Ok(seen) = seen else { return Some(gap) };
        let now = self.clock.monotonic_micros();
        self.note(|health| health.sampled(place, seen, now));
        self.health.lock().gap(place, now)
    }

    /// A node answered. What others made of the same question was their own fault.
    fn answered(&self, node: usize, unclear: Vec<(usize, ReadError)>) {
        self.health.lock().answered(node, Class::Calls);
        for (other, error) in unclear {
            self.failed(other, Class::Calls, &error);
        }
    }

    fn not_answered(&self, read: &Read<'_>, node: usize, error: ReadError, trouble: &mut Trouble) {
        self.metrics.rpc_errors.with_label_values(&[read.method, error.kind()]).inc();
        let blame = blame(&error, read.terms.at);
        if matches!(error, ReadError::TimedOut(_)) {
            self.health.lock().was_slow(node);
        }
        match blame {
            Blame::Node => self.failed(node, Class::Calls, &error),
            Blame::Unclear => trouble.unclear.push((node, error.clone())),
            Blame::Nobody => {}
        }
        // What a node that is up says of this very question says more than that another one is down.
        let says_less = blame == Blame::Node && !trouble.unclear.is_empty();
        if !says_less {
            trouble.told = Some((node, error));
        }
    }

    /// The fault of a read that came to nothing; `limit` when it was given up after so long.
    fn told(&self, read: &Read<'_>, trouble: Trouble, limit: Option<Duration>) -> ChainFault {
        let Trouble { asking, told, .. } = trouble;
        match (told, asking, limit) {
            // Counted when they were met; why no node is fit, was not.
            (Some((node, error)), Some(_), _) => self.uncounted_fault(node, read.method, error),
            (Some((node, error)), None, _) => self.fault(node, read.method, error),
            (None, Some(node), Some(limit)) => {
                self.fault(node, read.method, ReadError::TimedOut(limit.as_millis()))
            }
            // Nobody waits for a place before the nodes are known.
            (None, None, Some(_)) if self.health.lock().were_all_asked() => {
                self.fault(0, read.method, ReadError::Busy)
            }
            (None, Some(_) | None, _) => {
                let (node, error) = self.health.lock().worst();
                self.fault(node, read.method, error)
            }
        }
    }

    /// The fault of somebody who waited for so long for another's read.
    pub(in crate::chain) fn out_of_time(&self, limit: Duration) -> ChainFault {
        self.fault(0, "eth_call", ReadError::TimedOut(limit.as_millis()))
    }

    /// One try at one node.
    pub(super) async fn ask(
        &self,
        node: &Node,
        method: &'static str,
        params: Value,
    ) -> Result<NodeAnswer, ReadError> {
        node.ask_within(self.request_timeout, method, params, &*self.clock, &self.metrics).await
    }
}
