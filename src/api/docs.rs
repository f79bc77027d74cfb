//! `GET /docs`: `openapi.json` as a page for people, which runs no script and loads nothing.
//!
//! Knows the form of OpenAPI documents only as far as ours uses it.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::wire::answers::{Answer, text};
use crate::wire::pages::guarded;

/// The machine-readable description of this API.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// Stands in the page itself; the policy names its digest.
const STYLE: &str = include_str!("docs.css");

/// How deep an example is built.
const EXAMPLE_DEPTH_MAX: usize = 8;

static PAGE: LazyLock<(String, HeaderValue)> = LazyLock::new(|| {
    let digest = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    // A policy that could not be sent would be none: then the page has no style.
    let strict = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    let document = Document(serde_json::from_str(OPENAPI).unwrap_or_default());
    (document.page(), HeaderValue::from_str(&policy).unwrap_or(strict))
});

/// The page.
pub(super) fn answer() -> Answer {
    let (page, policy) = &*PAGE;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    guarded(text(StatusCode::OK, HeaderMap::new(), kind, page.clone().into()), policy.clone())
}

/// An OpenAPI document.
struct Document(Value);

impl Document {
    fn page(&self) -> String {
        let info = at(&self.0, "/info");
        let operations: Vec<(String, &Value)> =
            fields(at(&self.0, "/paths")).flat_map(|(path, methods)| of_path(path, methods)).collect();
        let mut contents = String::new();
        let mut sections = String::new();
        for tag in at(&self.0, "/tags").as_array().into_iter().flatten() {
            let name = string(tag, "name");
            let own = operations.iter().filter(|(_, operation)| string(at(operation, "/tags"), 0) == name);
            sections += &format!("<h2>{}</h2>{}", escaped(name), paragraphs(string(tag, "description")));
            for (heading, operation) in own {
                let id = escaped(string(operation, "operationId"));
                let summary = escaped(string(operation, "summary"));
                contents += &format!("<li><a href=\"#{id}\"><code>{heading}</code></a> {summary}</li>");
                sections += &format!("<article><h3 id=\"{id}\"><code>{heading}</code></h3><p>{summary}</p>");
                sections += &format!("{}</article>", self.operation(operation));
            }
        }
        let schemas: String = fields(at(&self.0, "/components/schemas"))
            .map(|(name, schema)| self.schema(name, schema))
            .collect();
        let title = escaped(string(info, "title"));
        format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
             <link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head><body><header><h1>{title}</h1>{}\
             <p>For programs: <a href=\"openapi.json\">openapi.json</a>.</p></header>\
             <nav aria-label=\"Operations\"><ul>{contents}</ul></nav><main>{sections}\
             <h2>Schemas</h2>{schemas}</main></body></html>",
            paragraphs(string(info, "description")),
        )
    }

    /// An operation without its heading.
    fn operation(&self, operation: &Value) -> String {
        let mut html = paragraphs(string(operation, "description"));
        let parameters = at(operation, "/parameters").as_array().into_iter().flatten();
        let rows = parameters.map(|parameter| {
            let schema = at(parameter, "/schema");
            let name = format!(
                "<code>{}</code> in the {}",
                escaped(string(parameter, "name")),
                string(parameter, "in")
            );
            [
                name,
                kind(schema),
                required(at(parameter, "/required") == true),
                escaped(string(parameter, "description")),
            ]
        });
        html += &table("Parameters", ["Name", "Type", "", "Meaning"], rows);
        for (kind_of_body, content) in fields(at(operation, "/requestBody/content")) {
            let schema = at(content, "/schema");
            html += &format!("<h4>Body, {kind_of_body}</h4><p>{}</p>{}", kind(schema), self.example(schema));
        }
        let rows = fields(at(operation, "/responses")).map(|(status, response)| {
            let response = self.resolved(response);
            let bodies = fields(at(response, "/content"))
                .map(|(_, content)| self.answer_kinds(at(content, "/schema")));
            let headers: Vec<String> = fields(at(response, "/headers"))
                .map(|(name, _)| format!("<code>{}</code>", escaped(name)))
                .collect();
            let description = escaped(string(response, "description"));
            [format!("<code>{}</code>", escaped(status)), bodies.collect(), headers.join(" "), description]
        });
        html += &table("Answers", ["Status", "Body", "Headers", "Meaning"], rows);
        for status in ["200", "201"] {
            let content = at(operation, &format!("/responses/{status}/content/application~1json/schema"));
            if content.get("$ref").is_some() {
                html += &format!("<h4>Example of {status}</h4>{}", self.example(content));
            }
        }
        html
    }

    /// The schemas of an answer, and the error types that they stand for.
    fn answer_kinds(&self, schema: &Value) -> String {
        let alternatives = at(self.resolved(schema), "/oneOf")
            .as_array()
            .map_or(std::slice::from_ref(schema), Vec::as_slice);
        let named = alternatives.iter().map(|alternative| {
            let error_type = string(at(self.resolved(alternative), "/properties/errorType/enum"), 0);
            let code =
                if error_type.is_empty() { String::new() } else { format!("<br><code>{error_type}</code>") };
            format!("{}{code}", kind(alternative))
        });
        named.collect::<Vec<_>>().join("<br>")
    }

    fn schema(&self, name: &str, schema: &Value) -> String {
        let name = escaped(name);
        let mut rows = Vec::new();
        properties(&mut rows, "", schema);
        let own = if rows.is_empty() { format!("<p>{}</p>", kind(schema)) } else { String::new() };
        let description = paragraphs(string(schema, "description"));
        let table = table("", ["Field", "Type", "", "Meaning"], rows.into_iter());
        format!(
            "<section><h3 id=\"schema-{name}\">{name}</h3>{description}{own}{table}{}</section>",
            self.example(schema)
        )
    }

    /// Follows a local reference; gives the value itself if it is none.
    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let pointer = string(value, "$ref").strip_prefix('#');
        pointer.map_or(value, |pointer| at(&self.0, pointer))
    }

    fn example(&self, schema: &Value) -> String {
        let example =
            serde_json::to_string_pretty(&self.instance(schema, EXAMPLE_DEPTH_MAX)).unwrap_or_default();
        format!("<pre tabindex=\"0\">{}</pre>", escaped(&example))
    }

    /// A value of a schema: its example, or one that is made of its parts.
    fn instance(&self, schema: &Value, depth: usize) -> Value {
        let schema = self.resolved(schema);
        let given = ["/examples/0", "/const", "/enum/0"].iter().find_map(|path| schema.pointer(path));
        if let Some(value) = given {
            return value.clone();
        }
        let inner = |schema: &Value| self.instance(schema, depth.saturating_sub(1));
        let kind = schema.get("type").and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
        match kind {
            _ if depth == 0 => Value::Null,
            Some("object") => {
                let required =
                    fields(at(schema, "/properties")).filter(|(name, _)| is_required(schema, name));
                let filled = required.map(|(name, schema)| (name.clone(), inner(schema)));
                Value::Object(filled.collect::<Map<_, _>>())
            }
            Some("array") => Value::Array(vec![inner(at(schema, "/items"))]),
            Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(Value::from(1)),
            Some("boolean") => Value::Bool(true),
            Some("string") => Value::from("..."),
            _ => schema.pointer("/oneOf/0").map_or(Value::Null, inner),
        }
    }
}

