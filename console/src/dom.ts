// Finding, making and filling elements. Texts are set as text and never read as HTML: they may come from a chain or a wallet.

/** Returns an element of index.html. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no element ${id}`);
  return found as T;
}

type Child = Node | string;

/** Makes an element with a class, if one is given. */
export function make<K extends keyof HTMLElementTagNameMap>(tag: K, className: string, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Shows or hides elements of index.html. */
export function show(isShown: boolean, ...ids: string[]): void {
  for (const id of ids) byId(id).hidden = !isShown;
}

/** Sets the text of an element. Equal texts are left alone, so that screen readers don't say them again. */
export function write(place: string | HTMLElement, text: string): void {
  const element = typeof place === "string" ? byId(place) : place;
  if (element.textContent !== text) element.textContent = text;
}

/** Fills a list of terms and descriptions. Descriptions of `null` are left out. */
export function describe(id: string, facts: [term: string, description: Child | null, className?: string][]): void {
  byId(id).replaceChildren(
    ...facts.flatMap(([term, description, className]) =>
      description === null ? [] : [make("dt", "", term), make("dd", className ?? "", description)],
    ),
  );
}

/** Runs something on a click, or on the submission of a form. */
export function on(id: string, run: () => unknown): void {
  const element = byId(id);
  element.addEventListener(element instanceof HTMLFormElement ? "submit" : "click", (event) => {
    event.preventDefault();
    void run();
  });
}

/** How long an outcome stays in sight. The page itself shows the same. */
const OUTCOME_MS = 10_000;
let fading = 0;

/**
 * Says how something ended, also to screen readers: in the dialog if it is open, since it covers the page. A failure stays in
 * sight.
 */
export function say(text: string, isFailure = false): void {
  if (byId<HTMLDialogElement>("sign").open) return write("sign-wait", text);
  // Replaced also by the same text: it happened again.
  byId("outcome").textContent = text;
  byId("outcome").className = isFailure ? "failed" : "";
  clearTimeout(fading);
  if (isFailure) return;
  fading = setTimeout(() => (byId("outcome").className = "past"), OUTCOME_MS);
}

/** Marks a field as wrong and says why, or as right with an empty text. */
export function complain(field: HTMLElement, problemId: string, problem: string): void {
  write(problemId, problem);
  if (problem) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
}

/** Makes a button copy a text. Its label says so for two seconds. */
export function copies(button: HTMLButtonElement, text: () => string): void {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const outcome = (await copy(text(), button)) ? "Copied" : "Select and copy it by hand";
    button.textContent = outcome;
    say(`${outcome}.`, outcome !== "Copied");
    setTimeout(() => (button.textContent = label), 2_000);
  });
}

/** Copies a text. Pages that were not loaded over TLS have no clipboard of their own; there the browser copies a selection. */
async function copy(text: string, beside: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", "");
    field.value = text;
    // A modal dialog takes no focus outside of itself.
    (beside.parentElement ?? document.body).append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    beside.focus();
    return isCopied;
  }
}

/** Calls `tick` now and each second with the seconds left, at last with 0. Returns what stops it. */
export function countDown(untilMs: number, tick: (secondsLeft: number) => void): () => void {
  const look = () => {
    const left = Math.max(0, Math.ceil((untilMs - Date.now()) / 1_000));
    if (left === 0) clearInterval(timer);
    tick(left);
  };
  const timer = setInterval(look, 1_000);
  look();
  return () => clearInterval(timer);
}
