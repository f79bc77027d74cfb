#!/usr/bin/env node
// `tiergate keys` of the TypeScript client: an agent's key, for owners whose computer has Node and no `tiergate` program.
// Flags, answers and exit codes are those of that program, which does more.

import { randomBytes } from "node:crypto";
import { closeSync, fsyncSync, linkSync, lstatSync, openSync, readFileSync, realpathSync, renameSync, rmSync, statSync, writeFileSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { isatty } from "node:tty";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { Tiergate, TiergateError } from "../dist/index.js";

const USAGE = `Usage: tiergate keys generate|rotate|revoke|status --agent-id N [OPTIONS]

Generate, rotate, revoke or look up an agent's API key at a running service of Tiergate.

  --url URL              the service; or TIERGATE_URL [default: http://127.0.0.1:8080]
  --allow-http HOST      send signatures by plain http to this host too; or TIERGATE_ALLOW_HTTP
  --agent-id N           the agent
  --owner-key-file FILE  the owner's private key in hex; - is standard input; or TIERGATE_OWNER_KEY. Needs viem
  --out FILE             write the new key to this file, which you alone can read; it must not be there, but for rotate
  --declared-endpoint URL  the application endpoint that the new key is for
  --name NAME            which key, where an agent may have several; for revoke too
  --expires-in SECONDS   after how long the new key ends; without it, it does not
  --tenants IDS          the ids of the tenants that the new key opens, with commas between them
  --grace-seconds N      of rotate: for how long the replaced key goes on
  --service-name NAME    the service's name, where changes of keys are signed as types of their own
  --typed-data           print what is to be signed elsewhere, and send nothing
  --signed FILE          what --typed-data printed, to be sent with --signature
  --signature FILE       the signature of it; - is standard input
  -o, --output text|json

Examples:
  npx --package tiergate --package viem tiergate keys generate --url https://keys.example \\
      --agent-id 4 --owner-key-file owner.key --out api.key
  npx tiergate keys status --url https://keys.example --agent-id 4`;

const text = { type: "string" };
const OPTIONS = {
  url: text, "allow-http": text, "agent-id": text, "owner-key-file": text, out: text, "declared-endpoint": text,
  name: text, "expires-in": text, tenants: text, "grace-seconds": text, "service-name": text,
  "typed-data": { type: "boolean" }, signed: text, signature: text, output: { type: "string", short: "o", default: "text" }, help: { type: "boolean", short: "h" },
};
const OPERATIONS = { generate: "GenerateKey", rotate: "RotateKey", revoke: "RevokeKey" };
const SECRET_BYTES_MAX = 16_384;
const [FAILED, UNUSABLE, KEY_UNSURE] = [1, 2, 3];

class Failure extends Error {
  constructor(message, code = FAILED) {
    super(message);
    this.code = code;
  }
}

let given = {};
/** True once a change of a key may be under way. */
let sends = false;
async function main() {
  let positionals;
  try {
    ({ values: given, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true }));
  } catch (error) {
    throw new Failure(`${error.message}\n\n${USAGE}`, UNUSABLE);
  }
  if (given.help) return say(USAGE);
  const [group, operation, ...further] = positionals;
  const isKnown = operation === "status" || Object.hasOwn(OPERATIONS, operation ?? "");
  if (group !== "keys" || !isKnown || further.length > 0) throw new Failure(USAGE, UNUSABLE);
  if (!["text", "json"].includes(given.output)) throw new Failure("--output is text or json", UNUSABLE);
  const service = serviceOf();
  if (operation === "status") return print(await service.keys.status(agent()));
  if (given["typed-data"]) return say(JSON.stringify(await service.typedData(agent(), operation), null, 2));
  const send = await sender(service, operation);
  const terms = termsOf(operation);
  const file = operation === "revoke" || given.out === undefined ? null : new KeyFile(given.out, operation === "rotate");
  try {
    // Until here nothing is changed.
    await service.signing();
    sends = true;
    const { agentId, apiKey } = await send(terms);
    if (operation === "revoke") return print({ agentId, success: true });
    if (!file) return print({ agentId, apiKey });
    file.keep(apiKey);
    print({ agentId, file: given.out });
  } finally {
    file?.end();
  }
}

/** What the flags ask of the key. */
function termsOf(operation) {
  const taken = { revoke: ["name"], generate: ["name", "declared-endpoint", "expires-in", "tenants"] };
  taken.rotate = [...taken.generate, "grace-seconds"];
  const terms = {};
  for (const flag of taken.rotate) {
    const value = given[flag];
    if (value === undefined) continue;
    if (!taken[operation].includes(flag)) throw new Failure(`${operation} takes no --${flag}`, UNUSABLE);
    const isSeconds = ["expires-in", "grace-seconds"].includes(flag);
    if (isSeconds && !/^\d{1,15}$/.test(value)) throw new Failure(`--${flag} is a whole number of seconds`, UNUSABLE);
    const name = flag.replace(/-(.)/, (_, letter) => letter.toUpperCase());
    terms[name] = flag === "tenants" ? value.split(",") : isSeconds ? Number(value) : value;
  }
  return terms;
}

