// The owner's page. Everything is in memory, nothing is stored, and only this service is asked, but for the gateway when the
// owner tries a request there.

import { startAgent } from "./agent.js";
import { startConnect } from "./connect.js";
import { say, show, write } from "./dom.js";
import { startFirst } from "./first.js";
import { startKeys } from "./keys.js";
import { startSign } from "./sign.js";
import { change, service, state, type Settings } from "./state.js";
import { explain } from "./words.js";

try {
  const answer = await fetch("console/settings.json");
  if (!answer.ok) throw new Error(`settings.json: status ${answer.status}`);
  const [settings, signing] = [(await answer.json()) as Settings, await service.signing()];
  Object.assign(state, { settings, signing });
  write("title", settings.title);
  if (settings.images) write("loads", "loads nothing from elsewhere but an agent's own image");
  document.title = `Agent keys – ${settings.title}`;
  startConnect();
  startSign();
  startKeys();
  startFirst();
  change({});
  startAgent();
} catch (error) {
  say(explain(error, { agent: "" }), true);
}
show(false, "unloaded");
