// What an error means to a model that called a tool.
import { TiergateError } from "./errors.js";
const CALLER = "Don't repeat the call. Tell your operator";
const WAIT = "Wait";
const ONCE = "Repeat the call once. If it is refused again, tell your operator";
const CHANGE = "Don't repeat the call as it is: correct it, or tell your operator";
const UNSURE = "The call may have been carried out: don't repeat it unless it may happen twice. If it goes on, tell your operator";
/** What happened, and what to do. Clients of both languages say the same: clients/cases.json. */
const SENTENCES = {
    VALIDATION_ERROR: ["The request is malformed", CHANGE],
    REPLAY_DETECTED: ["The signature was used before, or is out of time", ONCE],
    INVALID_API_KEY: ["The agent's key is not valid", CALLER],
    SIGNATURE_INVALID: ["The agent's signature is not its owner's", CALLER],
    TIER_BLOCKED: ["The agent's tier is too low", CALLER],
    FORBIDDEN: ["The agent may not call this", CALLER],
    ENDPOINT_MISMATCH: ["The agent's key is for another application", CALLER],
    AGENT_NOT_FOUND: ["There is no such agent", CALLER],
    NOT_FOUND: ["There is nothing at this address", CHANGE],
    METHOD_NOT_ALLOWED: ["The address does not take this method", CHANGE],
    REQUEST_TIMEOUT: ["The request took too long to arrive", ONCE],
    KEY_ALREADY_EXISTS: ["The agent has a key already", CALLER],
    PAYLOAD_TOO_LARGE: ["The request is too large", CHANGE],
    RATE_LIMITED: ["There were too many requests", WAIT],
    REQUEST_HEADER_FIELDS_TOO_LARGE: ["The request is too large", CHANGE],
    INTERNAL_ERROR: ["The service failed", UNSURE],
    UPSTREAM_ERROR: ["The API failed", UNSURE],
    RPC_ERROR: ["The service can't check the agent now", WAIT],
    OVERLOADED: ["The service is busy", WAIT],
    UPSTREAM_TIMEOUT: ["The API did not answer in time", UNSURE],
    LOOP_DETECTED: ["The service calls itself", CALLER],
    INSUFFICIENT_DEPOSIT: ["The agent's deposit is too small", CALLER],
    RELAY_FAILED: ["The transaction failed", UNSURE],
    UNEXPECTED_ANSWER: ["Something else than the service answered", UNSURE],
    NO_ANSWER: ["No answer came", UNSURE],
};
/**
 * Says in a few words what a model can do about an error: wait, correct its call, or tell its operator. It has nothing of the
 * error but its type, tiers, seconds to wait, and request id: texts of others are no instructions to a model.
 */
export function explain(error) {
    if (!(error instanceof TiergateError))
        return `The call failed. ${CALLER}.`;
    const [what, advice] = (Object.hasOwn(SENTENCES, error.errorType) && SENTENCES[error.errorType]) || ["The service refused the call", CALLER];
    const { currentTier, requiredTier } = error.details;
    const isTold = error.is("TIER_BLOCKED") && Number.isInteger(currentTier) && Number.isInteger(requiredTier);
    const tiers = isTold ? `: it is ${currentTier}, and ${requiredTier} is needed` : "";
    if (advice === WAIT)
        return `${what}. Wait ${error.retryAfter ?? 60} s, then repeat the call.`;
    return `${what}${tiers}. ${advice}${error.requestId ? `, with the request's id ${error.requestId}` : ""}.`;
}
