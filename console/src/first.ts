// Step 4: the first request with the key.

import { errorOf } from "tiergate";
import { byId, complain, countDown, describe, on, show, write } from "./dom.js";
import { snippet } from "./elsewhere.js";
import { listTools, messageIn, unwrapped, valueIn } from "./mcp.js";
import { SERVICE, state, whenChanged } from "./state.js";
import { duration, explain } from "./words.js";

/** The variable that the programs read the key from: what is typed is kept in histories, and arguments are seen by all. */
const VARIABLE = "TIERGATE_API_KEY";

/** More of an answer is not shown. */
const BODY_CHARACTERS_MAX = 4_000;

/** How long an answer may take. A stream may stay open behind it. */
const ANSWER_MILLIS_MAX = 30_000;

/** Headers that pages of another origin may read at the gateway. */
const HEADERS = ["content-type", "x-ratelimit-limit", "x-ratelimit-remaining", "retry-after", "x-request-id"];

/** The key in the field. */
let shown: string | null = null;
let stopWaiting = () => {};

export function startFirst(): void {
  const gateway = state.settings?.gateway ?? null;
  show(gateway !== null, "try");
  write(
    "first-words",
    gateway
      ? `Send the key in X-API-Key with each request to ${gateway.url}.`
      : "Services verify the agent by its key with one call. Behind a gateway, send the key in X-API-Key with each request.",
  );
  const texts = !gateway ? byVerification() : gateway.mcp ? forAssistants(gateway) : throughGateway(gateway);
  byId("snippets").replaceChildren(
    snippet("The key in a variable", `read -r -s ${VARIABLE} && export ${VARIABLE}`, "h3"),
    ...texts.map(([title, text]) => snippet(title, text, "h3")),
  );
  on("try-form", tryIt);
  whenChanged(draw);
  window.addEventListener("pagehide", () => {
    field().value = "";
    clearAnswer();
  });
}

const field = () => byId<HTMLInputElement>("try-key");

function draw(): void {
  const key = state.issued?.key ?? null;
  if (key === shown) return;
  shown = key;
  field().value = key ?? "";
}

type Snippets = [title: string, text: string][];

/**
 * They need nothing that is to be installed. None shows the key to the server that a redirect names: curl follows none, and
 * of fetch and urllib that is said.
 */
function throughGateway({ url, path }: { url: string; path: string }): Snippets {
  const whole = url + path;
  return [
    ["curl", `printf 'X-API-Key: %s' "$${VARIABLE}" | curl -i -H @- ${shell(whole)}`],
    ["TypeScript", typescript(whole, `headers: { "X-API-Key": process.env[${quoted(VARIABLE)}] }`)],
    ["Python", python("os", `Request(${quoted(whole)})\nrequest.add_unredirected_header("X-API-Key", os.environ[${quoted(VARIABLE)}])`)],
  ];
}

/** Most applications with MCP take this, and put the variable in where the text stands. */
function forAssistants({ url, path }: { url: string; path: string }): Snippets {
  const server = { type: "http", url: url + path, headers: { "X-API-Key": `\${${VARIABLE}}` } };
  return [["An assistant's configuration", JSON.stringify({ mcpServers: { [new URL(url).hostname]: server } }, null, 2)]];
}

function byVerification(): Snippets {
  const url = `${SERVICE.href}verify`;
  return [
    ["curl", `printf '{"apiKey":"%s"}' "$${VARIABLE}" | curl -i -d @- ${shell(url)}`],
    ["TypeScript", typescript(url, `method: "POST", body: JSON.stringify({ apiKey: process.env[${quoted(VARIABLE)}] })`)],
    ["Python", python("json, os", `Request(${quoted(url)}, data=json.dumps({"apiKey": os.environ[${quoted(VARIABLE)}]}).encode())`)],
  ];
}

function typescript(url: string, options: string): string {
  return `const answer = await fetch(${quoted(url)}, { ${options}, redirect: "error" });\nconsole.log(answer.status, await answer.text());`;
}

function python(modules: string, request: string): string {
  return (
    `import ${modules}\nfrom urllib.request import Request, urlopen\n\nrequest = ${request}\n` +
    "with urlopen(request) as answer:\n    print(answer.status, answer.read().decode())"
  );
}

const shell = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
/** A text in JSON is one in TypeScript and Python. */
const quoted = (text: string) => JSON.stringify(text);

async function tryIt(): Promise<void> {
  const { gateway } = state.settings ?? {};
  if (!gateway) return;
  const key = field().value.trim();
  if (!/^[!-~]+$/.test(key)) {
    complain(field(), "try-problem", key ? "This is no API key. Paste the whole key, and nothing else." : "Paste the agent's key first.");
    field().focus();
    return;
  }
  complain(field(), "try-problem", "");
  const send = byId<HTMLButtonElement>("try-send");
  send.disabled = true;
  stopWaiting();
  write("try-wait", "");
  clearAnswer();
  try {
    const ask = (init: RequestInit, headers = {}) =>
      fetch(gateway.url + gateway.path, {
        ...init,
        headers: { "X-API-Key": key, ...headers },
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        signal: AbortSignal.timeout(ANSWER_MILLIS_MAX),
      });
    const answer = gateway.mcp ? await listTools(ask) : await ask({});
    const text = gateway.mcp ? await messageIn(answer) : await answer.clone().text();
    const isRefused = gateway.mcp && valueIn(text, "error", "code") !== undefined;
    showAnswer(answer, text, answer.ok && !isRefused);
    const error = await errorOf(gateway.mcp ? await unwrapped(answer) : answer);
    if (error) write("try-problem", explain(error, { agent: state.agent ?? "" }));
    const seconds = Number(answer.headers.get("retry-after"));
    if (seconds > 0) wait(seconds, send);
    else send.disabled = false;
  } catch {
    write("try-problem", `The browser got no answer from ${gateway.url}. The gateway may be down, or the tenant does not allow this page's origin (CORS).${gateway.mcp ? "" : " The command for curl needs no such permission."}`);
    send.disabled = false;
  }
}

function clearAnswer(): void {
  write("try-status", "");
  show(false, "try-answer");
  byId("try-headers").replaceChildren();
  write("try-body", "");
}

function showAnswer(answer: Response, text: string, isGood: boolean): void {
  show(true, "try-answer");
  const remaining = answer.headers.get("x-ratelimit-remaining");
  const limit = answer.headers.get("x-ratelimit-limit");
  const quota = remaining !== null && limit !== null ? ` ${remaining} of ${limit} requests are left this minute.` : "";
  write("try-status", `The answer is ${answer.status}${answer.statusText && ` ${answer.statusText}`}.${quota}`);
  byId("try-status").className = `state ${isGood ? "good" : "bad"}`;
  describe("try-headers", HEADERS.map((name) => [name, answer.headers.get(name), "mono"]));
  const body = readable(text);
  byId("try-body").textContent = body.length > BODY_CHARACTERS_MAX ? `${body.slice(0, BODY_CHARACTERS_MAX)}…` : body;
}

/** JSON with a line for each field; other texts as they are. */
function readable(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function wait(seconds: number, button: HTMLButtonElement): void {
  stopWaiting = countDown(Date.now() + seconds * 1_000, (left) => {
    write("try-wait", left > 0 ? `You can send again in ${duration(left)}.` : "You can send again now.");
    if (left === 0) {
      button.disabled = false;
      write("try-problem", "");
    }
  });
}
