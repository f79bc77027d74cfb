export function byId(id) {
    const found = document.getElementById(id);
    if (!found)
        throw new Error(`index.html has no element ${id}`);
    return found;
}
export function make(tag, className, ...children) {
    const element = document.createElement(tag);
    if (className)
        element.className = className;
    element.append(...children);
    return element;
}
export function show(isShown, ...ids) {
    for (const id of ids)
        byId(id).hidden = !isShown;
}
export function write(place, text) {
    const element = typeof place === "string" ? byId(place) : place;
    if (element.textContent !== text)
        element.textContent = text;
}
export function describe(id, facts) {
    byId(id).replaceChildren(...facts.flatMap(([term, description, className]) => description === null ? [] : [make("dt", "", term), make("dd", className ?? "", description)]));
}
export function on(id, run) {
    const element = byId(id);
    element.addEventListener(element instanceof HTMLFormElement ? "submit" : "click", (event) => {
        event.preventDefault();
        void run();
    });
}
const OUTCOME_MS = 10_000;
let fading = 0;
export function say(text, isFailure = false) {
    if (byId("sign").open)
        return write("sign-wait", text);
    byId("outcome").textContent = text;
    byId("outcome").className = isFailure ? "failed" : "";
    clearTimeout(fading);
    if (isFailure)
        return;
    fading = setTimeout(() => (byId("outcome").className = "past"), OUTCOME_MS);
}
export function complain(field, problemId, problem) {
    write(problemId, problem);
    if (problem)
        field.setAttribute("aria-invalid", "true");
    else
        field.removeAttribute("aria-invalid");
}
export function copies(button, text) {
    const label = button.textContent;
    button.addEventListener("click", async () => {
        const outcome = (await copy(text(), button)) ? "Copied" : "Select and copy it by hand";
        button.textContent = outcome;
        say(`${outcome}.`, outcome !== "Copied");
        setTimeout(() => (button.textContent = label), 2_000);
    });
}
async function copy(text, beside) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    }
    catch {
        const field = make("textarea", "");
        field.value = text;
        (beside.parentElement ?? document.body).append(field);
        field.select();
        const isCopied = document.execCommand("copy");
        field.remove();
        beside.focus();
        return isCopied;
    }
}
export function countDown(untilMs, tick) {
    const look = () => {
        const left = Math.max(0, Math.ceil((untilMs - Date.now()) / 1_000));
        if (left === 0)
            clearInterval(timer);
        tick(left);
    };
    const timer = setInterval(look, 1_000);
    look();
    return () => clearInterval(timer);
}
