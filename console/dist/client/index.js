export { agentFetch } from "./fetch.js";
export * from "./client.js";
export { TiergateError, errorOf } from "./errors.js";
export { nonce, walletSigner, } from "./signing.js";
