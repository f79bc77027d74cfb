// An agent's registration file (ERC-8004), where it stands in the metadata URI itself. Others are not fetched.

/** What an agent says of itself. */
export interface Registration {
  name: string;
  /** An address by HTTPS, or empty. */
  image: string;
  services: { name: string; endpoint: string }[];
}

const SERVICES_MAX = 16;
const CHARACTERS_MAX = 200;
const URL_CHARACTERS_MAX = 2_048;

/** Returns the registration in a `data:` URI, or `null`: the author of the text may be anybody. */
export function registrationIn(uri: string): Registration | null {
  const [, base64, data = ""] = /^data:application\/json(?:;charset=utf-?8)?(;base64)?,(.*)$/is.exec(uri) ?? [];
  try {
    const text = base64 ? new TextDecoder().decode(Uint8Array.from(atob(data), (byte) => byte.charCodeAt(0))) : decodeURIComponent(data);
    const { name, image, services } = JSON.parse(text) as Record<string, unknown>;
    const listed = Array.isArray(services) ? (services as unknown[]).slice(0, SERVICES_MAX) : [];
    const read = listed.map((service) => ({ name: textIn(service, "name"), endpoint: textIn(service, "endpoint") }));
    return { name: short(name), image: httpsUrl(image), services: read.filter(({ endpoint }) => endpoint !== "") };
  } catch {
    return null;
  }
}

function httpsUrl(value: unknown): string {
  return typeof value === "string" && value.length <= URL_CHARACTERS_MAX && /^https:\/\//i.test(value) ? value : "";
}

function textIn(value: unknown, field: string): string {
  return short((Object(value) as Record<string, unknown>)[field]);
}

function short(value: unknown): string {
  const text = typeof value === "string" ? value : "";
  return text.length > CHARACTERS_MAX ? `${text.slice(0, CHARACTERS_MAX)}…` : text;
}
