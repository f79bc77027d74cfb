// The dialog in which the owner sees what is signed, and signs it: with the connected wallet, or elsewhere.

import { TiergateError, type Answer, type KeyOptions, type Operations, type TypedData } from "tiergate";
import { byId, complain, copies, countDown, describe, make, on, say, show, write } from "./dom.js";
import { commandsFor } from "./elsewhere.js";
import { change, isStranger, learn, service, state, whenChanged, type Asked } from "./state.js";
import { WalletError } from "./wallet.js";
import { NO_CONTRACTS, duration, explain, time } from "./words.js";

/** A request that is nearly too old is made anew before a wallet is asked. */
const SECONDS_TO_CONFIRM = 60;

/** 65 bytes in hex. Contracts may take up to 4096 (`signature.contracts`). */
const ACCOUNT_SIGNATURE = /^0x[0-9a-f]{130}$/i;
const CONTRACT_SIGNATURE = /^0x([0-9a-f]{2}){65,4096}$/i;

interface Texts {
  title: string;
  what: string;
  purpose: string;
  warning?: string;
  button: string;
}

const TEXTS: Record<Asked, (agent: string) => Texts> = {
  profile: (agent) => ({
    title: `Read the profile of agent ${agent}`,
    what: "After you sign, this page shows the agent's tier, stake and reputation.",
    purpose: "Read the profile. Changes nothing.",
    button: "Sign",
  }),
  generate: (agent) => ({
    title: `Make a key for agent ${agent}`,
    what: "After you sign, the service makes the key, and this page shows it once.",
    purpose: "Make the agent's API key",
    button: "Sign",
  }),
  rotate: (agent) => ({
    title: `Replace the key of agent ${agent}?`,
    what: "After you sign, the service makes a new key, and this page shows it once.",
    purpose: "Replace the agent's API key",
    warning: "The old key stops working at once. Programs that use it are refused until they have the new one.",
    button: "Replace: sign",
  }),
  revoke: (agent) => ({
    title: `Revoke the key of agent ${agent}?`,
    what: "After you sign, the agent has no key. You can make a new one at any time.",
    purpose: "Revoke the agent's API key",
    warning: "The key stops working at once and for good. Programs that use it are refused.",
    button: "Revoke: sign",
  }),
};

/** The request in the dialog. */
interface Open {
  operation: Asked;
  agent: string;
  options: KeyOptions;
  typedData: TypedData | null;
  /** True while a wallet or the service is asked. */
  isBusy: boolean;
  /** True while the service is asked. A dialog that is closed then ends with the answer. */
  isSending: boolean;
  finish: (answer: Answer<Operations[Asked]> | null) => void;
}

let open: Open | null = null;
/** Until when operations of an agent are limited, in milliseconds. */
const limitedUntil = new Map<string, number>();
let stopClock = () => {};
let stopLimit = () => {};

/** Facts that change while the dialog is open. The others are left alone, so that screen readers keep their place. */
const [accountFact, untilFact] = [make("span", ""), make("span", "")];

const dialog = () => byId<HTMLDialogElement>("sign");

export function startSign(): void {
  on("sign-wallet", signWithWallet);
  on("sign-switch", switchChain);
  on("sign-cancel", () => dialog().close());
  on("signature-use", usePasted);
  copies(byId<HTMLButtonElement>("typed-copy"), () => byId("typed").textContent ?? "");
  // Also after Escape, unless the next one is open by now. A key that is made meanwhile is shown: nobody could see it otherwise.
  dialog().addEventListener("close", () => dialog().open || open?.isSending || end(null));
  whenChanged(draw);
}

/** Shows a request, has it signed and sends it. Returns `null` if the owner cancels. */
export async function sign<O extends Asked>(operation: O, agent: string, options: KeyOptions = {}): Promise<Answer<Operations[O]> | null> {
  if (open?.isSending || dialog().open) return null;
  // The event of a dialog that was just closed comes later.
  end(null);
  state.turn++;
  const texts = TEXTS[operation](agent);
  write("sign-title", texts.title);
  write("sign-what", texts.what);
  show(texts.warning !== undefined, "sign-warning");
  write("sign-warning", texts.warning ?? "");
  write("sign-note", "");
  problem("");
  write("sign-wait", "");
  describe("sign-facts", []);
  const answer = new Promise<Answer<Operations[Asked]> | null>((finish) => (open = { operation, agent, options, typedData: null, isBusy: false, isSending: false, finish }));
  byId<HTMLDetailsElement>("elsewhere").open = !state.connection?.account;
  dialog().showModal();
  dialog().scrollTop = 0;
  draw();
  watchLimit();
  await renew();
  void state.connection?.readChain().then(draw);
  return (await answer) as Answer<Operations[O]> | null;
}