/// The operations of a path, each under its method and path.
fn of_path<'a>(path: &str, methods: &'a Value) -> Vec<(String, &'a Value)> {
    let heading = |method: &str| format!("{} {}", method.to_uppercase(), escaped(path));
    fields(methods).map(|(method, operation)| (heading(method), operation)).collect()
}

/// A row for each field, and for each field of a field, under its path.
fn properties(rows: &mut Vec<[String; 4]>, path: &str, schema: &Value) {
    for (name, property) in fields(at(schema, "/properties")) {
        let full = format!("{path}{}", escaped(name));
        let description = escaped(string(property, "description"));
        rows.push([
            format!("<code>{full}</code>"),
            kind(property),
            required(is_required(schema, name)),
            description,
        ]);
        properties(rows, &format!("{full}."), property);
        properties(rows, &format!("{full}[]."), at(property, "/items"));
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    at(schema, "/required").as_array().is_some_and(|required| required.iter().any(|other| other == name))
}

fn required(is_required: bool) -> String {
    if is_required { "required" } else { "" }.to_owned()
}

/// The type of a schema with its bounds, or a link to it.
fn kind(schema: &Value) -> String {
    if let Some(name) = string(schema, "$ref").rsplit('/').next().filter(|name| !name.is_empty()) {
        return format!("<a href=\"#schema-{name}\">{name}</a>", name = escaped(name));
    }
    let words = |value: &Value| {
        let one = std::slice::from_ref(value);
        let all = value.as_array().map_or(one, Vec::as_slice);
        all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")
    };
    let alternatives: Vec<String> = at(schema, "/oneOf").as_array().into_iter().flatten().map(kind).collect();
    let mut parts = vec![escaped(&words(at(schema, "/type"))), alternatives.join(" or ")];
    let values = at(schema, "/enum").as_array().into_iter().flatten().chain(schema.get("const"));
    let values: Vec<String> =
        values.map(|value| format!("<code>{}</code>", escaped(&value.to_string()))).collect();
    parts.push(values.join(" or "));
    for (name, word) in
        [("minimum", "at least"), ("maximum", "at most"), ("maxLength", "at most"), ("maxItems", "at most")]
    {
        parts.extend(schema.get(name).map(|bound| format!("{word} {bound}")));
    }
    parts.extend(
        schema.get("pattern").map(|_| format!("<code>{}</code>", escaped(string(schema, "pattern")))),
    );
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// A table under a heading; nothing without rows.
fn table(heading: &str, columns: [&str; 4], rows: impl Iterator<Item = [String; 4]>) -> String {
    let rows: String = rows
        .map(|cells| format!("<tr>{}</tr>", cells.map(|cell| format!("<td>{cell}</td>")).concat()))
        .collect();
    if rows.is_empty() {
        return rows;
    }
    let heading = if heading.is_empty() { String::new() } else { format!("<h4>{heading}</h4>") };
    let columns = columns.map(|column| format!("<th scope=\"col\">{column}</th>")).concat();
    format!(
        "{heading}<div tabindex=\"0\"><table><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn paragraphs(text: &str) -> String {
    text.split("\n\n")
        .filter(|part| !part.is_empty())
        .map(|part| format!("<p>{}</p>", escaped(part)))
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The value at a JSON pointer, or null.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The text under a name or number, or nothing.
fn string(value: &Value, name: impl serde_json::value::Index) -> &str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Document, OPENAPI, PAGE, at, fields};
    use crate::api::routes::ENDPOINTS;

    #[test]
    fn the_page_has_every_operation_schema_and_error_type() {
        let (page, _) = &*PAGE;
        for endpoint in ENDPOINTS {
            assert!(page.contains(&format!("<code>{} {}</code></h3>", endpoint.method(), endpoint.path())));
        }
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        for (name, schema) in fields(at(&document, "/components/schemas")) {
            assert!(page.contains(&format!("<h3 id=\"schema-{name}\">")), "{name}");
            if let Some(error_type) = at(schema, "/properties/errorType/enum/0").as_str() {
                assert!(page.contains(&format!("<br><code>{error_type}</code>")), "{error_type}");
            }
        }
        for part in
            ["agentId</code> in the query", "X-RateLimit-Remaining", "Example of 201", "&quot;apiKey&quot;"]
        {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn texts_of_the_document_are_shown_as_text() {
        let mut document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        document["info"]["title"] = "<script>1</script>".into();
        document["components"]["schemas"]["Tier"]["description"] = "<b>\"bold\"</b>".into();
        let page = Document(document).page();
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        assert!(page.contains("&lt;b&gt;&quot;bold&quot;&lt;/b&gt;"), "{page}");
    }
}
