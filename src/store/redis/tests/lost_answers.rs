//! Redis runs a script, and its answer is lost on the way: the request is a fault, was sent once, and its effect is there
//! once. A proxy between the store and a real server passes the request on and loses the answer. It can hold the request up, too.

use std::sync::{Arc, Mutex};
use std::{net::Ipv4Addr, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::ports::{Admission, KeyChange, KeyChanged, NonceRefused, Scope, Store};
use crate::store::contract::{agent, claim, digest, key, until};
use crate::store::redis::tests::server::{RedisServer, own_ip};
use crate::store::redis::tests::{SIGNED_SECS, by_key, by_nonce, clock, is_admitted, opened, options, ready};
use crate::store::{redis::names::Name, redis::options::Options};

/// A connection, once an answer is lost or a request was held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Breaks,
    IsSilent,
    GoesOn,
}

/// Answers to requests with these words are lost, or the requests held up.
#[derive(Default)]
pub(super) struct Loss {
    words: Mutex<Option<String>>,
    /// How often such a request was passed on.
    passed_on: Mutex<usize>,
    is_held: Notify,
    goes_on: Notify,
    /// The answer to a request that was held up.
    answer: Mutex<Option<String>>,
}

impl Loss {
    /// Loses the answers to requests with these words, or holds them up.
    pub(super) fn of(&self, words: String) {
        *self.words.lock().unwrap() = Some(words);
    }

    /// Waits until a request is held up.
    pub(super) async fn held(&self) {
        self.is_held.notified().await;
        *self.words.lock().unwrap() = None;
    }

    /// Lets it go on, and waits for its answer.
    pub(super) async fn answer(&self) -> String {
        self.goes_on.notify_one();
        until("an answer", async || self.answer.lock().unwrap().take()).await
    }

    fn hits(&self, request: &[u8]) -> bool {
        let words = self.words.lock().unwrap();
        let Some(words) = words.as_deref() else { return false };
        let hits = request.windows(words.len()).filter(|part| *part == words.as_bytes()).count();
        *self.passed_on.lock().unwrap() += hits;
        hits > 0
    }
}

/// Starts a proxy to a server.
pub(super) async fn proxy(server: &RedisServer, then: Then) -> (Ipv4Addr, Arc<Loss>) {
    let (ip, loss) = (own_ip(), Arc::new(Loss::default()));
    let listener = TcpListener::bind((ip, 6_379)).await.unwrap();
    let (host, shared) = (server.host.host.clone(), Arc::clone(&loss));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect((host.as_str(), 6_379)).await.unwrap();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let lost = Arc::new(Mutex::new(false));
            tokio::spawn(pass_requests(
                (from_client, to_server),
                Arc::clone(&shared),
                Arc::clone(&lost),
                then,
            ));
            tokio::spawn(pass_answers((from_server, to_client), Arc::clone(&shared), lost, then));
        }
    });
    (ip, loss)
}

async fn pass_requests(
    (mut client, mut server): (OwnedReadHalf, OwnedWriteHalf),
    loss: Arc<Loss>,
    lost: Arc<Mutex<bool>>,
    then: Then,
) {
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = client.read(&mut bytes).await {
        if loss.hits(&bytes[..length]) {
            if then == Then::GoesOn {
                loss.is_held.notify_one();
                loss.goes_on.notified().await;
            }
            *lost.lock().unwrap() = true;
        }
        if server.write_all(&bytes[..length]).await.is_err() {
            break;
        }
    }
}

async fn pass_answers(
    (mut server, mut client): (OwnedReadHalf, OwnedWriteHalf),
    loss: Arc<Loss>,
    lost: Arc<Mutex<bool>>,
    then: Then,
) {
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = server.read(&mut bytes).await {
        match (*lost.lock().unwrap(), then) {
            (true, Then::Breaks) => break,
            (true, Then::IsSilent) => continue,
            (true, Then::GoesOn) => {
                let answer = String::from_utf8_lossy(&bytes[..length]).into_owned();
                loss.answer.lock().unwrap().get_or_insert(answer);
            }
            (false, _) => {}
        }
        if client.write_all(&bytes[..length]).await.is_err() {
            break;
        }
    }
    let _ = client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_answer_is_lost_is_a_fault_is_not_sent_again_and_has_its_effect_once() {
    for then in [Then::Breaks, Then::IsSilent] {
        let Some(server) = RedisServer::start(&[]).await else { return };
        let clock = clock();
        let patient = opened(options(&server.url()), &clock).await;
        let issue = KeyChange::Issue(key(1));
        assert_eq!(patient.changed(agent(1), claim(1, SIGNED_SECS), issue).await.unwrap(), KeyChanged::Done);
        // The server knows the scripts: it runs each that is lost.
        assert!(
            is_admitted(by_key(&patient, 1).await) && is_admitted(by_nonce(&patient, 50, SIGNED_SECS).await)
        );
        let (ip, loss) = proxy(&server, then).await;
        let impatient = Options { timeout: Duration::from_secs(2), ..options(&format!("redis://{ip}")) };
        let store = opened(impatient, &clock).await;
        // Whoever sent a lost request again would have done so by the time the store is ready once more.
        let sent = async || {
            ready(&store).await;
            *loss.words.lock().unwrap() = None;
            std::mem::take(&mut *loss.passed_on.lock().unwrap())
        };
        let window = Name::Window(agent(1), &Scope::Api).to_string();

        loss.of(window.clone());
        assert_eq!(by_key(&store, 1).await, None, "{then:?}");
        assert_eq!(sent().await, 1, "{then:?}");
        assert_eq!(by_key(&patient, 1).await, Some(Admission::Admitted { remaining: 2_696 }), "{then:?}");

        loss.of(window);
        assert_eq!(by_nonce(&store, 7, SIGNED_SECS).await, None, "{then:?}");
        assert_eq!(sent().await, 1, "{then:?}");
        assert_eq!(
            by_nonce(&patient, 7, SIGNED_SECS).await,
            Some(Admission::NonceRefused(NonceRefused::Used)),
            "{then:?}"
        );
        assert_eq!(by_key(&patient, 1).await, Some(Admission::Admitted { remaining: 2_694 }), "{then:?}");

        loss.of(Name::Entry(&digest(2)).to_string());
        let rotate = || KeyChange::Rotate(key(2));
        assert!(store.changed(agent(1), claim(2, SIGNED_SECS), rotate()).await.is_err(), "{then:?}");
        assert_eq!(sent().await, 1, "{then:?}");
        // It was made. Who is told of a fault makes another one, with another nonce.
        assert_eq!(by_key(&patient, 1).await, Some(Admission::KeyRevoked), "{then:?}");
        let again = patient.changed(agent(1), claim(2, SIGNED_SECS), rotate()).await.unwrap();
        assert_eq!(again, KeyChanged::NonceRefused(NonceRefused::Used), "{then:?}");
        let another = KeyChange::Rotate(key(3));
        let changed = patient.changed(agent(1), claim(3, SIGNED_SECS), another).await.unwrap();
        assert_eq!(changed, KeyChanged::Done, "{then:?}");
        until("its key passes", async || is_admitted(by_key(&store, 3).await).then_some(())).await;
        assert!(!is_admitted(by_key(&store, 2).await), "{then:?}");
    }
}