function end(answer: Answer<Operations[Asked]> | null): void {
  const ended = open;
  open = null;
  stopClock();
  stopLimit();
  byId<HTMLTextAreaElement>("signature").value = "";
  complain(byId("signature"), "signature-problem", "");
  if (dialog().open) dialog().close();
  ended?.finish(answer);
}

/** Makes the request anew, with the time of now and another nonce. */
async function renew(): Promise<void> {
  const current = open;
  if (!current) return;
  try {
    const typedData = await service.typedData(current.agent, current.operation);
    const signing = await service.signing();
    if (open !== current) return;
    current.typedData = typedData;
    draw();
    if (state.signing !== signing) change({ signing });
    showRequest(current, typedData);
  } catch (error) {
    problem(explain(error, current));
  }
}

function noteOf(operation: Asked, service: string | undefined): string {
  if (operation === "profile") return "The service takes this signature for reading only.";
  const end = "This page sends it to this service only.";
  if (service === undefined) {
    return `The wallet shows agent, nonce and time. It can't show purpose and application, because the signature names neither: until it is used or too old, it could make, replace or revoke the key, once. ${end}`;
  }
  return `The wallet shows purpose, service, agent, nonce and time. Compare the service's name. It can't show the application, because the signature names none. ${end}`;
}

function showRequest(current: Open, typedData: TypedData): void {
  const { domain, message } = typedData;
  write("sign-note", noteOf(current.operation, message.service));
  // By this computer's clock.
  const until = message.timestamp + (state.signing?.timestampMaxAge ?? 0) + (Date.now() - service.now()) / 1_000;
  describe("sign-facts", [
    ["Agent", current.agent],
    ["Purpose", TEXTS[current.operation](current.agent).purpose],
    ["Service", message.service ?? null],
    ["Account", accountFact],
    ["Application", makesKey(current) ? (current.options.declaredEndpoint ?? "none declared") : null],
    ["Good until", untilFact],
    ["Nonce", message.nonce ?? null, "mono"],
    ["For", `${domain.name} ${domain.version}, chain ${domain.chainId}`],
    ["Contract", domain.verifyingContract, "mono"],
  ]);
  stopClock();
  stopClock = countDown(until * 1_000, (left) => {
    write(untilFact, left > 0 ? `${time(until)}, ${duration(left)} left${message.nonce ? "; once" : ""}` : "now: it is too old");
    if (left === 0) void renew().then(() => write("sign-wait", "The request was too old and was made anew. Sign the one that stands here now."));
  });
  const json = JSON.stringify(typedData, null, 2);
  write("typed", json);
  byId<HTMLAnchorElement>("typed-file").href = `data:application/json,${encodeURIComponent(json)}`;
  byId("commands").replaceChildren(...commandsFor(current.operation, current.agent, state.signing));
}

async function signWithWallet(): Promise<void> {
  const [current, connection] = [open, state.connection];
  if (!current?.typedData || !connection) return;
  problem("");
  busy(true, `Waiting for ${connection.wallet.name}. Confirm there, or cancel here.`);
  try {
    const goodFor = current.typedData.message.timestamp + (state.signing?.timestampMaxAge ?? 0) - service.now() / 1_000;
    if (goodFor < SECONDS_TO_CONFIRM) await renew();
    // It may be another one when the wallet answers.
    const { account } = connection;
    if (open !== current || !account) return;
    await send(current, current.typedData, await connection.sign(current.typedData, account), account);
  } catch (error) {
    if (open !== current) return;
    if (error instanceof WalletError && error.trouble !== "refused") byId<HTMLDetailsElement>("elsewhere").open = true;
    if (error instanceof WalletError && error.trouble === "chain") await connection.readChain();
    problem(explain(error, current));
  } finally {
    if (open === current) busy(false, "");
  }
}

async function usePasted(): Promise<void> {
  const current = open;
  if (!current?.typedData) return;
  const field = byId<HTMLTextAreaElement>("signature");
  const signature = field.value.replace(/\s+/g, "");
  const takesContracts = state.signing?.contractSignatures === true;
  if (!(takesContracts ? CONTRACT_SIGNATURE : ACCOUNT_SIGNATURE).test(signature)) {
    const form = takesContracts ? "0x and at least 130 hex digits" : "0x and 130 hex digits";
    const next = CONTRACT_SIGNATURE.test(signature) ? NO_CONTRACTS : "Paste all of it, and nothing else.";
    complain(field, "signature-problem", `A signature is ${form}; this is something else. ${next}`);
    field.focus();
    return;
  }
  complain(field, "signature-problem", "");
  problem("");
  busy(true, "Sending the signature.");
  await send(current, current.typedData, signature, null);
  if (open === current) busy(false, "");
}

