// Wallets of the browser: EIP-6963 announces them, EIP-1193 is how they are asked. Knows nothing of the page.

import type { TypedData } from "tiergate";

/** A wallet, as EIP-1193 has it. */
export interface Provider {
  request(request: { method: string; params?: unknown[] }): Promise<unknown>;
  on?(event: string, listener: (value: never) => void): void;
  removeListener?(event: string, listener: (value: never) => void): void;
}

/** A wallet that the owner may choose. Name and icon are its own words. */
export interface Found {
  id: string;
  name: string;
  /** A `data:` URL of an image. */
  icon: string | null;
  provider: Provider;
}

/** The parameter of `wallet_addEthereumChain`. */
export interface ChainParameters {
  chainId: string;
  chainName: string;
  rpcUrls: string[];
  nativeCurrency: { name: string; symbol: string; decimals: number };
}

/** How a request to a wallet failed. */
export type Trouble = "refused" | "pending" | "chain" | "unknown-chain" | "unauthorized" | "unsupported" | "other";

export class WalletError extends Error {
  constructor(
    readonly trouble: Trouble,
    message: string,
  ) {
    super(message);
  }
}

/** Names of wallets are cut to this length. */
const NAME_MAX = 60;

/** The accounts of a development node, which sign for everybody. */
export function developmentWallet(url: string): Found {
  const provider: Provider = {
    async request({ method, params = [] }) {
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
      const answer = await fetch(url, { method: "POST", body });
      const { result, error } = (await answer.json()) as { result?: unknown; error?: unknown };
      if (error) throw error;
      return result;
    },
  };
  return { id: DEVELOPMENT, name: "Sample accounts of the development chain", icon: null, provider };
}

export const DEVELOPMENT = "development";

/** Calls `changed` with the wallets of the browser: those that announce themselves, else the injected one. */
export function discover(changed: (wallets: Found[]) => void): void {
  const announced = new Map<string, Found>();
  const tell = () => {
    const injected = (window as { ethereum?: Provider }).ethereum;
    const fallback: Found[] = injected ? [{ id: "injected", name: "Browser wallet", icon: null, provider: injected }] : [];
    changed(announced.size > 0 ? [...announced.values()] : fallback);
  };
  window.addEventListener("eip6963:announceProvider", (event) => {
    const found = read((event as CustomEvent<unknown>).detail);
    if (found) announced.set(found.id, found);
    tell();
  });
  window.addEventListener("ethereum#initialized", tell);
  window.dispatchEvent(new Event("eip6963:requestProvider"));
  tell();
}

function read(detail: unknown): Found | null {
  const { info, provider } = (detail ?? {}) as { info?: Record<string, unknown>; provider?: Provider };
  if (typeof info?.["uuid"] !== "string" || typeof provider?.request !== "function") return null;
  const { uuid, name, icon } = info;
  return {
    id: uuid,
    name: (typeof name === "string" && name.slice(0, NAME_MAX).trim()) || "Wallet without a name",
    icon: typeof icon === "string" && /^data:image\//i.test(icon) ? icon : null,
    provider,
  };
}

/** Called when account or chain may have changed, with the account of before. */
type Changed = (connection: Connection, before: string | null) => void;

/** A wallet that shares an account with the page. */
export class Connection {
  /** All that the wallet shares. */
  accounts: string[] = [];
  /** The one that signs; `null` while the wallet is locked or shares none. */
  account: string | null = null;
  chainId: bigint | null = null;
  private readonly listeners: [string, (value: never) => void][];

  private constructor(
    readonly wallet: Found,
    changed: Changed,
    ended: (connection: Connection) => void,
  ) {
    this.listeners = [
      ["accountsChanged", (accounts: unknown) => {
        const before = this.account;
        this.share(accounts);
        changed(this, before);
      }],
      ["chainChanged", (chainId: unknown) => {
        this.chainId = number(chainId);
        changed(this, this.account);
      }],
      ["disconnect", () => ended(this)],
    ];
  }

  /** Follows the wallet's account and chain, and asks it for an account. */
  static async open(wallet: Found, changed: Changed, ended: (connection: Connection) => void): Promise<Connection> {
    const connection = new Connection(wallet, changed, ended);
    for (const [event, listener] of connection.listeners) wallet.provider.on?.(event, listener);
    try {
      connection.share(await connection.ask("eth_requestAccounts"));
    } catch (error) {
      connection.leave();
      throw error;
    }
    await connection.readChain();
    return connection;
  }

  /** Follows the wallet no more, and takes the page's permission back where the wallet knows how. Some never answer to that. */
  close(): void {
    this.leave();
    void this.ask("wallet_revokePermissions", [{ eth_accounts: {} }]).catch(() => undefined);
  }

  private leave(): void {
    for (const [event, listener] of this.listeners) this.wallet.provider.removeListener?.(event, listener);
  }

  /** Reads the active chain. */
  async readChain(): Promise<bigint | null> {
    this.chainId = number(await this.ask("eth_chainId").catch(() => null));
    return this.chainId;
  }

  async sign(typedData: TypedData, account: string): Promise<string> {
    const signature = await this.ask("eth_signTypedData_v4", [account, JSON.stringify(typedData)]);
    if (typeof signature !== "string") throw new WalletError("other", "it returned no signature");
    return signature;
  }

  /** Switches to a chain, which is added if the wallet does not know it. */
  async switchTo(chain: ChainParameters): Promise<void> {
    const change = () => this.ask("wallet_switchEthereumChain", [{ chainId: chain.chainId }]);
    try {
      await change();
    } catch (error) {
      if (!(error instanceof WalletError) || error.trouble !== "unknown-chain") throw error;
      await this.ask("wallet_addEthereumChain", [chain]);
      // Some wallets switch when they add, others only add.
      if ((await this.readChain()) !== BigInt(chain.chainId)) await change();
    }
    await this.readChain();
  }

  private share(accounts: unknown): void {
    this.accounts = Array.isArray(accounts) ? accounts.filter((account) => typeof account === "string") : [];
    this.account = this.accounts[0] ?? null;
  }

  /** Asks the wallet, or the node behind it. */
  async ask(method: string, params?: unknown[]): Promise<unknown> {
    try {
      return await this.wallet.provider.request(params ? { method, params } : { method });
    } catch (error) {
      throw troubleOf(error);
    }
  }
}

/** Sorts errors of wallets by their codes (EIP-1193, EIP-3326), and where wallets don't agree on codes by their words. */
function troubleOf(error: unknown): WalletError {
  const { code, message, data } = (error ?? {}) as { code?: unknown; message?: unknown; data?: { originalError?: { code?: unknown } } };
  const words = typeof message === "string" ? message : "";
  const codes = [code, data?.originalError?.code];
  const is = (...known: number[]) => codes.some((code) => known.includes(Number(code)));
  const trouble: Trouble =
    is(4001) || /user (rejected|denied)/i.test(words) ? "refused"
    : is(4902) || /unrecognized chain|not been added|wallet_addEthereumChain/i.test(words) ? "unknown-chain"
    : is(-32002) ? "pending"
    : is(4901) || /chain ?id|active chain|active network|wrong (chain|network)/i.test(words) ? "chain"
    : is(4100) ? "unauthorized"
    : is(4200, -32601) ? "unsupported"
    : "other";
  return new WalletError(trouble, words.slice(0, 200));
}

/** Chain ids are hexadecimal by EIP-695; some wallets send numbers. */
function number(chainId: unknown): bigint | null {
  try {
    return typeof chainId === "string" || typeof chainId === "number" ? BigInt(chainId) : null;
  } catch {
    return null;
  }
}
