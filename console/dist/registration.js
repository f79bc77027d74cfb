const SERVICES_MAX = 16;
const CHARACTERS_MAX = 200;
const URL_CHARACTERS_MAX = 2_048;
export function registrationIn(uri) {
    const [, base64, data = ""] = /^data:application\/json(?:;charset=utf-?8)?(;base64)?,(.*)$/is.exec(uri) ?? [];
    try {
        const text = base64 ? new TextDecoder().decode(Uint8Array.from(atob(data), (byte) => byte.charCodeAt(0))) : decodeURIComponent(data);
        const { name, image, services } = JSON.parse(text);
        const listed = Array.isArray(services) ? services.slice(0, SERVICES_MAX) : [];
        const read = listed.map((service) => ({ name: textIn(service, "name"), endpoint: textIn(service, "endpoint") }));
        return { name: short(name), image: httpsUrl(image), services: read.filter(({ endpoint }) => endpoint !== "") };
    }
    catch {
        return null;
    }
}
function httpsUrl(value) {
    return typeof value === "string" && value.length <= URL_CHARACTERS_MAX && /^https:\/\//i.test(value) ? value : "";
}
function textIn(value, field) {
    return short(Object(value)[field]);
}
function short(value) {
    const text = typeof value === "string" ? value : "";
    return text.length > CHARACTERS_MAX ? `${text.slice(0, CHARACTERS_MAX)}…` : text;
}
