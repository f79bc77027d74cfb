// Compiles the owner's page into dist/. The TypeScript client that it imports as "tiergate" is served as clients/typescript
// has it.
//
//   node console/build.mjs            writes dist/
//   node console/build.mjs --check    exits 1 if dist/ differs from a fresh compile
//
// The service embeds dist/, so building it needs no compiler of TypeScript. That comes from tools/: `npm ci --prefix tools` first.

import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL(".", import.meta.url));
const dist = join(folder, "dist");
const ts = loadCompiler();

const fresh = compile();
const stored = readStored();
if (process.argv.includes("--check")) check();
else write();

function compile() {
  const parsed = ts.getParsedCommandLineOfConfigFile(join(folder, "tsconfig.json"), {}, { ...ts.sys, onUnRecoverableConfigFileDiagnostic: report });
  const program = ts.createProgram(parsed.fileNames, parsed.options);
  const files = new Map();
  const { diagnostics } = program.emit(undefined, (path, text) => {
    const place = relative(join(dist, "console/src"), path);
    if (!place.startsWith("..")) files.set(place, withPaths(text));
  });
  const problems = [...parsed.errors, ...ts.getPreEmitDiagnostics(program), ...diagnostics];
  if (problems.length > 0) report(...problems);
  return files;
}

/** Browsers know no packages: the client stands beside the page. */
function withPaths(text) {
  return text.replaceAll(/^(import .*) from "tiergate";$/gm, '$1 from "./client/index.js";');
}

function check() {
  const names = [...new Set([...fresh.keys(), ...stored.keys()])].sort();
  const differing = names.filter((name) => fresh.get(name) !== stored.get(name));
  if (differing.length > 0) fail(`console/dist differs from a fresh compile (${differing.join(", ")}): run \`node console/build.mjs\`.`);
  console.log(`${fresh.size} files of console/dist are what the sources compile to.`);
}

function write() {
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist);
  for (const [name, text] of fresh) writeFileSync(join(dist, name), text);
  console.log(`Wrote ${fresh.size} files.`);
}

function readStored() {
  try {
    return new Map(readdirSync(dist).map((name) => [name, readFileSync(join(dist, name), "utf8")]));
  } catch (error) {
    if (error.code === "ENOENT") return new Map();
    throw error;
  }
}

function loadCompiler() {
  try {
    return createRequire(new URL("../tools/package.json", import.meta.url))("typescript");
  } catch {
    fail("The TypeScript compiler is not installed: run `npm ci --prefix tools`.");
  }
}

function report(...problems) {
  fail(ts.formatDiagnostics(problems, { getCanonicalFileName: (name) => name, getCurrentDirectory: () => folder, getNewLine: () => "\n" }));
}

function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}
