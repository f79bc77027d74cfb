// How to sign a request without a wallet of the browser.

import { copies, make } from "./dom.js";
import type { Signing } from "tiergate";
import { SERVICE, type Asked } from "./state.js";

/** Ways to sign the file, as commands to copy and words. */
export function commandsFor(operation: Asked, agent: string, signing: Signing | null): Node[] {
  const safe = signing?.contractSignatures === true
    ? [
        make("h4", "", "Safe"),
        make(
          "p",
          "",
          "Sign the file as an off-chain message of the Safe that owns the agent, in safe-cli by sign_message --eip712_path request.json. When enough owners " +
            "have signed, paste the preparedSignature of Safe's transaction service. Have the owners ready before you take the file: they sign in time, or begin again.",
        ),
      ]
    : [make("p", "hint", "This service takes signatures of plain accounts only. For a Safe or another contract its operator has to allow them (signature.contracts).")];
  return [
    command("Foundry, with a Ledger", "cast wallet sign --data --from-file request.json --ledger"),
    command("Foundry, with a keystore", "cast wallet sign --data --from-file request.json --account NAME"),
    ...(operation === "profile" ? [] : [command("Tiergate's command line, with a key file and without this page", byCommandLine(operation, agent, signing?.keyOperations?.service))]),
    ...safe,
  ];
}

/** A titled text with a button that copies it. */
export function snippet(title: string, text: string, heading: "h3" | "h4" = "h4"): HTMLElement {
  const button = make("button", "", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy: ${title}`);
  copies(button, () => text);
  const pre = make("pre", "", make("code", "", text));
  // It may scroll, and keyboards scroll what they can focus.
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", title);
  pre.setAttribute("role", "region");
  return make("div", "snippet", make(heading, "", title), button, pre);
}

/** It signs and sends by itself; this page sees nothing of it. */
function byCommandLine(operation: Exclude<Asked, "profile">, agent: string, name: string | undefined): string {
  const url = SERVICE.href.replace(/\/$/, "");
  const service = name === undefined || name === url ? url : `${url} --service-name '${name.replace(/'/g, "'\\''")}'`;
  const start = `tiergate keys ${operation} --url ${service} --agent-id ${agent} --owner-key-file owner.key`;
  return operation === "revoke" ? start : `${start} --out api.key`;
}

const command = (title: string, text: string) => snippet(title, text);
