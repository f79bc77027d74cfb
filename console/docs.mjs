// Writes the page of `GET /docs`: src/api/openapi.json for people. It runs no script and loads nothing.
//
//   node console/docs.mjs            writes src/api/docs.html, and docs.csp, the policy that the page is sent with
//   node console/docs.mjs --check    exits 1 if either differs from a fresh one
//
// Needs no package. Knows the form of OpenAPI documents only as far as ours uses it.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

/** How deep an example is built. */
const EXAMPLE_DEPTH_MAX = 8;

const api = new URL("../src/api/", import.meta.url);
const style = readFileSync(new URL("docs.css", import.meta.url), "utf8");
const document = JSON.parse(readFileSync(new URL("openapi.json", api), "utf8"), (_, value) => sorted(value));

const files = { "docs.html": page(), "docs.csp": policy() };
for (const [name, text] of Object.entries(files)) {
  const file = new URL(name, api);
  if (!process.argv.includes("--check")) writeFileSync(file, text);
  else if (readFileSync(file, "utf8") !== text) {
    console.error(`src/api/${name} differs from a fresh one: run \`node console/docs.mjs\`.`);
    process.exitCode = 1;
  }
}

/** Allows the page's own style, by its digest. */
function policy() {
  const digest = createHash("sha256").update(style).digest("base64");
  return `default-src 'none'; style-src 'sha256-${digest}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
}

function page() {
  const { info, paths, tags, components } = document;
  const operations = entries(paths).flatMap(([path, methods]) =>
    entries(methods).map(([method, operation]) => ({ heading: `${method.toUpperCase()} ${escaped(path)}`, operation })),
  );
  let contents = "";
  let sections = "";
  for (const tag of tags) {
    sections += `<h2>${escaped(tag.name)}</h2>${paragraphs(tag.description)}`;
    for (const { heading, operation } of operations.filter(({ operation }) => operation.tags[0] === tag.name)) {
      const [id, summary] = [escaped(operation.operationId), escaped(operation.summary)];
      contents += `<li><a href="#${id}"><code>${heading}</code></a> ${summary}</li>`;
      sections += `<article><h3 id="${id}"><code>${heading}</code></h3><p>${summary}</p>${operationBody(operation)}</article>`;
    }
  }
  const schemas = entries(components.schemas).map(([name, schema]) => schemaSection(name, schema));
  const title = escaped(info.title);
  return [
    `<!doctype html><html lang="en"><head><meta charset="utf-8">`,
    `<meta name="viewport" content="width=device-width, initial-scale=1"><title>${title}</title>`,
    `<link rel="icon" href="data:,"><style>${style}</style></head><body><header><h1>${title}</h1>${paragraphs(info.description)}`,
    `<p>For programs: <a href="openapi.json">openapi.json</a>.</p></header>`,
    `<nav aria-label="Operations"><ul>${contents}</ul></nav><main>${sections}`,
    `<h2>Schemas</h2>${schemas.join("")}</main></body></html>`,
  ].join("");
}

/** An operation without its heading. */
function operationBody({ description, parameters = [], requestBody, responses }) {
  const parameterRows = parameters.map((parameter) => [
    `<code>${escaped(parameter.name)}</code> in the ${parameter.in}`,
    kind(parameter.schema),
    parameter.required ? "required" : "",
    escaped(parameter.description),
  ]);
  const bodies = entries(requestBody?.content).map(
    ([type, { schema }]) => `<h4>Body, ${type}</h4><p>${kind(schema)}</p>${example(schema)}`,
  );
  const answerRows = entries(responses).map(([status, named]) => {
    const response = resolved(named);
    return [
      `<code>${escaped(status)}</code>`,
      entries(response.content).map(([, content]) => answerKinds(content.schema)).join(""),
      entries(response.headers).map(([name]) => `<code>${escaped(name)}</code>`).join(" "),
      escaped(response.description),
    ];
  });
  const examples = ["200", "201"].map((status) => {
    const schema = responses[status]?.content?.["application/json"]?.schema;
    return schema?.$ref ? `<h4>Example of ${status}</h4>${example(schema)}` : "";
  });
  return [
    paragraphs(description),
    table("Parameters", ["Name", "Type", "", "Meaning"], parameterRows),
    ...bodies,
    table("Answers", ["Status", "Body", "Headers", "Meaning"], answerRows),
    ...examples,
  ].join("");
}

/** The schemas of an answer, and the error types that they stand for. */
function answerKinds(schema) {
  const alternatives = resolved(schema).oneOf ?? [schema];
  const named = alternatives.map((alternative) => {
    const errorType = resolved(alternative).properties?.errorType?.enum?.[0];
    return kind(alternative) + (errorType ? `<br><code>${errorType}</code>` : "");
  });
  return named.join("<br>");
}

function schemaSection(name, schema) {
  const rows = fieldRows("", schema);
  const own = rows.length === 0 ? `<p>${kind(schema)}</p>` : "";
  const fields = table("", ["Field", "Type", "", "Meaning"], rows);
  const heading = `<h3 id="schema-${escaped(name)}">${escaped(name)}</h3>`;
  return `<section>${heading}${paragraphs(schema.description)}${own}${fields}${example(schema)}</section>`;
}

/** A row for each field, and for each field of a field, under its path. */
function fieldRows(path, schema) {
  return entries(schema?.properties).flatMap(([name, property]) => {
    const full = path + escaped(name);
    const required = schema.required?.includes(name) ? "required" : "";
    return [
      [`<code>${full}</code>`, kind(property), required, escaped(property.description)],
      ...fieldRows(`${full}.`, property),
      ...fieldRows(`${full}[].`, property.items),
    ];
  });
}

/** The type of a schema with its bounds, or a link to it. */
function kind(schema) {
  if (schema.$ref) {
    const name = escaped(schema.$ref.split("/").at(-1));
    return `<a href="#schema-${name}">${name}</a>`;
  }
  const values = [...(schema.enum ?? []), ...("const" in schema ? [schema.const] : [])];
  const bounds = { minimum: "at least", maximum: "at most", maxLength: "at most", maxItems: "at most" };
  const parts = [
    escaped([schema.type ?? []].flat().join(" or ")),
    (schema.oneOf ?? []).map(kind).join(" or "),
    values.map((value) => `<code>${escaped(JSON.stringify(value))}</code>`).join(" or "),
    ...Object.entries(bounds).map(([name, words]) => (name in schema ? `${words} ${schema[name]}` : "")),
    schema.pattern ? `<code>${escaped(schema.pattern)}</code>` : "",
  ];
  return parts.filter((part) => part !== "").join(", ");
}

function example(schema) {
  return `<pre tabindex="0">${escaped(JSON.stringify(instance(schema, EXAMPLE_DEPTH_MAX), null, 2))}</pre>`;
}

/** A value of a schema: its example, or one that is made of its parts. */
function instance(named, depth) {
  const schema = resolved(named);
  const given = [schema.examples?.[0], schema.const, schema.enum?.[0]].find((value) => value !== undefined);
  if (given !== undefined) return given;
  if (depth === 0) return null;
  const inner = (part) => instance(part, depth - 1);
  switch ([schema.type].flat()[0]) {
    case "object": {
      const required = entries(schema.properties).filter(([name]) => schema.required?.includes(name));
      return Object.fromEntries(required.map(([name, property]) => [name, inner(property)]));
    }
    case "array":
      return [inner(schema.items)];
    case "integer":
    case "number":
      return schema.minimum ?? 1;
    case "boolean":
      return true;
    case "string":
      return "...";
    default:
      return schema.oneOf ? inner(schema.oneOf[0]) : null;
  }
}

/** Follows a local reference; gives the value itself if it is none. */
function resolved(value) {
  if (!value.$ref) return value;
  return value.$ref.split("/").slice(1).reduce((part, name) => part[name], document);
}

/** A table under a heading; nothing without rows. */
function table(heading, columns, rows) {
  if (rows.length === 0) return "";
  const title = heading && `<h4>${heading}</h4>`;
  const head = columns.map((column) => `<th scope="col">${column}</th>`).join("");
  const body = rows.map((cells) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`).join("");
  return `${title}<div tabindex="0"><table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`;
}

function paragraphs(text = "") {
  return text.split("\n\n").filter((part) => part !== "").map((part) => `<p>${escaped(part)}</p>`).join("");
}

/** Texts of the document are shown as text. */
function escaped(text = "") {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

function entries(object = {}) {
  return Object.entries(object);
}

/** The same value; the fields of an object are sorted by name. */
function sorted(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}
