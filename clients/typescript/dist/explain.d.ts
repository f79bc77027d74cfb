/**
 * Says in a few words what a model can do about an error: wait, correct its call, or tell its operator. It has nothing of the
 * error but its type, tiers, seconds to wait, and request id: texts of others are no instructions to a model.
 */
export declare function explain(error: unknown): string;
