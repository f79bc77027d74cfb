export class WalletError extends Error {
    trouble;
    constructor(trouble, message) {
        super(message);
        this.trouble = trouble;
    }
}
const NAME_MAX = 60;
export function developmentWallet(url) {
    const provider = {
        async request({ method, params = [] }) {
            const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
            const answer = await fetch(url, { method: "POST", body });
            const { result, error } = (await answer.json());
            if (error)
                throw error;
            return result;
        },
    };
    return { id: DEVELOPMENT, name: "Sample accounts of the development chain", icon: null, provider };
}
export const DEVELOPMENT = "development";
export function discover(changed) {
    const announced = new Map();
    const tell = () => {
        const injected = window.ethereum;
        const fallback = injected ? [{ id: "injected", name: "Browser wallet", icon: null, provider: injected }] : [];
        changed(announced.size > 0 ? [...announced.values()] : fallback);
    };
    window.addEventListener("eip6963:announceProvider", (event) => {
        const found = read(event.detail);
        if (found)
            announced.set(found.id, found);
        tell();
    });
    window.addEventListener("ethereum#initialized", tell);
    window.dispatchEvent(new Event("eip6963:requestProvider"));
    tell();
}
function read(detail) {
    const { info, provider } = (detail ?? {});
    if (typeof info?.["uuid"] !== "string" || typeof provider?.request !== "function")
        return null;
    const { uuid, name, icon } = info;
    return {
        id: uuid,
        name: (typeof name === "string" && name.slice(0, NAME_MAX).trim()) || "Wallet without a name",
        icon: typeof icon === "string" && /^data:image\//i.test(icon) ? icon : null,
        provider,
    };
}
export class Connection {
    wallet;
    accounts = [];
    account = null;
    chainId = null;
    listeners;
    constructor(wallet, changed, ended) {
        this.wallet = wallet;
        this.listeners = [
            ["accountsChanged", (accounts) => {
                    const before = this.account;
                    this.share(accounts);
                    changed(this, before);
                }],
            ["chainChanged", (chainId) => {
                    this.chainId = number(chainId);
                    changed(this, this.account);
                }],
            ["disconnect", () => ended(this)],
        ];
    }
    static async open(wallet, changed, ended) {
        const connection = new Connection(wallet, changed, ended);
        for (const [event, listener] of connection.listeners)
            wallet.provider.on?.(event, listener);
        try {
            connection.share(await connection.ask("eth_requestAccounts"));
        }
        catch (error) {
            connection.leave();
            throw error;
        }
        await connection.readChain();
        return connection;
    }
    close() {
        this.leave();
        void this.ask("wallet_revokePermissions", [{ eth_accounts: {} }]).catch(() => undefined);
    }
    leave() {
        for (const [event, listener] of this.listeners)
            this.wallet.provider.removeListener?.(event, listener);
    }
    async readChain() {
        this.chainId = number(await this.ask("eth_chainId").catch(() => null));
        return this.chainId;
    }
    async sign(typedData, account) {
        const signature = await this.ask("eth_signTypedData_v4", [account, JSON.stringify(typedData)]);
        if (typeof signature !== "string")
            throw new WalletError("other", "it returned no signature");
        return signature;
    }
    async switchTo(chain) {
        const change = () => this.ask("wallet_switchEthereumChain", [{ chainId: chain.chainId }]);
        try {
            await change();
        }
        catch (error) {
            if (!(error instanceof WalletError) || error.trouble !== "unknown-chain")
                throw error;
            await this.ask("wallet_addEthereumChain", [chain]);
            if ((await this.readChain()) !== BigInt(chain.chainId))
                await change();
        }
        await this.readChain();
    }
    share(accounts) {
        this.accounts = Array.isArray(accounts) ? accounts.filter((account) => typeof account === "string") : [];
        this.account = this.accounts[0] ?? null;
    }
    async ask(method, params) {
        try {
            return await this.wallet.provider.request(params ? { method, params } : { method });
        }
        catch (error) {
            throw troubleOf(error);
        }
    }
}
function troubleOf(error) {
    const { code, message, data } = (error ?? {});
    const words = typeof message === "string" ? message : "";
    const codes = [code, data?.originalError?.code];
    const is = (...known) => codes.some((code) => known.includes(Number(code)));
    const trouble = is(4001) || /user (rejected|denied)/i.test(words) ? "refused"
        : is(4902) || /unrecognized chain|not been added|wallet_addEthereumChain/i.test(words) ? "unknown-chain"
            : is(-32002) ? "pending"
                : is(4901) || /chain ?id|active chain|active network|wrong (chain|network)/i.test(words) ? "chain"
                    : is(4100) ? "unauthorized"
                        : is(4200, -32601) ? "unsupported"
                            : "other";
    return new WalletError(trouble, words.slice(0, 200));
}
function number(chainId) {
    try {
        return typeof chainId === "string" || typeof chainId === "number" ? BigInt(chainId) : null;
    }
    catch {
        return null;
    }
}
