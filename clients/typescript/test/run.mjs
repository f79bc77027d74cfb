// Runs the tests as a user of the package would: packs it, installs it into an empty folder without network, compiles the
// tests and the examples of the README against it, and runs them with Node; and installs it from the clone by the README's own command. viem, ethers, Express and Hono come from
// tools/. TEST_SERVICE describes the service: see tests/clients/mod.rs.

import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL("./", import.meta.url));
const client = join(here, "..");
const tools = join(client, "../../tools/node_modules");
const folder = mkdtempSync(join(tmpdir(), "tiergate-typescript-"));
const app = join(folder, "app");

const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 14)) throw new Error(`Node 20.14 or later is needed, not ${process.version}`);

let status = 1;
try {
  mkdirSync(join(app, "test"), { recursive: true });
  writeFileSync(join(app, "package.json"), JSON.stringify({ name: "app", private: true, type: "module" }));
  const packed = JSON.parse(run("npm", ["pack", client, "--json", "--pack-destination", folder], app));
  // Nothing else is in the folder yet, so that a dependency would be missed.
  const quiet = ["--offline", "--no-audit", "--no-fund", "--loglevel=error"];
  run("npm", ["install", ...quiet, join(folder, packed[0].filename)], app);
  run(process.execPath, ["--input-type=module", "-e", "await import('tiergate'); await import('tiergate/server');"], app);

  // As the README prints it, from a clone whose packages are not there.
  const own = join(folder, "own");
  mkdirSync(own);
  const words = readme().match(/^npm install (.*)$/m)[1].split(" ");
  const places = { "./clients/typescript": client, jose: join(tools, "jose") };
  run("npm", ["install", ...quiet, ...words.map((word) => places[word] ?? word)], own);
  run(process.execPath, ["--input-type=module", "-e", "await import('tiergate/assertion');"], own);

  symlinkSync(tools, join(folder, "node_modules"));
  for (const name of readdirSync(here)) if (name.endsWith(".ts")) cpSync(join(here, name), join(app, "test", name));
  examples().forEach((text, at) => writeFileSync(join(app, "test", `example-${at}.ts`), `export {};\n${text}`));
  cpSync(join(here, "tsconfig.json"), join(app, "tsconfig.json"));
  run(process.execPath, [join(tools, "typescript/bin/tsc"), "-p", app], app);

  const tests = readdirSync(join(app, "test")).filter((name) => name.endsWith(".test.js"));
  // A test that fails may leave a server open.
  const options = ["--test", "--test-force-exit", "--test-reporter=spec", "--test-concurrency=4"];
  const args = [...options, ...tests.map((name) => join("test", name))];
  ({ status } = spawnSync(process.execPath, args, { cwd: app, stdio: "inherit", timeout: 900_000 }));
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(status ?? 1);

function examples() {
  return [...readme().matchAll(/^```ts\n(.*?)^```$/gms)].map(([, text]) => text);
}

function readme() {
  return readFileSync(join(client, "README.md"), "utf8");
}

function run(program, args, cwd) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd, encoding: "utf8", timeout: 300_000 });
  if (status === 0) return stdout;
  throw new Error(`${program} ${args.join(" ")}: ${error ?? ""}\n${stdout}${stderr}`);
}
