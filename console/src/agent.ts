// Step 2: the agent and its profile.

import type { Profile } from "tiergate";
import { chooseSample } from "./connect.js";
import { byId, complain, describe, make, on, say, show, write } from "./dom.js";
import { registrationIn, type Registration } from "./registration.js";
import { sign } from "./sign.js";
import { change, isStranger, service, state, whenChanged } from "./state.js";
import { count, explain, time, tokens } from "./words.js";

/** An agent's number is a uint256: 78 digits at most. */
const DIGITS_MAX = 78;

export function startAgent(): void {
  on("find", find);
  on("read", readProfile);
  whenChanged(draw);
  const named = new URLSearchParams(location.search).get("agent");
  if (named === null) return;
  field().value = named;
  void find();
}

const field = () => byId<HTMLInputElement>("agent");

async function find(): Promise<void> {
  const agent = field().value.trim().replace(/^0+(?=\d)/, "");
  if (!/^\d+$/.test(agent) || agent.length > DIGITS_MAX) {
    complain(field(), "agent-problem", "An agent's number is digits only, such as 4.");
    field().focus();
    return;
  }
  complain(field(), "agent-problem", "");
  const turn = ++state.turn;
  try {
    const { hasKey } = await service.keys.status(agent);
    if (turn !== state.turn) return;
    // The application was the other agent's.
    if (agent !== state.agent) byId<HTMLInputElement>("endpoint").value = "";
    change(agent === state.agent ? { hasKey } : { agent, hasKey, profile: null, owner: null });
    chooseSample();
    const address = new URL(location.href);
    address.searchParams.set("agent", agent);
    history.replaceState(null, "", address);
    say(`Agent ${agent} ${hasKey ? "has a key" : "has no key"}.`);
  } catch (error) {
    if (turn !== state.turn) return;
    complain(field(), "agent-problem", explain(error, { agent }));
    field().focus();
  }
}

async function readProfile(): Promise<void> {
  const { agent } = state;
  if (agent === null) return;
  const profile = await sign("profile", agent);
  if (!profile || agent !== state.agent) return;
  change({ profile, owner: profile.owner, hasKey: profile.hasKey });
  say(`This is the profile of agent ${profile.agentId}.`);
}

function draw(): void {
  const { agent, hasKey, profile, owner } = state;
  show(agent !== null, "agent-found");
  if (agent === null) return;
  write("has-key", `Agent ${agent} ${hasKey ? "has a key." : "has no key."}`);
  write("read", profile ? "Read the profile again" : "Show the profile");
  show(isStranger(), "owner-note");
  write("owner-note", isStranger() ? `The connected account is not the owner of agent ${agent}. Choose the account ${owner} in your wallet, or sign elsewhere with it.${state.signing?.agentWallet ? " The agent's own wallet may sign too." : ""}` : "");
  show(profile !== null, "profile");
  if (profile) drawProfile(profile);
}

function drawProfile(profile: Profile): void {
  const { reputation, validation } = profile;
  const tiers = state.signing?.tiers ?? [];
  const own = tiers.find(({ tier }) => tier === profile.trustTier);
  const next = tiers.find(({ tier }) => tier === profile.trustTier + 1);
  const { tierSource, stakedAmount } = profile;
  const more = (stake: string) => `${tokens(stake)}: ${tokens(BigInt(stake) - BigInt(stakedAmount ?? 0))} more`;
  const registration = registrationIn(profile.metadataURI);
  write("profile-read", `read at ${time(profile.timestamp)}`);
  describe("profile-facts", [
    ["Owner", profile.owner, "mono"],
    ["Tier", `${profile.trustTier}${own ? ` (${own.name})` : ""}${profile.trustTier === 0 ? ": services refuse this agent" : tierSource ? `, by ${tierSource}` : ""}`],
    ["Stake", stakedAmount === undefined ? null : tokens(stakedAmount)],
    ["Next tier", !next ? "none: this is the highest" : next.stake ? `${next.name} needs ${more(next.stake)}` : "not by stake at this service"],
    ["Requests", own ? `${count(own.requestsPerMinute, "request")} a minute` : null],
    ["Reputation", reputation.feedbackCount === 0 ? "no feedback yet" : `${reputation.totalScore} in sum from ${count(reputation.feedbackCount, "review")}, ${reputation.averageRating ?? "–"} on average`],
    ["Validations", validation.count === 0 ? "none yet" : `${validation.count}; the latest ${validation.latestPassed ? "passed" : "failed"}`],
    ["Evidence", validation.latestEvidence || null],
    ["Validator", validation.latestValidator ?? null, "mono"],
    ["Organizations", organizations(profile)],
    // Texts, and no links: their author may be anybody.
    ["Registered as", registration?.name || null],
    ["Image", state.settings?.images && registration?.image ? image(registration.image) : null],
    ["Services", registration && services(registration)],
    ["Metadata URI", profile.metadataURI || "none", "mono"],
  ]);
}

/** Its host learns no more than that somebody looks. */
function image(url: string): Node {
  const element = make("img", "picture");
  element.referrerPolicy = "no-referrer";
  element.alt = "the agent's own image";
  element.src = url;
  return element;
}

function services({ services }: Registration): Node | null {
  if (services.length === 0) return null;
  return make("ul", "", ...services.map(({ name, endpoint }) => make("li", "", `${name || "without a name"}: ${endpoint}`)));
}

function organizations({ organizations }: Profile): Node | string {
  if (organizations.length === 0) return "none";
  return make("ul", "", ...organizations.map(({ name, orgId, verified }) => make("li", "", `${name || "without a name"} (number ${orgId}, ${verified ? "verified" : "not verified"})`)));
}
