import { byId, copies, make, on, say, show, write } from "./dom.js";
import { agentsOf } from "./agents.js";
import { change, state, whenChanged } from "./state.js";
import { Connection, DEVELOPMENT, developmentWallet, discover } from "./wallet.js";
import { explain } from "./words.js";
export function startConnect() {
    const { developmentRpcUrl } = state.settings ?? {};
    const further = developmentRpcUrl ? [developmentWallet(developmentRpcUrl)] : [];
    discover((wallets) => list([...wallets, ...further]));
    on("disconnect", () => {
        state.connection?.close();
        change({ connection: null });
        say("Disconnected. The page no longer sees your account.");
        byId("wallets").querySelector("button")?.focus();
    });
    copies(byId("copy-address"), () => location.href);
    byId("wallet-accounts").addEventListener("change", () => choose(byId("wallet-accounts").value));
    whenChanged(draw);
}
function choose(account) {
    if (!state.connection?.accounts.includes(account))
        return;
    state.connection.account = account;
    change({});
}
export function chooseSample() {
    const { connection, agent } = state;
    if (connection?.wallet.id === DEVELOPMENT)
        choose(connection.accounts[Number(agent)] ?? "");
}
const items = new Map();
function list(wallets) {
    for (const wallet of wallets.filter(({ id }) => !items.has(id))) {
        const item = make("li", "", button(wallet));
        items.set(wallet.id, item);
        byId("wallets").append(item);
    }
    items.forEach((item, id) => (item.hidden = !wallets.some((wallet) => wallet.id === id)));
    const isPhone = matchMedia("(pointer: coarse)").matches;
    show(wallets.length === 0 && !isPhone, "no-wallet");
    show(wallets.length === 0 && isPhone, "no-wallet-phone");
}
function button(wallet) {
    const button = make("button", "");
    button.type = "button";
    if (wallet.icon) {
        const icon = make("img", "");
        icon.alt = "";
        icon.src = wallet.icon;
        button.append(icon);
    }
    button.append(make("span", "", wallet.name));
    button.addEventListener("click", () => void connect(wallet, button));
    return button;
}
let attempts = 0;
async function connect(wallet, button) {
    const attempt = ++attempts;
    write("wallet-problem", "");
    say(`Confirm in ${wallet.name} that this page may see your account.`);
    button.disabled = true;
    try {
        const connection = await Connection.open(wallet, (connection, before) => {
            if (state.connection !== connection)
                return;
            const { account } = connection;
            if (account !== before)
                say(account ? `The wallet's account is ${account} now.` : "The wallet shares no account any more.");
            change({});
        }, (connection) => {
            if (state.connection === connection)
                change({ connection: null });
        });
        if (attempt !== attempts)
            return connection.close();
        change({ connection });
        chooseSample();
        say("Connected. Now choose the agent.");
        byId("agent").focus();
    }
    catch (error) {
        if (attempt !== attempts)
            return;
        say("");
        write("wallet-problem", explain(error, { agent: "" }));
    }
    finally {
        button.disabled = false;
        if (attempt === attempts && state.connection === null)
            button.focus();
    }
}
let listed = null;
async function listAgents() {
    const { connection, signing } = state;
    const account = connection?.account ?? null;
    const key = connection && `${account} ${connection.chainId}`;
    if (key === listed)
        return;
    listed = key;
    show(false, "own-agents");
    if (!connection || !account || !signing)
        return;
    const agents = await agentsOf(connection, account, signing);
    if (listed !== key || agents.length === 0)
        return;
    byId("own-list").replaceChildren(...agents.map((agent) => {
        const choose = make("button", "", agent);
        choose.type = "submit";
        choose.addEventListener("click", () => (byId("agent").value = agent));
        return make("li", "", choose);
    }));
    show(true, "own-agents");
}
function draw() {
    void listAgents();
    const { connection, settings } = state;
    show(connection === null, "wallet-off");
    show(connection !== null, "wallet-on");
    if (!connection)
        return;
    write("wallet-name", connection.wallet.name);
    const { account, accounts } = connection;
    show(accounts.length < 2, "wallet-account");
    show(accounts.length > 1, "wallet-accounts");
    write("wallet-account", account ?? "none");
    const choices = byId("wallet-accounts");
    if (accounts.join() !== [...choices.options].map(({ value }) => value).join()) {
        choices.replaceChildren(...accounts.map((account) => make("option", "", account)));
    }
    choices.value = account ?? "";
    show(connection.account === null, "wallet-locked");
    const { chainId } = connection;
    const isKnown = settings?.chain && chainId === BigInt(settings.chain.chainId);
    write("wallet-chain", chainId === null ? "not told" : isKnown ? `${settings.chain.chainName} (${chainId})` : String(chainId));
}
