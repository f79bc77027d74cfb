import { copies, make } from "./dom.js";
import { SERVICE } from "./state.js";
export function commandsFor(operation, agent, signing) {
    const safe = signing?.contractSignatures === true
        ? [
            make("h4", "", "Safe"),
            make("p", "", "Sign the file as an off-chain message of the Safe that owns the agent, in safe-cli by sign_message --eip712_path request.json. When enough owners " +
                "have signed, paste the preparedSignature of Safe's transaction service. Have the owners ready before you take the file: they sign in time, or begin again."),
        ]
        : [make("p", "hint", "This service takes signatures of plain accounts only. For a Safe or another contract its operator has to allow them (signature.contracts).")];
    return [
        command("Foundry, with a Ledger", "cast wallet sign --data --from-file request.json --ledger"),
        command("Foundry, with a keystore", "cast wallet sign --data --from-file request.json --account NAME"),
        ...(operation === "profile" ? [] : [command("Tiergate's command line, with a key file and without this page", byCommandLine(operation, agent, signing?.keyOperations?.service))]),
        ...safe,
    ];
}
export function snippet(title, text, heading = "h4") {
    const button = make("button", "", "Copy");
    button.type = "button";
    button.setAttribute("aria-label", `Copy: ${title}`);
    copies(button, () => text);
    const pre = make("pre", "", make("code", "", text));
    pre.tabIndex = 0;
    pre.setAttribute("aria-label", title);
    pre.setAttribute("role", "region");
    return make("div", "snippet", make(heading, "", title), button, pre);
}
function byCommandLine(operation, agent, name) {
    const url = SERVICE.href.replace(/\/$/, "");
    const service = name === undefined || name === url ? url : `${url} --service-name '${name.replace(/'/g, "'\\''")}'`;
    const start = `tiergate keys ${operation} --url ${service} --agent-id ${agent} --owner-key-file owner.key`;
    return operation === "revoke" ? start : `${start} --out api.key`;
}
const command = (title, text) => snippet(title, text);
