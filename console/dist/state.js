import { Tiergate } from "./client/index.js";
export const SERVICE = new URL(".", document.baseURI);
export const service = new Tiergate(SERVICE, { retries: 0, serviceName: true, allowHttp: SERVICE.hostname });
export const state = {
    settings: null,
    signing: null,
    connection: null,
    agent: null,
    turn: 0,
    hasKey: false,
    profile: null,
    owner: null,
    issued: null,
};
const listeners = [];
export function whenChanged(listener) {
    listeners.push(listener);
}
export function change(part) {
    Object.assign(state, part);
    for (const listener of listeners)
        listener();
}
export function learn(agent, part) {
    if (agent === state.agent)
        change(part);
}
export function isStranger() {
    const account = state.connection?.account ?? null;
    return state.owner !== null && account !== null && !sameAddress(state.owner, account);
}
export function sameAddress(one, other) {
    return one !== null && one.toLowerCase() === other?.toLowerCase();
}
