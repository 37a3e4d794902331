//! The API's document is checked against the API.

use serde_json::{Value, json};

use super::*;
use crate::client::{ApiRequest, Method};

/// What is wrong with a value, by the words of JSON Schema that the document uses. Any other word
/// is wrong too, so that none is passed over.
fn faults(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let mut check = |good: bool, word: &str| {
        if !good {
            found.push(format!("{at}: {word}"));
        }
    };
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "type" => {
                let mut types = rule
                    .as_array()
                    .map_or(vec![rule], |types| types.iter().collect());
                types.retain(|kind| is(value, kind.as_str().unwrap()));
                check(!types.is_empty(), "type");
            }
            "enum" => check(rule.as_array().unwrap().contains(value), "enum"),
            "minimum" => check(
                value.as_u64().is_none_or(|it| it >= rule.as_u64().unwrap()),
                word,
            ),
            "maxItems" | "minItems" => {
                let (most, items) = (
                    rule.as_u64().unwrap(),
                    value.as_array().unwrap().len() as u64,
                );
                check(
                    if word == "maxItems" {
                        items <= most
                    } else {
                        items >= most
                    },
                    word,
                );
            }
            "required" => {
                for key in rule.as_array().unwrap() {
                    check(
                        value.get(key.as_str().unwrap()).is_some(),
                        key.as_str().unwrap(),
                    );
                }
            }
            "additionalProperties" => {
                let keys = value.as_object().into_iter().flat_map(|it| it.keys());
                for key in keys.filter(|_| *rule == false) {
                    check(schema["properties"].get(key).is_some(), key);
                }
            }
            "pattern" | "description" | "deprecated" => {}
            "properties" | "items" | "$ref" | "oneOf" => {}
            _ => check(false, word),
        }
    }
    below(document, schema, value, at, found);
}

/// The parts of a value, and what the schema refers to.
fn below(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(key) {
            faults(document, schema, value, &format!("{at}/{key}"), found);
        }
    }
    if let (Some(schema), Some(items)) = (schema.get("items"), value.as_array()) {
        for item in items {
            faults(document, schema, item, &format!("{at}/*"), found);
        }
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(reference.trim_start_matches('#')).unwrap();
        faults(document, schema, value, at, found);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = choices.iter().filter(|schema| {
            let mut faulty = Vec::new();
            faults(document, schema, value, at, &mut faulty);
            faulty.is_empty()
        });
        if fits.count() != 1 {
            found.push(format!("{at}: oneOf"));
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => false,
    }
}

fn fits(document: &Value, schema: &Value, value: &Value) {
    let mut found = Vec::new();
    faults(document, schema, value, "", &mut found);
    assert!(found.is_empty(), "{found:?} in {value}");
}

/// What the document says that a request answers.
fn answer(document: &Value, path: &str, method: &str, status: &str) -> Value {
    let answer = &document["paths"][path][method]["responses"][status];
    let schema = &answer["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{method} {path} {status}");
    schema.clone()
}

#[test]
fn answers_are_as_the_document_says_and_every_path_of_it_is_there() {
    let daemon = Daemon::start(
        "[[network]]\nname = \"blue\"\n[[network.port]]\nvm = \"a\"\ntrunk = [1, \"2-3\"]\n\
         allowed-ips = [\"10.0.0.0/8\"]\nmac = \"52:54:00:00:00:0b\"\n",
    );
    let mut a = daemon.connect("blue/a.sock");
    daemon.until_port("a", running);
    let run = daemon.run();
    let get = |path: &str| client::get::<Value>(&run, path).unwrap();
    let document = get("/v1/openapi.json");
    for path in [
        "/v1/ports",
        "/v1/networks",
        "/v1/config",
        "/v1/messages",
        "/v1/direct",
        "/v1/spaces",
        "/v1/space-control",
        "/v1/vsock",
        "/v1/history",
        "/v1/networks/blue/fdb",
    ] {
        fits(
            &document,
            &answer(
                &document,
                &path.replace("/blue/", "/{network}/"),
                "get",
                "200",
            ),
            &get(path),
        );
    }
    a.write_all(b"F").unwrap();
    daemon.until_port("a", |port| port.quarantines == 1);
    let ports = answer(&document, "/v1/ports", "get", "200");
    fits(&document, &ports, &get("/v1/ports"));
    // A change, and a refusal.
    let keys = json!({"vm": "c"}).as_object().unwrap().clone();
    let path = "/v1/networks/blue/ports";
    let (_, changed): (u32, Value) =
        client::request(&run, ApiRequest::json(Method::POST, path, &keys)).unwrap();
    let known = "/v1/networks/{network}/ports";
    fits(
        &document,
        &answer(&document, known, "post", "200"),
        &changed,
    );
    let paths = document["paths"].as_object().unwrap().iter();
    // An answer of /v1/live has no end; the tests of the page read it.
    for (path, item) in paths.filter(|(path, _)| *path != "/v1/live") {
        let path = path.replace("{network}", "none").replace("{vm}", "none");
        for method in item
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "parameters")
        {
            let method: Method = method.to_uppercase().parse().unwrap();
            let stands = match client::text(&run, ApiRequest::without_body(method.clone(), &path)) {
                Ok(_) | Err(client::ClientError::Refused { .. }) => true,
                // A body is missing, which only a route that is there would say.
                Err(error) => {
                    !error.to_string().contains("404") && !error.to_string().contains("405")
                }
            };
            assert!(stands, "{method} {path}");
        }
    }
    daemon.stop();
}
