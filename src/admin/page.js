// Asks for status.json every two seconds and shows it. Rates and plots are made of the counters of the last five minutes.
// Texts are shown as text: they may come from requests and files.
"use strict";

const POLL_MS = 2000;
const SAMPLES_MAX = 151;
/** A shorter history leaves room at the left of its plots. */
const PLOT_SAMPLES_MIN = 30;
const RATE_SECONDS = 10;
const MINUTE = 60;

/** Samples of counters, oldest first: {at, counters}. */
const samples = [];
let configurationShown = null;
let processShown = null;
let values = [];
let answeredAt = null;
let isPaused = false;

const byId = (id) => document.getElementById(id);

// Texts.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const count = (value) => (value === undefined ? "–" : whole.format(value));
const perSecond = (value) => (value === null ? "–" : value >= 100 ? whole.format(value) : value.toFixed(1));

function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]
    .find(([size]) => Math.abs(seconds) >= size * (size >= 60 ? 2 : 1)) ?? [1e-6, "µs"];
  const value = seconds / size;
  return `${Math.abs(value) < 10 && size <= 1 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

const moment = (seconds) => new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 16) + " UTC";

// Metrics.

const seriesOf = (status, name) => status.metrics[name] ?? [];

function total(status, name, labels = {}) {
  const found = seriesOf(status, name)
    .filter((series) => Object.entries(labels).every(([label, value]) => series.labels[label] === value));
  return found.reduce((sum, series) => sum + (series.value ?? series.count), 0);
}

/** Every counter that a rate is made of, by a name of its own. */
function countersOf(status) {
  const counters = new Map();
  const add = (key, value) => counters.set(key, (counters.get(key) ?? 0) + value);
  for (const [listener, { count, sum }] of Object.entries(status.durations)) {
    add(`requests ${listener}`, count);
    add(`seconds ${listener}`, sum);
  }
  for (const { labels, value } of seriesOf(status, "tiergate_requests_total")) {
    if (labels.status.startsWith("5")) add("failed", value);
  }
  for (const { labels, value } of seriesOf(status, "tiergate_gateway_requests_total")) {
    if (labels.outcome === "failed") add("failed", value);
    add(`tenant ${labels.tenant}`, value);
  }
  for (const { labels, value } of seriesOf(status, "tiergate_limiter_decisions_total")) add(`tier ${labels.tier}`, value);
  for (const { labels, value } of seriesOf(status, "tiergate_denials_total")) add(`refusal ${labels.error_type}`, value);
  for (const { labels, value } of seriesOf(status, "tiergate_store_operations_total")) {
    add("store", value);
    if (labels.outcome === "fault") add("store faults", value);
  }
  for (const { value } of seriesOf(status, "tiergate_rpc_calls_total")) add("calls", value);
  for (const { value } of seriesOf(status, "tiergate_rpc_errors_total")) add("call errors", value);
  for (const { count, sum } of seriesOf(status, "tiergate_store_operation_duration_seconds")) {
    add("store waits", count);
    add("store seconds", sum);
  }
  for (const { route, count, sum } of routesOf(status)) {
    add(`route requests ${route}`, count);
    add(`route seconds ${route}`, sum);
  }
  return counters;
}

/** Durations by method, route and tenant, for each status. */
function routesOf(status) {
  return seriesOf(status, "http_server_request_duration_seconds").map(({ labels, count, sum }) => {
    const parts = [labels.http_request_method, labels.http_route || "(no route)", labels.tenant];
    return { route: parts.filter((part) => part !== "").join(" "), count, sum };
  });
}

/** How much a counter grew between two samples; one that is new began at zero. Those of tenants and routes come and go: the
 * status holds the busiest. */
function growth(key, from, to) {
  const [before, after] = [from.counters.get(key), to.counters.get(key)];
  const mayBeLeftOut = key.startsWith("tenant ") || key.startsWith("route ");
  if (mayBeLeftOut && (before === undefined || after === undefined)) return 0;
  // The series of a route end with it, and sums of them become less.
  return Math.max(0, (after ?? 0) - (before ?? 0));
}

/** The oldest sample of the last seconds, or the one before the last. */
function before(seconds) {
  const last = samples.at(-1);
  return samples.slice(0, -1).find((sample) => sample.at >= last.at - seconds - 0.5) ?? samples.at(-2);
}

function rate(key, seconds = RATE_SECONDS) {
  const [from, to] = [before(seconds), samples.at(-1)];
  return from === undefined || to.at <= from.at ? null : growth(key, from, to) / (to.at - from.at);
}

/** The mean of a sum over the last minute. */
function mean(sumKey, countKey) {
  const from = before(MINUTE);
  const events = from === undefined ? 0 : growth(countKey, from, samples.at(-1));
  return events === 0 ? null : growth(sumKey, from, samples.at(-1)) / events;
}

/** The rate between each two samples. */
const rates = (...keys) => samples.slice(1).map((to, at) => {
  const sum = keys.reduce((sum, key) => sum + growth(key, samples[at], to), 0);
  return sum / Math.max(to.at - samples[at].at, 0.001);
});

// Elements.

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Draws values as a line that ends at the right. */
function plot(element, { plotted, label }) {
  let svg = element.querySelector("svg");
  if (svg === null) {
    svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
    element.replaceChildren(svg);
  }
  const highest = Math.max(...plotted, 0);
  const width = Math.max(plotted.length, PLOT_SAMPLES_MIN) - 1;
  const points = plotted.map((value, at) => {
    const height = highest === 0 ? 0 : Math.max(value, 0) / highest;
    return `${width + 1 - plotted.length + at},${(97 - 94 * height).toFixed(1)}`;
  });
  svg.setAttribute("viewBox", `0 0 ${width} 100`);
  svg.firstChild.setAttribute("points", points.join(" "));
  svg.setAttribute("aria-label", `${label}: now ${perSecond(plotted.at(-1) ?? null)}, at most ${perSecond(highest)}`);
}

/** Shows a text, {text, look} or {plotted, label}. */
function fill(element, content) {
  if (content.plotted !== undefined) {
    plot(element, content);
    return;
  }
  setText(element, content.text ?? content);
  element.className = content.look ?? "";
}

/** Shows lists of contents as the rows of a table; elements that stay are kept. */
function rows(id, lists, nothing = "None") {
  const body = byId(id);
  const shown = lists.length > 0 ? lists : [[nothing]];
  while (body.rows.length > shown.length) body.deleteRow(-1);
  shown.forEach((contents, at) => {
    const row = body.rows[at] ?? body.insertRow();
    if (row.cells.length !== contents.length || (row.cells[0].tagName === "TH") !== (lists.length > 0)) {
      row.replaceChildren(...contents.map((_, cell) => document.createElement(cell === 0 && lists.length > 0 ? "th" : "td")));
      if (lists.length > 0) row.cells[0].scope = "row";
      if (lists.length === 0) row.cells[0].colSpan = 9;
    }
    contents.forEach((content, cell) => fill(row.cells[cell], content));
  });
}

/** Shows pairs of a name and a content. */
function pairs(id, list) {
  const element = byId(id);
  if (element.children.length !== 2 * list.length) {
    element.replaceChildren(...list.flatMap(() => [document.createElement("dt"), document.createElement("dd")]));
  }
  list.forEach(([name, content], at) => {
    setText(element.children[2 * at], name);
    fill(element.children[2 * at + 1], content);
  });
}

const good = (text) => ({ text, look: "good" });
const bad = (text) => ({ text, look: "bad" });
const plotted = (label, ...keys) => ({ plotted: rates(...keys), label });

// Sections.

function showReadiness({ readiness }) {
  const check = (reason) => (reason === null ? good("ok") : bad(reason));
  const list = [["Store", check(readiness.store)], ["Chain", check(readiness.chain)]];
  if (readiness.isStopping) list.push(["Process", bad("is ending")]);
  if (readiness.lacksLogs) list.push(["Logs of the chain", bad("no node gives them: profiles are read again and again")]);
  if (readiness.replicasMissing > 0) {
    list.push(["Replicas of Redis", bad(`${readiness.replicasMissing} missing: no key can be made or replaced`)]);
  }
  if (readiness.ageSeconds > 1) list.push(["Last asked", `${readiness.ageSeconds} s ago`]);
  if (readiness.signaturesAcceptedFrom !== null) {
    list.push(["Signatures", bad(`are refused until ${moment(readiness.signaturesAcceptedFrom)}`)]);
  }
  rows("readiness", list);
  fill(byId("state"), readiness.isReady ? good("Ready") : bad(readiness.isStopping ? "Stopping" : "Not ready"));
  document.title = `${readiness.isReady ? "Ready" : "Not ready"} – Tiergate`;
}

function showTraffic() {
  const shown = (name, listener) => [
    name, perSecond(rate(`requests ${listener}`)), duration(mean(`seconds ${listener}`, `requests ${listener}`)),
    plotted(`Requests to the ${name} per second`, `requests ${listener}`),
  ];
  rows("traffic", [
    shown("gateway", "gateway"), shown("API", "api"),
    ["failed", perSecond(rate("failed")), "", plotted("Failed requests per second", "failed")],
  ]);
}

function showTenants(status) {
  const requests = (tenant, outcome) => count(total(status, "tiergate_gateway_requests_total", { tenant, outcome }));
  const shown = status.tenants.map(({ id, hosts }) => ({ id, hosts: hosts.join(" ") }));
  const strangers = total(status, "tiergate_gateway_requests_total", { tenant: "(none)" });
  if (strangers > 0) shown.push({ id: "(none)", hosts: "unknown hosts" });
  rows("tenants", shown.map(({ id, hosts }) => [
    id, hosts, perSecond(rate(`tenant ${id}`)), plotted(`Requests of ${id} per second`, `tenant ${id}`),
    ...["forwarded", "refused", "failed", "abandoned"].map((outcome) => requests(id, outcome)),
  ]));
  const left = status.tenantsInAll - status.tenants.length;
  setText(byId("tenants-left"), left > 0 ? `${count(left)} more with fewer requests are not shown.` : "");
  const upstreams = status.tenants.flatMap(({ id, upstreams }) => upstreams.map((upstream) => ({ id, ...upstream })));
  upstreams.sort((one, other) => (one.state === "healthy") - (other.state === "healthy"));
  rows("upstreams", upstreams.map(({ id, upstream, state, inFlight }) => [
    id, upstream, state === "healthy" ? good(state) : bad(state), count(inFlight),
  ]));
}

function showDecisions(status) {
  rows("decisions", ["0", "1", "2", "3", "4"].map((tier) => [
    tier,
    ...["admitted", "limited", "blocked"].map((decision) =>
      count(total(status, "tiergate_limiter_decisions_total", { tier, decision }))),
    perSecond(rate(`tier ${tier}`)), plotted(`Decisions about tier ${tier} per second`, `tier ${tier}`),
  ]));
}

function showRefusals(status) {
  const types = [...new Set(seriesOf(status, "tiergate_denials_total").map(({ labels }) => labels.error_type))];
  const list = types.map((type) => {
    const [api, gateway] = ["api", "gateway"].map((listener) => total(status, "tiergate_denials_total", { listener, error_type: type }));
    return { type, api, gateway };
  });
  list.sort((one, other) => other.api + other.gateway - one.api - one.gateway);
  rows("refusals", list.map(({ type, api, gateway }) => [
    type, count(api), count(gateway), perSecond(rate(`refusal ${type}`)),
    plotted(`Refusals with ${type} per second`, `refusal ${type}`),
  ]));
}

function showRoutes(status) {
  const means = new Map();
  for (const { route, count, sum } of routesOf(status)) {
    const before = means.get(route) ?? { count: 0, sum: 0 };
    means.set(route, { count: before.count + count, sum: before.sum + sum });
  }
  const list = [...means].filter(([, { count }]) => count > 0).map(([route, { count, sum }]) => (
    { route, recent: mean(`route seconds ${route}`, `route requests ${route}`), ever: sum / count }
  ));
  list.sort((one, other) => (other.recent ?? 0) - (one.recent ?? 0) || other.ever - one.ever);
  rows("routes", list.slice(0, 10).map(({ route, recent, ever }) => [
    route, duration(recent), duration(ever), perSecond(rate(`route requests ${route}`)),
  ]), "No request yet");
}

function showChain(status) {
  const mode = seriesOf(status, "tiergate_follower_mode").find(({ value }) => value === 1)?.labels.state ?? "–";
  const [block, time] = [total(status, "tiergate_follower_block"), total(status, "tiergate_follower_block_timestamp_seconds")];
  pairs("chain", [
    ["Follower", mode === "following" ? good(mode) : bad(mode)],
    ["Head", time === 0 ? "–" : count(block)],
    ["Age of the head", time === 0 ? "–" : duration(Math.max(status.now / 1000 - time, 0))],
    ["Calls/s", perSecond(rate("calls"))],
    ["", plotted("Calls of nodes per second", "calls")],
    ["Calls without an answer", count(total(status, "tiergate_rpc_errors_total"))],
  ]);
  rows("nodes", seriesOf(status, "tiergate_rpc_node_healthy").map(({ labels, value }) => [
    labels.endpoint, value === 1 ? good("healthy") : bad("unhealthy"),
  ]));
}

function showStore(status) {
  const breakers = seriesOf(status, "tiergate_store_breakers")
    .map(({ labels, value }) => `${value} ${labels.state}`).join(", ");
  const faults = total(status, "tiergate_store_operations_total", { outcome: "fault" });
  pairs("store", [
    ["Kind", values.find(({ key }) => key === "store.kind")?.value.replaceAll('"', "") ?? "–"],
    ["Operations/s", perSecond(rate("store"))],
    ["", plotted("Store operations per second", "store")],
    ["Faults", faults > 0 ? bad(count(faults)) : count(0)],
    ["Mean wait, last minute", duration(mean("store seconds", "store waits"))],
    ...(breakers === "" ? [] : [["Servers", breakers]]),
  ]);
}

function showCertificates({ certificates, now }) {
  rows("certificates", certificates.map(({ file, usedBy, expiresAt }) => {
    const left = expiresAt - now / 1000;
    const text = expiresAt === null ? "unknown" : `${left < 0 ? "expired" : `in ${duration(left)}`}, ${moment(expiresAt)}`;
    return [file, usedBy.join(", "), left < 14 * 86400 ? bad(text) : text];
  }));
}

function showReload({ lastReload, now }) {
  const changes = [];
  if (lastReload === null) {
    setText(byId("reload"), "None since the start");
  } else {
    const ago = duration(Math.max(now / 1000 - lastReload.at, 0));
    const outcome = lastReload.applied ? good(`Applied ${ago} ago: ${lastReload.why}`) : bad(`${lastReload.tenants ? "Applied but for refused files" : "Refused"} ${ago} ago: ${lastReload.why}`);
    fill(byId("reload"), outcome);
    changes.push(...(lastReload.problems ?? []));
    changes.push(...(lastReload.tenants ?? []).map(({ tenant, change }) => `Tenant ${tenant} ${change}`));
    if (lastReload.certificates) changes.push("Certificates replaced");
    changes.push(...(lastReload.values ?? []).map(({ key, before, after, waits }) =>
      `${key}: ${before ?? "not set"} → ${after ?? "not set"}${waits ? " (after a restart)" : ""}`));
    if (changes.length === 0) changes.push("Nothing changed");
  }
  const list = byId("changes");
  while (list.children.length > changes.length) list.lastChild.remove();
  changes.forEach((change, at) => setText(list.children[at] ?? list.appendChild(document.createElement("li")), change));
}

function showConfiguration() {
  const wanted = byId("find").value.toLowerCase();
  const found = values.filter((value) => Object.values(value).some((text) => text.toLowerCase().includes(wanted)));
  rows("configuration", found.map(({ key, value, origin }) => [key, value, origin]));
}

async function get(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(5 * POLL_MS) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function poll() {
  const status = await get("status.json");
  const started = total(status, "process_start_time_seconds");
  const process = `${status.process} ${started}`;
  if (process !== processShown) {
    // Another process counts from zero.
    samples.length = 0;
    configurationShown = null;
    processShown = process;
  }
  if (status.configuration !== configurationShown) {
    const configuration = await get("configuration.json");
    values = configuration.values;
    setText(byId("configuration-left"), configuration.isCut ? "More values are not shown. `tiergate config show` prints all." : "");
    configurationShown = status.configuration;
    showConfiguration();
  }
  const sample = { at: status.now / 1000, counters: countersOf(status) };
  samples.push(sample);
  if (samples.length > SAMPLES_MAX) samples.shift();
  setText(byId("version"), status.version);
  setText(byId("since"), started === 0 ? "" : `up ${duration(Math.max(sample.at - started, 0))}`);
  answeredAt = new Date();
  showReadiness(status);
  showTraffic();
  showTenants(status);
  showDecisions(status);
  showRefusals(status);
  showRoutes(status);
  showChain(status);
  showStore(status);
  showCertificates(status);
  showReload(status);
}

async function run() {
  if (!isPaused && !document.hidden) {
    try {
      await poll();
    } catch {
      const last = answeredAt === null ? "" : ` since ${answeredAt.toLocaleTimeString()}`;
      fill(byId("state"), bad(`No answer${last}`));
      document.title = "No answer – Tiergate";
    }
  }
  setTimeout(run, POLL_MS);
}

byId("find").addEventListener("input", showConfiguration);
byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
});
run();
