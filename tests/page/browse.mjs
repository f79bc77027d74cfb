// Drives a real Chromium for the tests: one JSON command a line on standard input, one JSON answer a line on standard output.
//
//   {"open": url}            opens a page
//   {"until": expression}    waits until it is true in the page, and gives its value
//   {"click": selector}
//   {"type": [selector, text]}  in place of what stands there
//   {"evaluate": expression}
//   {"press": key}           on the element that has the focus
//   {"wallet": options}      puts a wallet into pages that are opened afterwards, or changes it: see wallet.mjs
//   {"clipboard": origin}    what was copied, as pages of this origin may read it
//   {"answers": {path: {status, headers, body}}}  answers in place of the servers; null: the connection breaks
//   {"axe": true}            serious and critical violations that axe-core finds
//   {"look": {width, height, dark, phone}}
//   {"shot": path}           of the whole page
//   {"report": true}         what was requested, and what went wrong
//
// The browser ends with standard input.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(new URL("../../tools/package.json", import.meta.url));
const puppeteer = require("puppeteer-core");

/** A machine that is busy with other tests may take long. */
const PATIENCE_MS = 60_000;

const browser = await puppeteer.launch({
  executablePath: process.argv[2],
  headless: true,
  timeout: PATIENCE_MS,
  protocolTimeout: PATIENCE_MS,
  // The sandbox needs rights that a container's root does not have; the pages are our own.
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server"],
});
const page = await browser.newPage();
const report = { requested: [], complaints: [] };
let wallet = null;
page.on("request", (request) => report.requested.push(request.url()));
page.on("console", (message) => report.complaints.push(`${message.type()}: ${message.text()}`));
page.on("pageerror", (error) => report.complaints.push(String(error)));
page.on("requestfailed", (request) => {
  // A page that gives up an answer which is late asks again.
  if (request.failure()?.errorText !== "net::ERR_ABORTED") report.complaints.push(`failed: ${request.url()}`);
});
page.on("dialog", (dialog) => {
  report.complaints.push(`dialog: ${dialog.message()}`);
  void dialog.dismiss();
});
await page.evaluateOnNewDocument(() => {
  document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
});

async function until(expression) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await page.evaluate(expression);
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${PATIENCE_MS} ms: ${expression}\n${await page.evaluate("document.body.innerText")}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

let answers = null;

async function answerWith(given) {
  const isFirst = answers === null;
  answers = given;
  if (!isFirst) return;
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const answer = answers[new URL(request.url()).pathname];
    if (answer === undefined) return request.continue();
    if (answer === null) return request.abort();
    return request.respond({ contentType: "application/json", ...answer, body: JSON.stringify(answer.body) });
  });
}

async function violations() {
  await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
  const { violations } = await page.evaluate("axe.run({ resultTypes: ['violations'] })");
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join("; ")}`);
}

async function obey(command) {
  const [[verb, argument]] = Object.entries(command);
  switch (verb) {
    case "open":
      return (await page.goto(argument, { timeout: PATIENCE_MS })).status();
    case "until":
      return until(argument);
    case "click":
      return page.click(argument);
    case "type":
      await page.$eval(argument[0], (field) => {
        field.focus();
        field.select();
      });
      return argument[1] === "" ? page.keyboard.press("Delete") : page.keyboard.type(argument[1]);
    case "evaluate":
      return page.evaluate(argument);
    case "press":
      return page.keyboard.press(argument);
    case "wallet":
      if (wallet) return wallet.change(argument);
      wallet = await (await import("./wallet.mjs")).install(page, argument);
      Object.assign(report, { signed: wallet.signed, added: wallet.added });
      return;
    case "clipboard":
      await browser.defaultBrowserContext().overridePermissions(argument, ["clipboard-read", "clipboard-sanitized-write"]);
      await page.bringToFront();
      return page.evaluate("navigator.clipboard.readText()");
    case "answers":
      return answerWith(argument);
    case "axe":
      return violations();
    case "look":
      await page.setViewport({ width: argument.width, height: argument.height, isMobile: argument.phone ?? false, hasTouch: argument.phone ?? false });
      return page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: argument.dark ? "dark" : "light" }]);
    case "shot":
      return void (await page.screenshot({ path: argument, fullPage: true }));
    case "report":
      return report;
    default:
      throw new Error(`no such command: ${verb}`);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { value: (await obey(JSON.parse(line))) ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
