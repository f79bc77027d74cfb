// Requests signed by ERC-8128, the text of August 2026: HTTP message signatures (RFC 9421) of Ethereum accounts.

/** An account, smart account or wallet client of viem. */
export type ViemMessageSigner = ({ address: string } | { account: { address: string } | undefined }) & {
  // Parameters of viem depend on the client's account.
  signMessage(parameters: any): Promise<string>;
};

/** A signer of ethers 6, or a wallet provider of AgentKit. */
export interface EthersMessageSigner {
  getAddress(): string | Promise<string>;
  signMessage(message: string): Promise<string>;
}

/** Signs messages (`personal_sign`) as the agent's owner, or as the agent's own wallet where the gateway takes it. */
export type MessageSigner = ViemMessageSigner | EthersMessageSigner;

/** A request as it will be sent. Covered fields are read from `headers`. */
export interface Outgoing {
  method: string;
  url: URL;
  headers: Headers;
  body: ArrayBuffer;
}

/** The components that a signature covers, in this order. */
export interface Coverage {
  label: string;
  components: string[];
  /** Chosen by the gateway. */
  nonce?: string | undefined;
}

/** The longest that every verifier takes. */
const VALIDITY_SECONDS = 60;

/** Less binds a signature to more than one request. */
const DERIVED = ["@scheme", "@authority", "@method", "@path", "@query"];
/** Covered where they are sent. */
const FIELDS = ["x-agent-id", "content-digest", "content-type"];

const COMPONENTS_MAX = 32;
const CHALLENGE_CHARACTERS_MAX = 4096;

/** What is covered unless the gateway asks for more. */
export function coverageOf({ headers, body }: Outgoing): Coverage {
  const isSent = (name: string) => headers.has(name) || (name === "content-digest" && body.byteLength > 0);
  return { label: "request", components: [...DERIVED, ...FIELDS.filter(isSent)] };
}

const STRING = String.raw`"(?:[ !#-\[\]-~]|\\["\\])*"`;
const KEY = String.raw`[a-z*][a-z0-9_.*-]{0,63}`;
const MEMBER = new RegExp(String.raw`(${KEY})=\(((?:${STRING}| )*)\)((?:; *${KEY}(?:=(?:${STRING}|[^",; ]+))?)*)`, "g");
const PARAMETER = new RegExp(String.raw`; *(${KEY})(?:=(${STRING}|[^",; ]+))?`, "g");

/**
 * The first coverage that an `Accept-Signature` asks for, that this profile allows and that the request has. Never one that
 * binds the signature to less than {@link coverageOf} does.
 */
export function coverageAsked(challenge: string, request: Outgoing): Coverage | undefined {
  if (challenge.length > CHALLENGE_CHARACTERS_MAX) return undefined;
  const needed = coverageOf(request).components;
  for (const [, label = "", list = "", rest = ""] of challenge.matchAll(MEMBER)) {
    const components = [...list.matchAll(new RegExp(STRING, "g"))].map(([text]) => text.slice(1, -1));
    const parameters = new Map([...rest.matchAll(PARAMETER)].map(([, name = "", value]) => [name, value]));
    const nonce = parameters.get("nonce")?.slice(1, -1).replace(/\\(.)/g, "$1");
    const isOfProfile =
      parameters.get("tag") === '"erc8128"' &&
      [...parameters.keys()].every((name) => ["created", "expires", "nonce", "tag"].includes(name)) &&
      [parameters.get("created"), parameters.get("expires")].every((value) => value === undefined) &&
      /^(".*")?$/.test(parameters.get("nonce") ?? "") &&
      (nonce ?? "").length <= 128;
    const isCoverable =
      components.length <= COMPONENTS_MAX &&
      new Set(components).size === components.length &&
      needed.every((name) => components.includes(name)) &&
      components.every((name) => name === "content-digest" || DERIVED.includes(name) || isField(name, request.headers));
    if (isOfProfile && isCoverable) return { label, components, nonce };
  }
  return undefined;
}

function isField(name: string, headers: Headers): boolean {
  return /^(?!signature(-input)?$)[a-z0-9!#$%&'*+.^_`|~-]+$/.test(name) && headers.has(name);
}

/** Returns the headers that sign a request. `now` is Unix time in seconds. */
export async function signedBy(
  signer: MessageSigner,
  chainId: bigint,
  request: Outgoing,
  { label, components, nonce = freshNonce() }: Coverage,
  now: number,
): Promise<Record<string, string>> {
  const digest = components.includes("content-digest") ? await digestOf(request.body) : undefined;
  const lines = components.map((name) => {
    const value = name === "content-digest" ? digest : valueOf(name, request);
    // The text that is signed is ASCII. Another value would be a line of its own.
    if (value == null || !/^[\t -~]*$/.test(value)) throw new TypeError(`The request's ${name} can't be signed`);
    return `"${name}": ${value}`;
  });
  const keyid = `eip155:${chainId}:${(await addressOf(signer)).toLowerCase()}`;
  const list = components.map((name) => `"${name}"`).join(" ");
  const quoted = nonce.replace(/["\\]/g, "\\$&");
  const times = `created=${now};expires=${now + VALIDITY_SECONDS}`;
  const parameters = `(${list});${times};nonce="${quoted}";keyid="${keyid}";tag="erc8128"`;
  const signature = bytesOf(await sign(signer, [...lines, `"@signature-params": ${parameters}`].join("\n")));
  return {
    ...(digest === undefined ? {} : { "Content-Digest": digest }),
    "Signature-Input": `${label}=${parameters}`,
    Signature: `${label}=:${base64(signature)}:`,
  };
}

function valueOf(name: string, { method, url, headers }: Outgoing): string | null {
  switch (name) {
    case "@scheme":
      return url.protocol.slice(0, -1);
    case "@authority":
      // Without the scheme's own port, in small letters.
      return new URL(`${url.protocol}//${headers.get("host") ?? url.host}`).host;
    case "@method":
      return method;
    case "@path":
      return url.pathname;
    case "@query":
      return url.search || "?";
    default:
      return headers.get(name);
  }
}

async function addressOf(signer: MessageSigner): Promise<string> {
  const address = isOfViem(signer)
    ? "address" in signer ? signer.address : signer.account?.address
    : await signer.getAddress();
  if (!/^0x[0-9a-f]{40}$/i.test(address ?? "")) throw new TypeError("The signer has no address");
  return address as string;
}

function sign(signer: MessageSigner, message: string): Promise<string> {
  return isOfViem(signer) ? signer.signMessage({ message }) : signer.signMessage(message);
}

/** Wallets of ethers have an `address` too. Signers of ethers alone have `resolveName`. */
function isOfViem(signer: MessageSigner): signer is ViemMessageSigner {
  return !("resolveName" in signer) && ("address" in signer || "account" in signer);
}

/** 128 bits: two requests never have the same. */
function freshNonce(): string {
  const text = base64(crypto.getRandomValues(new Uint8Array(16)));
  return text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}

async function digestOf(body: ArrayBuffer): Promise<string> {
  return `sha-256=:${base64(new Uint8Array(await crypto.subtle.digest("SHA-256", body)))}:`;
}

function bytesOf(signature: string): Uint8Array {
  const hex = /^0x((?:[0-9a-f]{2})+)$/i.exec(signature.trim())?.[1];
  if (hex === undefined) throw new TypeError("The signer returned no signature in hex");
  return Uint8Array.from(hex.match(/../g) ?? [], (byte) => parseInt(byte, 16));
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}
