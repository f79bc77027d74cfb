//! An API with Axum that asks for tier 2: an extractor reads the gateway's headers.

use axum::extract::FromRequestParts;
use axum::http::{StatusCode, request::Parts};
use axum::{Json, Router, routing::get};
use serde_json::{Value, json};

/// The agent that the gateway admitted.
struct Agent {
    id: String,
    tier: u8,
}

impl<S: Sync> FromRequestParts<S> for Agent {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let header = |name| {
            let mut values = parts.headers.get_all(name).iter();
            let value = values.next().ok_or(StatusCode::UNAUTHORIZED)?;
            // A header that is there twice is not the gateway's.
            if values.next().is_some() {
                Err(StatusCode::UNAUTHORIZED)
            } else {
                value.to_str().map_err(|_| StatusCode::UNAUTHORIZED)
            }
        };
        let id = header("x-agent-id")?.to_owned();
        let tier = header("x-agent-tier")?.parse().map_err(|_| StatusCode::UNAUTHORIZED)?;
        if tier < 2 { Err(StatusCode::FORBIDDEN) } else { Ok(Self { id, tier }) }
    }
}

async fn forecast(agent: Agent) -> Json<Value> {
    Json(json!({ "agentId": agent.id, "trustTier": agent.tier, "weather": "sunny" }))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:9001").await?;
    axum::serve(listener, Router::new().route("/forecast", get(forecast))).await
}
