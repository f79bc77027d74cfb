// The state of the page. It is all in memory and stored nowhere.

import { Tiergate, type Operations, type Profile, type Signing } from "tiergate";
import type { ChainParameters, Connection } from "./wallet.js";

/** `settings.json` of the service. */
export interface Settings {
  title: string;
  /** The chain of the signatures, for wallets; `null` if wallets are to be given none. */
  chain: ChainParameters | null;
  /** The gateway, without a slash at its end, and a path for the first request: true if it is an endpoint of MCP. */
  gateway: { url: string; path: string; mcp: boolean } | null;
  /** True if images of agents may be loaded from elsewhere. */
  images: boolean;
  /** A development node whose accounts sign for everybody. */
  developmentRpcUrl: string | null;
}

/** Operations that this page asks for. */
export type Asked = Exclude<keyof Operations, "verify">;

/** The address of the API, which may lie below a prefix. */
export const SERVICE = new URL(".", document.baseURI);

/** Limits are counted down and shown, so the client waits for none. The owner reads the service's name here and in the wallet. The page came by http, too. */
export const service = new Tiergate(SERVICE, { retries: 0, serviceName: true, allowHttp: SERVICE.hostname });

export const state = {
  settings: null as Settings | null,
  signing: null as Signing | null,
  connection: null as Connection | null,
  /** The chosen agent. */
  agent: null as string | null,
  /** Counts choices of agents and requests in the dialog. The answer to an earlier choice comes too late. */
  turn: 0,
  hasKey: false,
  profile: null as Profile | null,
  /** The agent's owner as far as the service told. */
  owner: null as string | null,
  /** The key that is on the screen, and its agent. */
  issued: null as { agent: string; key: string } | null,
};

const listeners: (() => void)[] = [];

/** Calls a function after each change of the state. */
export function whenChanged(listener: () => void): void {
  listeners.push(listener);
}

/** Changes the state and draws the page anew. */
export function change(part: Partial<typeof state>): void {
  Object.assign(state, part);
  for (const listener of listeners) listener();
}

/** Notes facts about an agent, unless another one is chosen by now. */
export function learn(agent: string, part: Partial<typeof state>): void {
  if (agent === state.agent) change(part);
}

/** True if the connected account is known not to own the agent. */
export function isStranger(): boolean {
  const account = state.connection?.account ?? null;
  return state.owner !== null && account !== null && !sameAddress(state.owner, account);
}

/** True if both are the same address. */
export function sameAddress(one: string | null, other: string | null): boolean {
  return one !== null && one.toLowerCase() === other?.toLowerCase();
}
