/** The domain that signatures are bound to. */
export interface Domain {
    name: string;
    version: string;
    chainId: number;
    verifyingContract: `0x${string}`;
}
/** Types are the client's own, so that no service can have something else signed. */
declare const types: {
    Verification: {
        EIP712Domain: {
            name: string;
            type: string;
        }[];
        Verification: {
            name: string;
            type: string;
        }[];
    };
    ProfileRead: {
        EIP712Domain: {
            name: string;
            type: string;
        }[];
        ProfileRead: {
            name: string;
            type: string;
        }[];
    };
    GenerateKey: {
        EIP712Domain: {
            name: string;
            type: string;
        }[];
        GenerateKey: {
            name: string;
            type: string;
        }[];
    };
    RotateKey: {
        EIP712Domain: {
            name: string;
            type: string;
        }[];
        RotateKey: {
            name: string;
            type: string;
        }[];
    };
    RevokeKey: {
        EIP712Domain: {
            name: string;
            type: string;
        }[];
        RevokeKey: {
            name: string;
            type: string;
        }[];
    };
};
/**
 * `Verification` verifies, and changes keys at a service without own types; `ProfileRead` reads the profile and can do no
 * more. The others change a key, at the service that the message names.
 */
export type PrimaryType = keyof typeof types;
/** The message: ids and nonces are decimal, `timestamp` is Unix time in seconds, `service` the name of the service. */
export type Message = {
    service?: string;
    agentId: string;
    nonce?: string;
    timestamp: number;
};
/** Complete typed data, as `eth_signTypedData_v4` and `cast wallet sign --data` take it. */
export interface TypedData {
    domain: Domain;
    types: Record<string, {
        name: string;
        type: string;
    }[]>;
    primaryType: PrimaryType;
    message: Message;
}
/** An account, smart account or wallet client of viem; a wallet provider of AgentKit. */
export interface ViemSigner {
    signTypedData(typedData: any): Promise<string>;
}
/** A signer of ethers 6. */
export interface EthersSigner {
    /** Its signers alone have this. `getAddress` is in other libraries too, and `signTypedData` takes one argument there. */
    resolveName(name: string): Promise<string | null>;
    signTypedData(domain: any, types: any, message: any): Promise<string>;
}
/** Signs as the agent's owner: an account of viem, a signer of ethers, or any function. */
export type Signer = ViemSigner | EthersSigner | ((typedData: TypedData) => Promise<string>);
/** A wallet as EIP-1193 describes it. */
export interface Eip1193Provider {
    request(request: {
        method: string;
        params: any;
    }): Promise<any>;
}
/** Signs with a wallet of the browser, `eth_signTypedData_v4`. */
export declare function walletSigner(provider: Eip1193Provider, address: string): Signer;
/** Signs typed data. A key is no signer: the error shows nothing of it. */
export declare function sign(signer: Signer, typedData: TypedData): Promise<string>;
/** An agent's id as the API writes it, or throws. The error has no part of it: it may be a key in the wrong place. */
export declare function decimal(agentId: string | bigint): string;
/** Returns a random nonce: a uint256 in decimal. */
export declare function nonce(): string;
/** Returns a message of this time (Unix milliseconds), ready to be signed. `service` is for the types that name it. */
export declare function typedDataOf(domain: Domain, agentId: string, primaryType: PrimaryType, now: number, service?: string): TypedData;
export {};
