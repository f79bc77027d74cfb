export type { Credential, KeySource, LivingKey } from "./credential.js";
export type { EthersMessageSigner, MessageSigner, ViemMessageSigner } from "./erc8128.js";
export { agentFetch, type AgentFetchOptions } from "./fetch.js";
export * from "./client.js";
export { TiergateError, errorOf, type ErrorDetails, type ErrorType } from "./errors.js";
export { explain } from "./explain.js";
export { VERSION } from "./options.js";
export type { Retry, RetryOptions } from "./retry.js";
export { walletSigner, type Domain, type Eip1193Provider, type EthersSigner, type Message, type PrimaryType, type Signer, type TypedData, type ViemSigner, } from "./signing.js";
