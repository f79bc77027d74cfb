//! `tiergate-dev` with a browser in front of its owner's page, and what a person does there.

use std::path::{Path, PathBuf};
use std::{any::Any, net::SocketAddr};

use alloy::primitives::{Address, Bytes, U256, hex};
use alloy::sol_types::SolCall;
use serde_json::{Value, json};

use crate::page::browser::Browser;
use crate::support::client::{Answer, Connection};
use crate::support::process::{Process, free_port, own_ip};
use crate::support::signing::{Account, Draft};
use crate::support::{chain::Chain, secrets, service::Service};

/// A browser, and everything behind it.
pub(crate) struct Stage {
    pub(crate) browser: Browser,
    api: SocketAddr,
    pub(crate) gateway: SocketAddr,
    pub(crate) chain: SocketAddr,
    log: PathBuf,
    /// The rest, which ends with this.
    _behind: Box<dyn Any>,
}

impl Stage {
    /// `None` where there is no browser and none is required. Sample agent N has tier N; ALICE owns 1, BOB 2.
    pub(crate) fn start() -> Option<Self> {
        let browser = Browser::start()?;
        let folder = tempfile::tempdir().unwrap();
        let [api, gateway, chain] = [(); 3].map(|()| free_port(own_ip()));
        let doors = [
            ("--api", api),
            ("--gateway", gateway),
            ("--chain", chain),
            ("--upstream", free_port(own_ip())),
            ("--admin", free_port(own_ip())),
        ];
        let doors = doors.into_iter().flat_map(|(flag, address)| [flag.to_owned(), address.to_string()]);
        let arguments: Vec<String> = doors.collect();
        let program = Path::new(env!("CARGO_BIN_EXE_tiergate-dev"));
        // It makes a folder of its own, which goes with ours.
        let there = format!("export TMPDIR='{}'", folder.path().display());
        let process = Process::start(program, &arguments, &folder.path().join("log"), &there);
        process.await_log(&["Ctrl-C"]);
        let log = folder.path().join("log");
        Some(Self { browser, api, gateway, chain, log, _behind: Box::new((process, folder)) })
    }

    /// A service without a gateway.
    pub(crate) fn over(browser: Browser, service: Service, chain: Chain) -> Self {
        let (api, node, log) = (service.api, chain.node, service.folder.path().join("log"));
        Self { browser, api, gateway: api, chain: node, log, _behind: Box::new((service, chain)) }
    }

