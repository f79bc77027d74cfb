import { byId, copies, on, say, show, write } from "./dom.js";
import { sign } from "./sign.js";
import { change, learn, state, whenChanged } from "./state.js";
let rest = null;
export function startKeys() {
    on("generate", () => make("generate"));
    on("rotate", () => make("rotate"));
    on("revoke", revoke);
    on("stored", () => {
        forget();
        say("The page has forgotten the key. Now send the first request with it.");
        byId("try-key").focus();
    });
    copies(byId("copy-key"), () => state.issued?.key ?? "");
    whenChanged(draw);
    window.addEventListener("pagehide", forget);
    window.addEventListener("beforeunload", (event) => {
        if (state.issued)
            event.preventDefault();
    });
}
async function make(operation) {
    const { agent, issued: unstored } = state;
    if (agent === null)
        return;
    if (unstored) {
        say(`First store the key of agent ${unstored.agent}, and say so here: nobody can show it again.`);
        byId("stored").focus();
        return;
    }
    const declaredEndpoint = byId("endpoint").value.trim();
    const issued = await sign(operation, agent, declaredEndpoint ? { declaredEndpoint } : {});
    if (!issued)
        return;
    keepRest(agent, issued);
    change({ issued: { agent, key: issued.apiKey } });
    learn(agent, { hasKey: true });
    say(operation === "rotate" ? "The key is replaced: the old one no longer works. Copy the new one now." : "The key is made. Copy it now: it is shown only once.");
    byId("h-shown").focus();
}
async function revoke() {
    const { agent } = state;
    if (agent === null)
        return;
    const revoked = await sign("revoke", agent);
    if (!revoked)
        return;
    keepRest(agent, revoked);
    if (state.issued?.agent === agent)
        forget();
    learn(agent, { hasKey: false });
    say(`The key of agent ${agent} is revoked. It is refused from now on.`);
    byId("generate").focus();
}
function keepRest(agent, { rateLimit }) {
    const text = rateLimit ? `${rateLimit.remaining} of ${rateLimit.limit} key operations are left this hour.` : "";
    rest = { agent, text };
}
function forget() {
    change({ issued: null });
}
function draw() {
    const { agent, hasKey, issued } = state;
    show(agent === null, "key-first");
    show(agent !== null, "key-actions");
    show(issued !== null, "key-shown");
    write("h-shown", issued ? `The key of agent ${issued.agent}` : "");
    byId("key").value = issued?.key ?? "";
    show(!hasKey, "generate");
    show(hasKey, "rotate", "revoke");
    write("key-rest", rest?.agent === agent ? rest.text : "");
    write("key-words", hasKey
        ? `Agent ${agent} has a key. If it is lost, replace it: the old one stops working at once. Revoke it to leave the agent without a key.`
        : `Agent ${agent} has no key. Make one, and programs can act as this agent with it.`);
}