function agent() {
  const id = given["agent-id"];
  if (!/^\d{1,78}$/.test(id ?? "")) throw new Failure("name the agent with --agent-id, in digits", UNUSABLE);
  return id;
}

function serviceOf() {
  const text = given.url ?? process.env.TIERGATE_URL ?? "http://127.0.0.1:8080";
  const url = URL.canParse(text) ? new URL(text) : { protocol: "" };
  if (!/^https?:$/.test(url.protocol)) throw new Failure("--url: write all of it, such as https://keys.example or http://127.0.0.1:8080", UNUSABLE);
  const allowHttp = given["allow-http"] ?? process.env.TIERGATE_ALLOW_HTTP;
  const isThisMachine = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  const bare = (host) => host?.toLowerCase().replace(/^\[(.*)\]$/, "$1");
  if (url.protocol === "http:" && !isThisMachine && bare(url.hostname) !== bare(allowHttp)) {
    throw new Failure(`others could read keys and signatures on the way to ${url.origin}: use https, or allow it with --allow-http ${url.hostname}`, UNUSABLE);
  }
  const name = given["service-name"];
  return new Tiergate(url, { ...(name === undefined ? {} : { serviceName: name }), ...(allowHttp === undefined ? {} : { allowHttp }) });
}

/** Sends what was signed elsewhere, or what the owner's key signs. All that is given is read before anything is sent. */
async function sender(service, operation) {
  if ((given.signed === undefined) !== (given.signature === undefined)) throw new Failure("--signed and --signature go together", UNUSABLE);
  if (given.signed !== undefined) {
    const [typedData, signature] = await signedElsewhere(service, operation);
    return (options) => service.send(operation, typedData, signature, options);
  }
  const [id, account] = [agent(), await owner()];
  return (options) => service.keys[operation](id, account, options);
}

async function signedElsewhere(service, operation) {
  const typedData = parse(given.signed);
  const { primaryType, message, domain } = typedData;
  if (primaryType !== "Verification" && primaryType !== OPERATIONS[operation]) throw new Failure(`${given.signed} is not signed to ${operation} a key`);
  if (given["agent-id"] !== undefined && agent() !== message?.agentId) throw new Failure(`--agent-id is ${agent()}, but ${given.signed} is for ${message?.agentId}`);
  const expected = (await service.typedData(message.agentId, operation)).domain;
  if (JSON.stringify(sorted(expected)) !== JSON.stringify(sorted(domain))) throw new Failure(`${given.signed} is signed for another service than --url names`);
  const signature = read(given.signature, "signature").trim();
  if (!/^0x([0-9a-f]{2}){65,4096}$/i.test(signature)) throw new Failure(`${given.signature} does not hold a signature`);
  return [typedData, signature];
}

/** No error quotes the file: it may be a key's. */
function parse(file) {
  const text = read(file, "request");
  try {
    const typedData = JSON.parse(text);
    if (typeof typedData?.message?.agentId === "string") return typedData;
  } catch {
    // It is told below.
  }
  throw new Failure(`${file} is not what --typed-data prints`);
}

const sorted = (object) => Object.entries(object ?? {}).sort(([one], [other]) => (one < other ? -1 : 1));

async function owner() {
  const file = given["owner-key-file"];
  if (file === "-" && isatty(0)) throw new Failure("the terminal would show the owner's key: name its file, or send it to standard input");
  const key = file === undefined ? process.env.TIERGATE_OWNER_KEY : read(file, "owner's key");
  if (key === undefined) throw new Failure("no owner's key: name its file with --owner-key-file (- is standard input), set TIERGATE_OWNER_KEY, or sign elsewhere with --typed-data");
  const place = file ?? "TIERGATE_OWNER_KEY";
  const hex = key.trim().replace(/^0x/i, "");
  if (hex.startsWith("{")) throw new Failure(`${place} is an encrypted keystore: sign elsewhere with --typed-data, or take the tiergate program or the Python client`);
  if (!/^[0-9a-f]{64}$/i.test(hex)) throw new Failure(`${place} holds no private key of 64 hex characters`);
  if (file !== undefined && file !== "-") warnOfReaders(file);
  const { privateKeyToAccount } = await viem();
  try {
    return privateKeyToAccount(`0x${hex}`);
  } catch {
    throw new Failure(`${place} holds no private key`);
  }
}

/** viem beside this package; where npx links a folder, beside the link. */
async function viem() {
  for (const from of [fileURLToPath(import.meta.url), process.argv[1]]) {
    try {
      return await import(pathToFileURL(createRequire(from).resolve("viem/accounts")).href);
    } catch {
      // It is not there.
    }
  }
  throw new Failure("to sign with a key, viem is needed: npx --package tiergate --package viem tiergate keys ...; or sign elsewhere with --typed-data", UNUSABLE);
}

