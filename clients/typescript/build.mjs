// Makes what is made of other files: src/openapi.ts of the API's description, and dist/ of src/.
//
//   node clients/typescript/build.mjs            writes them
//   node clients/typescript/build.mjs --check    exits 1 if they differ from a fresh build
//
// openapi-typescript and the compiler come from tools/: `npm ci --prefix tools` first.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL("./", import.meta.url));
const root = join(here, "../..");

const types = typesOfDescription();
if (process.argv.includes("--check")) {
  const fresh = mkdtempSync(join(tmpdir(), "tiergate-client-"));
  try {
    compile(fresh);
    const stale = differing(fresh, join(here, "dist"));
    if (readFileSync(join(here, "src/openapi.ts"), "utf8") !== types) stale.push("src/openapi.ts");
    if (stale.length > 0) fail(`Not what a fresh build writes: ${stale.join(", ")}. Run node clients/typescript/build.mjs.`);
  } finally {
    rmSync(fresh, { recursive: true });
  }
} else {
  writeFileSync(join(here, "src/openapi.ts"), types);
  rmSync(join(here, "dist"), { recursive: true, force: true });
  compile(join(here, "dist"));
}

function typesOfDescription() {
  const text = run("openapi-typescript/bin/cli.js", join(root, "src/api/openapi.json"));
  return `// Made of src/api/openapi.json by build.mjs.\n\n${text}`;
}

function compile(outDir) {
  run("typescript/bin/tsc", "-p", here, "--outDir", outDir);
}

function run(program, ...args) {
  const file = join(root, "tools/node_modules", program);
  const { status, stdout, stderr } = spawnSync(process.execPath, [file, ...args], { encoding: "utf8" });
  if (status !== 0) fail(stdout + stderr);
  return stdout;
}

function differing(one, other) {
  const names = new Set([...readdirSync(one), ...readdirSync(other)]);
  const read = (folder, name) => {
    try {
      return readFileSync(join(folder, name), "utf8");
    } catch {
      return undefined;
    }
  };
  return [...names].filter((name) => read(one, name) !== read(other, name)).map((name) => `dist/${name}`);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
