import { Tiergate } from "./client/index.js";
export const SERVICE = new URL(".", document.baseURI);
export const service = new Tiergate(SERVICE, { retries: 0 });
export const state = {
    settings: null,
    signing: null,
    connection: null,
    agent: null,
    hasKey: false,
    profile: null,
    owner: null,
    key: null,
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
export function sameAddress(one, other) {
    return one !== null && one.toLowerCase() === other?.toLowerCase();
}
