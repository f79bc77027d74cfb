// Compiles every contract of this folder, of test/ and of erc8004/ into artifacts/<Name>.json.
//
//   node contracts/compile.mjs            writes the artifacts
//   node contracts/compile.mjs --check    exits 1 if they differ from a fresh compile
//
// The compiler and OpenZeppelin's contracts come from tools/: `npm ci --prefix tools` first.

import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const SOLC_VERSION = "0.8.37";
// Events and answers of ERC-8004 have more fields than the stack has places, but for the newer code generator.
const SETS = [
  { folders: ["", "test/"], viaIR: false },
  { folders: ["erc8004/"], viaIR: true },
];
const contracts = new URL("./", import.meta.url);
const artifacts = new URL("artifacts/", contracts);

const solc = loadCompiler();
const fresh = new Map(SETS.flatMap((set) => [...compile(solc, set)]));
const stored = readStored();
if (process.argv.includes("--check")) check();
else write();

function check() {
  const names = [...new Set([...fresh.keys(), ...stored.keys()])].sort();
  const differing = names.filter((name) => fresh.get(name) !== stored.get(name));
  if (differing.length > 0) {
    fail(`The artifacts differ from a fresh compile (${differing.join(", ")}): run \`node contracts/compile.mjs\`.`);
  }
  console.log(`${fresh.size} artifacts are what the sources compile to.`);
}

function write() {
  mkdirSync(artifacts, { recursive: true });
  for (const file of stored.keys()) if (!fresh.has(file)) rmSync(new URL(file, artifacts));
  for (const [file, text] of fresh) writeFileSync(new URL(file, artifacts), text);
  console.log(`Wrote ${fresh.size} artifacts.`);
}

function loadCompiler() {
  const require = createRequire(new URL("../tools/package.json", contracts));
  let solc;
  try {
    solc = require("solc");
  } catch {
    fail("The Solidity compiler is not installed: run `npm ci --prefix tools`.");
  }
  if (!solc.version().startsWith(`${SOLC_VERSION}+`)) {
    fail(`The artifacts are made by solc ${SOLC_VERSION}, but ${solc.version()} is installed: run \`npm ci --prefix tools\`.`);
  }
  return solc;
}

function readSources(folders) {
  const sources = {};
  for (const folder of folders) {
    for (const file of filesIn(new URL(folder, contracts), ".sol")) {
      sources[folder + file] = { content: readFileSync(new URL(folder + file, contracts), "utf8") };
    }
  }
  return sources;
}

function compile(solc, { folders, viaIR }) {
  const sources = readSources(folders);
  const output = JSON.parse(
    solc.compile(
      JSON.stringify({
        language: "Solidity",
        sources,
        settings: {
          optimizer: { enabled: true, runs: 200 },
          viaIR,
          evmVersion: "paris",
          metadata: { bytecodeHash: "none" },
          outputSelection: { "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } },
        },
      }),
      { import: readPackage },
    ),
  );
  // Warnings about a package's source are for its authors.
  const isOurs = ({ severity, sourceLocation }) => severity === "error" || sourceLocation?.file in sources;
  const errors = (output.errors ?? []).filter(isOurs);
  if (errors.length > 0) fail(errors.map((error) => error.formattedMessage).join("\n"));

  const texts = new Map();
  for (const [path, unit] of Object.entries(output.contracts)) {
    if (!(path in sources)) continue; // of a package
    for (const [contractName, { abi, evm }] of Object.entries(unit)) {
      const bytecode = evm.bytecode.object;
      if (bytecode === "") continue; // an interface or abstract
      const artifact = {
        contractName,
        abi,
        bytecode: `0x${bytecode}`,
        deployedBytecode: `0x${evm.deployedBytecode.object}`,
      };
      texts.set(`${contractName}.json`, `${JSON.stringify(artifact, null, 2)}\n`);
    }
  }
  return texts;
}

function readPackage(path) {
  try {
    return { contents: readFileSync(new URL(`../tools/node_modules/${path}`, contracts), "utf8") };
  } catch (error) {
    return { error: error.message };
  }
}

function readStored() {
  return new Map(filesIn(artifacts, ".json").map((file) => [file, readFileSync(new URL(file, artifacts), "utf8")]));
}

function filesIn(folder, ending) {
  try {
    return readdirSync(folder).filter((file) => file.endsWith(ending)).sort();
  } catch (error) {
    if (error.code === "ENOENT") return [];
    fail(`Cannot read ${fileURLToPath(folder)}: ${error.message}`);
  }
}

function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}