function read(file, what) {
  let bytes;
  try {
    bytes = readFileSync(file === "-" ? 0 : file);
  } catch (error) {
    throw new Failure(`${file}: can't be read: ${error.code}; name a file with the ${what} that you can read, or - for standard input`);
  }
  if (bytes.length > SECRET_BYTES_MAX) throw new Failure(`${file}: is longer than ${SECRET_BYTES_MAX} bytes`);
  return bytes.toString("utf8");
}

/** Windows has no such rights. */
function warnOfReaders(file) {
  const found = statSync(file);
  if (process.platform === "win32" || !found.isFile() || (found.mode & 0o044) === 0) return;
  console.error(`tiergate: warning: others may read ${file}; keep it from them: chmod 600 ${file}`);
}

/** True for a file with an API key alone, of any prefix. */
function holdsKey(path) {
  const found = statSync(path, { throwIfNoEntry: false });
  if (!found?.isFile() || found.size > SECRET_BYTES_MAX) return false;
  return /^(?!0x)[\w-]+[0-9a-f]{64}\s*$/.test(readFileSync(path, "utf8"));
}

/** A file for a key that is not made yet, beside its place until it holds the key. */
class KeyFile {
  constructor(path, isReplaced) {
    const isThere = lstatSync(path, { throwIfNoEntry: false }) !== undefined;
    if (isThere && !(isReplaced && holdsKey(path))) throw new Failure(`cannot create ${path}: it exists, and is no API key that may be replaced`);
    // A link leads to the new file too.
    this.path = isThere ? realpathSync(path) : path;
    this.isReplaced = isThere;
    this.beside = `${this.path}.new-${randomBytes(8).toString("hex")}`;
    try {
      this.file = openSync(this.beside, "wx", 0o600);
    } catch (error) {
      throw new Failure(`cannot create ${path}: ${error.code}`);
    }
  }

  keep(key) {
    try {
      writeSync(this.file, `${key}\n`);
      fsyncSync(this.file);
      closeSync(this.file);
      this.file = null;
      if (this.isReplaced) return renameSync(this.beside, this.path);
      this.enter();
    } catch (error) {
      throw new Failure(`the new key is in ${this.beside}, or lost: ${error.code}`, KEY_UNSURE);
    }
  }

  /** Gives the file its name, unless another has it by now. Some filesystems know no links. */
  enter() {
    try {
      linkSync(this.beside, this.path);
      rmSync(this.beside);
    } catch (error) {
      if (error.code === "EEXIST" || lstatSync(this.path, { throwIfNoEntry: false })) throw error;
      renameSync(this.beside, this.path);
    }
  }

  /** Removes what holds no key. */
  end() {
    if (this.file === null) return;
    closeSync(this.file);
    if (statSync(this.beside, { throwIfNoEntry: false })?.size === 0) rmSync(this.beside);
  }
}

function print(answer) {
  const { rateLimit: _, ...fields } = answer;
  if (given.output === "json") return say(JSON.stringify(fields));
  const width = Math.max(...Object.keys(fields).map((name) => name.length));
  say(Object.entries(fields).map(([name, value]) => `${name.padEnd(width)}  ${shown(value)}`).join("\n"));
}

/** Writes to standard output, or fails: `console.log` hides that a disk is full. */
function say(text) {
  try {
    writeFileSync(1, `${text}\n`);
  } catch (error) {
    const lost = sends ? "; the key was changed" : "";
    throw new Failure(`standard output can't be written: ${error.code}${lost}`, sends ? KEY_UNSURE : FAILED);
  }
}

/** Text from elsewhere, without what a terminal obeys. */
const shown = (value) => String(value).replace(/\p{Cc}/gu, "\ufffd");

function report(error) {
  const isServices = error instanceof TiergateError;
  const isOwn = error instanceof Failure;
  // A wrong argument is a TypeError of the client, which shows nothing of it.
  const words = isServices ? shown(`${error.errorType}: ${error.said}`) : isOwn || error instanceof TypeError ? error.message : "internal error; please report it";
  console.error(`tiergate: ${words}${isServices && error.retryAfter ? `; wait ${error.retryAfter} s` : ""}`);
  process.exitCode = isOwn ? error.code : isServices && isUnsure(error) ? KEY_UNSURE : FAILED;
  if (isServices && given.output === "json") console.log(JSON.stringify({ error: error.said, errorType: error.errorType, details: error.details }));
}

/** True after a change of a key that may have been made: two types say that it was not. Status 0 is no answer. */
function isUnsure({ errorType, status }) {
  return sends && (status < 300 || (status >= 500 && !["RPC_ERROR", "OVERLOADED"].includes(errorType)));
}

try {
  await main();
} catch (error) {
  report(error);
}