async function send(current: Open, typedData: TypedData, signature: string, account: string | null): Promise<void> {
  // The owner may have cancelled meanwhile.
  if (open !== current) return;
  current.isSending = true;
  try {
    end(await service.send(current.operation, typedData, signature, current.options));
  } catch (error) {
    await refused(current, error, account, signature);
    if (!dialog().open) end(null);
  } finally {
    current.isSending = false;
  }
}

async function refused(current: Open, error: unknown, account: string | null, signature: string): Promise<void> {
  const words = explain(error, { agent: current.agent, account, owner: state.owner, change: changeOf(current), signature });
  if (error instanceof TiergateError) {
    if (error.is("SIGNATURE_INVALID")) learn(current.agent, { owner: error.details.owner, ...(state.owner !== error.details.owner && { profile: null }) });
    if (error.is("KEY_ALREADY_EXISTS")) learn(current.agent, { hasKey: true });
    if (error.retryAfter) limitedUntil.set(limitOf(current), Date.now() + error.retryAfter * 1_000);
    watchLimit();
    // Others leave the nonce unused: the same signature may be sent again.
    if (!error.is("RATE_LIMITED") && !error.is("RPC_ERROR") && !error.is("OVERLOADED") && !error.is("SIGNATURE_INVALID")) await renew();
  }
  if (dialog().open) problem(words);
  else say(words, true);
}

const changeOf = (current: Open) => (makesKey(current) ? "made" : current.operation === "revoke" ? "revoked" : null);

const makesKey = ({ operation }: Open) => operation === "generate" || operation === "rotate";

/** Reading has its own limit. */
const limitOf = ({ operation, agent }: Open) => `${operation === "profile"} ${agent}`;

function watchLimit(): void {
  stopLimit();
  write("sign-limit", "");
  const until = open && limitedUntil.get(limitOf(open));
  if (!until || until <= Date.now()) return;
  stopLimit = countDown(until, (left) => {
    write("sign-limit", left > 0 ? `You can go on in ${duration(left)}.` : "");
    if (left > 0) return;
    problem("");
    write("sign-wait", "You can sign now.");
    draw();
  });
}

async function switchChain(): Promise<void> {
  const { connection, settings } = state;
  const current = open;
  if (!connection || !settings?.chain) return;
  problem("");
  busy(true, `Waiting for ${connection.wallet.name} to switch.`);
  try {
    await connection.switchTo(settings.chain);
    byId("sign-wallet").focus();
  } catch (error) {
    problem(explain(error, { agent: current?.agent ?? "" }));
  }
  if (open === current) busy(false, "");
}

function busy(is: boolean, words: string): void {
  if (open) open.isBusy = is;
  write("sign-wait", words);
  draw();
}

function problem(text: string): void {
  write("sign-problem", text);
  if (text) byId("sign-problem").focus();
}

function draw(): void {
  if (!open) return;
  const { connection, signing, settings, owner } = state;
  const account = connection?.account;
  write(accountFact, account ? account + (isStranger() ? `: not the owner, who is ${owner}` : "") : "none connected; sign elsewhere with the owner's");
  accountFact.className = isStranger() ? "bad" : "";
  const isLimited = (limitedUntil.get(limitOf(open)) ?? 0) > Date.now();
  const domainChain = signing ? BigInt(signing.domain.chainId) : null;
  const isElsewhere = connection != null && account != null && domainChain !== null && connection.chainId !== null && connection.chainId !== domainChain;
  const canSwitch = settings?.chain != null && BigInt(settings.chain.chainId) === domainChain;
  show(isElsewhere, "sign-chain");
  show(canSwitch, "sign-switch");
  if (isElsewhere) {
    write(
      "sign-chain-words",
      `Your wallet is on chain ${connection.chainId}, this signature is for chain ${domainChain}. Many wallets refuse to sign then. ` +
        (canSwitch ? "Switch first; it costs nothing and sends no transaction." : "If yours does, switch its chain there, or sign elsewhere."),
    );
    write("sign-switch", `Switch to ${settings?.chain?.chainName ?? ""}`);
  }
  show(account != null, "sign-wallet");
  write("sign-wallet", `${TEXTS[open.operation](open.agent).button} with ${connection?.wallet.name ?? ""}${isElsewhere ? " anyway" : ""}`);
  for (const id of ["sign-wallet", "sign-switch", "signature-use"]) byId<HTMLButtonElement>(id).disabled = open.isBusy || !open.typedData || (isLimited && id !== "sign-switch");
  byId<HTMLButtonElement>("sign-cancel").disabled = open.isSending;
}
