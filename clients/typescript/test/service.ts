// The service that the tests ask, and what they share.

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { TiergateError, type ErrorType } from "tiergate";
import { privateKeyToAccount } from "viem/accounts";

interface TestService {
  root: string;
  api: string;
  /** A service with own types for changes of keys: its API, and its listener for owners, whose address is its name. */
  named: string;
  owners: string;
  /** Its chain can't be read. */
  chainless: string;
  gateway: string;
  /** One request of an agent at once, and one at the upstream; denies other origins. */
  narrow: string;
  /** Takes requests that are signed themselves alone, and has `/one` and `/two` of `gateway`. */
  signed: string;
  /** The addresses behind `/one`, `/two` and `/plain`. */
  upstreams: [string, string, string];
  /** The address behind `/asserted`. */
  asserted: string;
  /** The issuer of assertions, the address of its keys, and the private one. */
  issuer: string;
  jwks: string;
  signing: string;
  registry: `0x${string}`;
  owner: `0x${string}`;
  stranger: `0x${string}`;
  /** Agents of tier 0, 1 and 4, each for one test. */
  unstaked: string[];
  bronze: string[];
  diamond: string[];
}

export const service = JSON.parse(process.env["TEST_SERVICE"] ?? "null") as TestService;
export const owner = privateKeyToAccount(service.owner);
export const stranger = privateKeyToAccount(service.stranger);

const taken = { unstaked: 0, bronze: 0, diamond: 0 };

/** An agent that no other test of this file uses. `file` counts the files that use agents. */
export function agent(kind: keyof typeof taken, file: number): string {
  const id = service[kind][file * 8 + taken[kind]++];
  assert.ok(id, "there are enough agents");
  return id;
}

/** Expects an error of this type, and returns it. */
export async function refused<T extends ErrorType>(call: Promise<unknown>, errorType: T): Promise<TiergateError<T>> {
  const error: unknown = await call.then(
    (answer) => assert.fail(`expected ${errorType}, got ${JSON.stringify(answer)}`),
    (error: unknown) => error,
  );
  assert.ok(error instanceof TiergateError, String(error));
  if (!error.is(errorType)) assert.fail(`expected ${errorType}, got ${error.errorType}: ${error.message}`);
  return error as TiergateError<T>;
}

export type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;

/** A server that does what the test says, with the requests that it got. */
export class Scripted {
  readonly requests: { method: string; path: string; headers: IncomingMessage["headers"]; body: string; at: number }[] = [];
  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  /** `address` is a free port of the loopback unless it is given. */
  static async start(handler: Handler, address = "127.0.0.1:0"): Promise<Scripted> {
    const [host, port] = address.split(":");
    // Clients keep connections, which a server that closes idle ones may do just when the next request is sent.
    const server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
      let body = "";
      request.on("data", (piece: Buffer) => (body += piece.toString()));
      request.on("end", () => {
        const { method = "", url = "", headers } = request;
        self.requests.push({ method, path: url, headers, body, at: performance.now() });
        handler(request, response, body);
      });
    });
    await new Promise<void>((done) => server.listen(Number(port), host, done));
    const self: Scripted = new Scripted(server, `http://${host}:${(server.address() as AddressInfo).port}`);
    return self;
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}

/** A right answer to every request. */
export const RIGHT = {
  domain: {
    name: "Service Verification",
    version: "1",
    chainId: 8004,
    verifyingContract: "0xA1393CB409E2fE5573C0840189622aA0e33947b2",
  },
  agentId: "4",
  owner: owner.address,
  trustTier: 4,
  stakedAmount: "1",
  endpointMismatch: false,
  valid: true,
  success: true,
  hasKey: true,
  apiKey: "svc_live_v1_x",
};

/** Answers with JSON. */
export function answer(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}
