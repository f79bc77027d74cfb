// Numbers and errors in words.

import { TiergateError, type ErrorType } from "tiergate";
import { sameAddress, state } from "./state.js";
import { WalletError, type Trouble } from "./wallet.js";

/** Clocks that differ by more are named as the cause of refused timestamps. */
const CLOCK_OFF_MS = 30_000;

const whole = new Intl.NumberFormat("en");

/** An amount of the stake's smallest unit, in tokens. */
export function tokens(units: string | bigint): string {
  const amount = BigInt(units);
  const decimals = state.signing?.tokenDecimals ?? 18;
  const one = 10n ** BigInt(decimals);
  const fraction = (amount % one).toString().padStart(decimals, "0").replace(/0+$/, "");
  return `${whole.format(amount / one)}${fraction && `.${fraction}`} ${amount === one ? "token" : "tokens"}`;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${whole.format(number)} ${number === 1 ? one : many}`;
}

/** Seconds as minutes and seconds, or hours and minutes. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function time(unixSeconds: number): string {
  return new Date(unixSeconds * 1_000).toLocaleTimeString("en-GB");
}

/** The request that failed. */
export interface Circumstances {
  agent: string;
  /** The connected account, if it signed. */
  account?: string | null;
  /** The owner that was known before. */
  owner?: string | null;
  /** The fate that the agent's key might have had. */
  change?: "made" | "revoked" | null;
  /** The signature that was refused. */
  signature?: string;
}

type Words = { [T in ErrorType]: (error: TiergateError<T>, on: Circumstances) => string };

/** The meaning of each error here, and advice. */
const WORDS: Words = {
  VALIDATION_ERROR: ({ details, said }, { account }) => {
    if (details.field === "declaredEndpoint") return "The URL of your application must be a whole one, such as https://app.example. Cancel, correct it and try again.";
    if (details.field === "signature" && account) return `The service does not take a signature of the form that the wallet gave. ${state.signing?.contractSignatures ? "Sign with another account or elsewhere." : NO_CONTRACTS}`;
    if (details.field === "signature") return "The service does not take a signature of this form. Paste the whole signature: 0x and its hex digits.";
    if (details.field === "apiKey") return "This is no API key. Paste the whole key, from its first letter to its last.";
    return `The service did not understand the request: ${said}. Load the page again and try once more.`;
  },
  REPLAY_DETECTED: ({ details, timestamp = Date.now(), retryAfter }) => {
    const off = Math.round((Date.now() - timestamp) / 1_000);
    if (details.field === "timestamp" && Math.abs(off) * 1_000 > CLOCK_OFF_MS) {
      const clock = `The clock of this computer is ${duration(Math.abs(off))} ${off > 0 ? "ahead" : "behind"}`;
      return `${clock}, so the service refused what you signed. The request was made anew by the service's clock: sign it. If that is refused too, set the clock right.`;
    }
    if (retryAfter) return "The service was restarted and can't tell used signatures from new ones yet. Sign again when the time is over.";
    return "This signature was used before or is too old. Sign the new request.";
  },
  INVALID_API_KEY: () => "This key is not valid: it was replaced or revoked, or it was never one of this service. Use the agent's current key; if it is lost, replace it above.",
  SIGNATURE_INVALID: ({ details }, { agent, account, owner, signature }) => {
    const now = details.owner;
    if (owner && !sameAddress(owner, now)) return `Agent ${agent} was transferred while this page was open. It belongs to ${now} now, and only that account can sign for it.`;
    if (signature?.toLowerCase().endsWith(NOT_DEPLOYED) && (!account || sameAddress(account, now))) return `The signature is of a contract account that is not deployed yet on the chain of the agents, and only a deployed one can be asked if it signed. Send any transaction with the account there, then sign again.`;
    if (account && sameAddress(account, now)) return `The connected account owns agent ${agent}, but the signature is of something else. Sign the request that stands here, without changes. ${state.signing?.contractSignatures ? "A contract account, such as a Safe, must be deployed on the chain of the agents." : NO_CONTRACTS}`;
    if (account) return `The connected account ${account} is not the owner of agent ${agent}. Choose the account ${now} in your wallet and sign again.`;
    return `This signature is not by the owner of agent ${agent}. Sign this very request with the account ${now}.`;
  },
  TIER_BLOCKED: ({ details }) => `This agent has tier ${details.currentTier}, and tier ${details.requiredTier} is needed here. ${details.requiredStake ? `Stake ${tokens(details.requiredStake)} for the agent, then try again.` : "No stake gives it: ask the operator of the API what does."}`,
  FORBIDDEN: () => "Nobody may call this path. Ask the operator of the API for the right one.",
  ENDPOINT_MISMATCH: () => "The key is declared for another address than this page's. Your application can use it; to try it here, replace the key without an address.",
  AGENT_NOT_FOUND: (_, { agent }) => `There is no agent ${agent}. Check the number.`,
  NOT_FOUND: () => "The service does not have this. It may be of another version than this page, or the address is wrong: ask its operator.",
  METHOD_NOT_ALLOWED: () => "The service does not take this kind of request. Ask its operator if a proxy in front changes requests.",
  REQUEST_TIMEOUT: () => "The request took too long to arrive. Check your connection and try again.",
  KEY_ALREADY_EXISTS: (_, { agent }) => `Agent ${agent} has a key already. Use that one; if it is lost, cancel and replace it.`,
  PAYLOAD_TOO_LARGE: () => "The request is too large. Send less.",
  RATE_LIMITED: ({ details }) => `Too many requests: the limit of ${whole.format(details.limit)} is reached. Try again when the time is over.`,
  REQUEST_HEADER_FIELDS_TOO_LARGE: () => "The browser sends more headers than the service takes. Remove cookies of this site and try again.",
  INTERNAL_ERROR: (_, on) => `The service failed. ${advice(on, "Try again in a moment")}; if it goes on, tell its operator.`,
  UPSTREAM_ERROR: () => "The gateway could not reach the API behind it. Try again in a moment; if it goes on, tell its operator.",
  RPC_ERROR: () => "The service can't read the chain at the moment, and changed nothing. Try again in a moment.",
  OVERLOADED: () => "The service is busy, and changed nothing. Try again when the time is over.",
  UPSTREAM_TIMEOUT: () => "The API behind the gateway did not answer in time. Try again.",
  LOOP_DETECTED: () => "The gateway sends requests to itself. Tell its operator.",
  INSUFFICIENT_DEPOSIT: ({ details }) => `The agent's deposit is too small: ${tokens(details.requiredAmount)} are needed. Add to it and try again.`,
  RELAY_FAILED: () => "The transaction failed on the chain. Try again later.",
  UNEXPECTED_ANSWER: ({ status }, on) => `Something in front of the service answered (status ${status}). ${advice(on, "Load the page again")}; if it goes on, tell the operator.`,
  NO_ANSWER: (_, on) => `No answer came. ${advice(on, "Check your connection and try again")}.`,
};