    /// The same, with a wallet in the browser.
    pub(crate) fn with_wallet(wallet: Value) -> Option<Self> {
        let mut stage = Self::start()?;
        stage.browser.command("wallet", wallet);
        Some(stage)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.api)
    }

    /// Opens the page for an agent.
    pub(crate) fn open(&mut self, agent: &str) {
        let url = format!("{}/console?agent={agent}", self.url());
        self.browser.open(&url);
        self.text("has-key", &format!("Agent {agent} has"));
    }

    /// Connects the first wallet of the list.
    pub(crate) fn connect(&mut self) {
        self.browser.click("#wallets button");
        self.text("wallet-account", "0x");
    }

    /// Presses a button that opens the dialog, and waits until the request is there.
    pub(crate) fn ask(&mut self, button: &str) {
        self.browser.click(button);
        self.browser.until("document.getElementById('sign').open");
        self.text("sign-facts", "Good until");
    }

    /// Signs with the wallet and waits until the request was granted.
    pub(crate) fn sign(&mut self) {
        self.browser.until("!document.getElementById('sign-wallet').disabled");
        self.browser.click("#sign-wallet");
        self.is_done();
    }

    /// Waits until the dialog is closed.
    pub(crate) fn is_done(&mut self) {
        self.browser.until("!document.getElementById('sign').open");
    }

    /// Signs with the wallet and waits for this problem.
    pub(crate) fn is_refused(&mut self, problem: &str) {
        self.browser.until("!document.getElementById('sign-wallet').disabled");
        self.browser.click("#sign-wallet");
        self.text("sign-problem", problem);
    }

    pub(crate) fn cancel(&mut self) {
        self.browser.click("#sign-cancel");
        self.is_done();
    }

    /// The key on the screen.
    pub(crate) fn key(&mut self) -> String {
        let key = self.browser.until("document.getElementById('key').value").as_str().unwrap().to_owned();
        assert!(key.starts_with("svc_live_v1_"));
        secrets::keep(&key);
        key
    }

    /// Sends a request with a key from the page, and waits for the status.
    pub(crate) fn try_key(&mut self, key: &str, status: &str) {
        self.browser.write("#try-key", key);
        self.browser.until("!document.getElementById('try-send').disabled");
        self.browser.click("#try-send");
        self.text("try-status", &format!("The answer is {status}"));
    }

    #[track_caller]
    pub(crate) fn text(&mut self, id: &str, text: &str) {
        self.browser.text(id, text);
    }

    /// Waits until an element is shown.
    #[track_caller]
    pub(crate) fn shows(&mut self, id: &str, is_shown: bool) {
        let is = if is_shown { "!" } else { "" };
        self.browser.until(&format!("{is}document.getElementById('{id}').closest('[hidden]')"));
    }

    /// Lets time pass for the page.
    pub(crate) fn pass(&mut self, seconds: i32) {
        let later =
            format!("(() => {{ const now = Date.now; Date.now = () => now() + {seconds}000; }})(), true");
        self.browser.until(&later);
    }

    /// Takes that time back.
    pub(crate) fn pass_back(&mut self, seconds: i32) {
        self.pass(-seconds);
    }

    /// Fails when anything but the page's own listener, the gateway and the development chain was asked, or when the
    /// browser complained of anything else than refused requests.
    #[track_caller]
    pub(crate) fn has_kept_to_itself(&mut self) {
        let origins = [self.api, self.gateway, self.chain].map(|address| format!("http://{address}"));
        let complaints = self.browser.has_asked_only(&origins.each_ref().map(String::as_str));
        let refused = "error: Failed to load resource: the server responded with a status of 4";
        assert_eq!(complaints.iter().find(|complaint| !complaint.starts_with(refused)), None);
    }

    /// A request to the API, beside the page.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map(|body| body.to_string().into_bytes());
        Connection::open(self.api).unwrap().send(method, path, &[], body.as_deref()).unwrap()
    }

    /// The registry of agents.
    pub(crate) fn registry(&self) -> Address {
        let signing = self.call("GET", "/.well-known/tiergate", None).success(200);
        signing["domain"]["verifyingContract"].as_str().unwrap().parse().unwrap()
    }

    /// Another contract of the development chain.
    pub(crate) fn contract(&self, name: &str) -> Address {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let config = log.lines().find_map(|line| line.trim().strip_prefix("config")).unwrap().trim();
        let config: toml::Table = std::fs::read_to_string(config).unwrap().parse().unwrap();
        config["chain"]["contracts"][name].as_str().unwrap().parse().unwrap()
    }

    /// A signed request that is not the page's.
    pub(crate) fn draft(&self, agent: u64, signer: Account) -> Draft {
        Draft::new(U256::from(agent), signer, self.registry())
    }

    /// Sends a transaction.
    pub(crate) fn transact(&self, from: Account, to: Address, call: &impl SolCall) {
        let data = Bytes::from(call.abi_encode());
        let transaction = json!({ "from": from.address, "to": to, "data": data });
        let request =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_sendTransaction", "params": [transaction] });
        let answer = Connection::open(self.chain).unwrap().post("/", &request).unwrap();
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(answer["error"].is_null(), "{answer}");
    }
}

/// A wallet with these accounts.
pub(crate) fn wallet(accounts: &[Account]) -> Value {
    json!({ "keys": accounts.iter().map(|account| account.key).collect::<Vec<_>>() })
}

/// The request in the dialog, as the page gives it to other signers.
pub(crate) fn typed_data(stage: &mut Stage) -> Value {
    let text = stage.browser.until("document.getElementById('typed').textContent");
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

/// Signs a request of the page as its owner would elsewhere.
pub(crate) fn signed_elsewhere(stage: &Stage, typed: &Value, signer: Account) -> String {
    let message = &typed["message"];
    let number = |name: &str| message[name].as_str().unwrap().parse::<U256>().unwrap();
    let draft = Draft::new(number("agentId"), signer, stage.registry());
    let draft = draft.nonce(number("nonce")).timestamp(message["timestamp"].as_u64().unwrap());
    let Some(service) = message["service"].as_str() else {
        return hex::encode_prefixed(draft.signature());
    };
    let body = draft.body_for(typed["primaryType"].as_str().unwrap(), service);
    body["signature"].as_str().unwrap().to_owned()
}
