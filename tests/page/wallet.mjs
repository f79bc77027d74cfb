// A wallet of the browser for tests, as EIP-1193 and EIP-6963 have it. It signs with real keys, outside of the page.

import { createRequire } from "node:module";

const require = createRequire(new URL("../../tools/package.json", import.meta.url));
const { privateKeyToAccount } = require("viem/accounts");
const { serializeErc6492Signature } = require("viem");

/** What a wallet does unless a test wants it otherwise. */
const USUAL = {
  name: "Test Wallet",
  icon: "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 9 9'%3E%3Crect width='9' height='9' fill='teal'/%3E%3C/svg%3E",
  /** Private keys; the first one is the active account. */
  keys: [],
  chain: "0x1f44",
  /** The chains that it can switch to. */
  knows: ["0x1f44"],
  /** False: it is only injected as `window.ethereum`. */
  announces: true,
  /** Names and icons of further wallets that announce themselves and do nothing. */
  others: [],
  /** Refuses, as its user may. */
  refuses: false,
  /** Refuses domains of another chain than the active one. */
  isStrict: true,
  /** Doesn't answer when it is to sign or to revoke a permission, until this is false again. */
  hangs: false,
  /** Added to each signature, as contract accounts have longer ones. */
  tail: "",
  /** Wraps each signature, as contract accounts do that are not deployed yet (ERC-6492). */
  wraps: false,
  /** The node behind it, if it has one. */
  node: null,
  /** The agents that its node's registry counts, if it counts any. */
  owned: null,
  /** How many agents the logs of its node tell of that came last and are sold. */
  gone: 0,
};

/** Puts a wallet into every page that is opened from now on. */
export async function install(page, options) {
  const wallet = { ...USUAL, ...options, signed: [], added: [] };
  await page.exposeFunction("askTestWallet", async (method, params) => {
    try {
      return { result: (await answer(wallet, method, params)) ?? null };
    } catch (error) {
      return { error: { code: error.code ?? -32603, message: error.message } };
    }
  });
  await page.evaluateOnNewDocument(inject, wallet);
  wallet.tell = (event, value) => page.evaluate((event, value) => window.testWallet(event, value), event, value);
  return {
    /** The messages that it signed. */
    signed: wallet.signed,
    /** The chains that it was given. */
    added: wallet.added,
    /** Changes the wallet while the page is open, and tells the page what wallets tell. */
    async change(part) {
      Object.assign(wallet, part);
      if (part.hangs === false) wallet.goOn?.();
      if (part.keys) await wallet.tell("accountsChanged", accountsOf(wallet));
      if (part.chain) await wallet.tell("chainChanged", wallet.chain);
    },
  };
}

const accountsOf = ({ keys }) => keys.map((key) => privateKeyToAccount(key).address);

const refusal = (code, message) => Object.assign(new Error(message), { code });

async function answer(wallet, method, params) {
  switch (method) {
    case "eth_requestAccounts":
      if (wallet.refuses) throw refusal(4001, "User rejected the request.");
      return accountsOf(wallet);
    case "eth_chainId":
      return wallet.chain;
    case "eth_signTypedData_v4":
      return sign(wallet, params);
    case "wallet_switchEthereumChain":
      if (wallet.refuses) throw refusal(4001, "User rejected the request.");
      if (!wallet.knows.includes(params[0].chainId)) throw refusal(4902, "Unrecognized chain ID. Try adding the chain using wallet_addEthereumChain first.");
      wallet.chain = params[0].chainId;
      await wallet.tell("chainChanged", wallet.chain);
      return null;
    case "wallet_addEthereumChain":
      wallet.added.push(params[0]);
      wallet.knows = [...wallet.knows, params[0].chainId];
      return null;
    case "eth_call":
    case "eth_getLogs":
      return read(wallet, method, params);
    case "wallet_revokePermissions":
      return patience(wallet);
    default:
      throw refusal(4200, `The method ${method} is not supported.`);
  }
}

const patience = (wallet) => wallet.hangs && new Promise((goOn) => (wallet.goOn = goOn));

async function sign(wallet, [address, json]) {
  const { domain, types, primaryType, message } = JSON.parse(json);
  if (wallet.refuses) throw refusal(4001, "User rejected the request.");
  if (wallet.isStrict && BigInt(domain.chainId) !== BigInt(wallet.chain)) {
    throw refusal(-32603, `Provided chainId "${domain.chainId}" must match the active chainId "${Number(wallet.chain)}"`);
  }
  const key = wallet.keys.find((key) => privateKeyToAccount(key).address.toLowerCase() === address.toLowerCase());
  if (!key) throw refusal(4100, "The requested account has not been authorized by the user.");
  await patience(wallet);
  wallet.signed.push({ primaryType, message });
  const signature = (await privateKeyToAccount(key).signTypedData({ domain, types, primaryType, message })) + wallet.tail;
  return wallet.wraps ? serializeErc6492Signature({ address, data: "0x", signature }) : signature;
}

async function read({ node, owned, gone }, method, params) {
  if (owned) {
    const [{ data } = {}] = params;
    if (data?.startsWith("0x70a08231")) return `0x${owned.length.toString(16)}`;
    if (data?.startsWith("0x2f745c59")) return `0x${owned[Number(`0x${data.slice(-64)}`)].toString(16)}`;
  }
  if (!node) throw refusal(4200, `The method ${method} is not supported.`);
  const answer = await fetch(node, { method: "POST", body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }) });
  const { result, error } = await answer.json();
  if (error) throw refusal(error.code, error.message);
  if (method !== "eth_getLogs") return result;
  return [...result, ...Array.from({ length: gone }, (_, at) => ({ topics: ["", "", "", `0x${(1000 + at).toString(16).padStart(64, "0")}`] }))];
}

/** Runs in the page, before its own scripts. */
function inject({ name, icon, announces, others }) {
  const listeners = new Map();
  const of = (event) => listeners.get(event) ?? listeners.set(event, new Set()).get(event);
  const provider = {
    async request({ method, params = [] }) {
      const { result, error } = await window.askTestWallet(method, params);
      if (error) throw Object.assign(new Error(error.message), { code: error.code });
      return result;
    },
    on: (event, listener) => void of(event).add(listener),
    removeListener: (event, listener) => void of(event).delete(listener),
  };
  window.testWallet = (event, value) => of(event).forEach((listener) => listener(value));
  if (!announces) {
    window.ethereum = provider;
    return;
  }
  const deaf = { request: () => new Promise(() => {}), on() {}, removeListener() {} };
  const wallets = [[name, icon, provider], ...others.map(({ name, icon }) => [name, icon, deaf])];
  const announce = () =>
    wallets.forEach(([name, icon, provider], at) =>
      window.dispatchEvent(
        new CustomEvent("eip6963:announceProvider", {
          detail: Object.freeze({ info: { uuid: `00000000-0000-4000-8000-00000000000${at}`, name, icon, rdns: `example.wallet${at}` }, provider }),
        }),
      ),
    );
  window.addEventListener("eip6963:requestProvider", announce);
  announce();
}
