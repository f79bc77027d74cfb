/** An account, smart account or wallet client of viem. */
export type ViemMessageSigner = ({
    address: string;
} | {
    account: {
        address: string;
    } | undefined;
}) & {
    signMessage(parameters: any): Promise<string>;
};
/** A signer of ethers 6, or a wallet provider of AgentKit. */
export interface EthersMessageSigner {
    getAddress(): string | Promise<string>;
    signMessage(message: string): Promise<string>;
}
/** Signs messages (`personal_sign`) as the agent's owner, or as the agent's own wallet where the gateway takes it. */
export type MessageSigner = ViemMessageSigner | EthersMessageSigner;
/** A request as it will be sent. Covered fields are read from `headers`. */
export interface Outgoing {
    method: string;
    url: URL;
    headers: Headers;
    body: ArrayBuffer;
}
/** The components that a signature covers, in this order. */
export interface Coverage {
    label: string;
    components: string[];
    /** Chosen by the gateway. */
    nonce?: string | undefined;
}
/** What is covered unless the gateway asks for more. */
export declare function coverageOf({ headers, body }: Outgoing): Coverage;
/**
 * The first coverage that an `Accept-Signature` asks for, that this profile allows and that the request has. Never one that
 * binds the signature to less than {@link coverageOf} does.
 */
export declare function coverageAsked(challenge: string, request: Outgoing): Coverage | undefined;
/** Returns the headers that sign a request. `now` is Unix time in seconds. */
export declare function signedBy(signer: MessageSigner, chainId: bigint, request: Outgoing, { label, components, nonce }: Coverage, now: number): Promise<Record<string, string>>;