/** The end of signatures of contract accounts that are not deployed (ERC-6492). */
const NOT_DEPLOYED = "6492".repeat(16);

/** Said to contract accounts where the service asks none. */
export const NO_CONTRACTS = "If the account is a contract, such as a Safe or a smart wallet: this service takes signatures of plain accounts only. Its operator can allow contracts (signature.contracts).";

/** Advice after an error that leaves open if the request was carried out. */
const advice = ({ change }: Circumstances, otherwise: string) => (change ? CHANGED[change] : otherwise);

const CHANGED = {
  made: "The key may have been made all the same, and an older one no longer works then. Find the agent again: if it has a key and you hold none that works, replace it",
  revoked: "The key may have been revoked all the same. Find the agent again: if it still has a key, revoke it once more",
};

/** Says what an error means and what to do. */
export function explain(error: unknown, on: Circumstances): string {
  if (error instanceof WalletError) return WALLET[error.trouble](error.message);
  if (!(error instanceof TiergateError)) return `This page failed: ${String(error)}. Load it again.`;
  const words = WORDS[error.errorType as keyof Words] as ((error: TiergateError, on: Circumstances) => string) | undefined;
  try {
    return words ? words(error, on) : `The service refused: ${error.said}`;
  } catch {
    // Details that are not as documented.
    return `The service refused: ${error.said}`;
  }
}

const WALLET: Record<Trouble, (message: string) => string> = {
  refused: () => "You refused in the wallet. No request was sent.",
  pending: () => "The wallet has a question open already. Open the wallet and answer it.",
  chain: () => "The wallet does not sign for another chain than its active one. Switch its chain, or sign elsewhere.",
  "unknown-chain": () => "The wallet does not know this chain. Add it in the wallet, or sign elsewhere.",
  unauthorized: () => "The wallet no longer shares this account with the page. Disconnect and connect again.",
  unsupported: () => "The wallet can't sign this kind of request. Sign elsewhere: see below.",
  other: (message) => `The wallet failed${message && `: ${message}`}. Try again, or sign elsewhere.`,
};
