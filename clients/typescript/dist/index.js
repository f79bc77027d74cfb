// The client of Tiergate.
export { agentFetch } from "./fetch.js";
export * from "./client.js";
export { TiergateError, errorOf } from "./errors.js";
export { explain } from "./explain.js";
export { VERSION } from "./options.js";
export { walletSigner, } from "./signing.js";
