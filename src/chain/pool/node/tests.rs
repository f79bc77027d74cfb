//! Errors as nodes and providers write them.

use alloy::rpc::json_rpc::ErrorPayload;

use super::judge;

/// Codes and texts as providers have been seen to write them.
#[test]
fn errors_are_judged_by_their_text_where_codes_collide_and_those_of_logs_first() {
    const RATE: &str = "rate_limited";
    const BLOCK: &str = "no_block";
    const OTHER: &str = "node_error";
    // Code, text, what it is about where logs are asked for, and what else.
    for (code, text, logs, others) in [
        (429, "Your app has exceeded its compute units per second capacity", RATE, RATE),
        (429, "Too many requests", RATE, RATE),
        (-32_005, "daily request count exceeded, request rate limited", RATE, RATE),
        (-32_005, "Too Many Requests", RATE, RATE),
        (-32_005, "query returned more than 10000 results. Try with this block range", OTHER, RATE),
        (-32_005, "Requested range exceeds maximum RPC range limit", OTHER, RATE),
        (-32_005, "limit exceeded", OTHER, RATE),
        (-32_007, "15/second request limit reached - reduce calls per second", RATE, RATE),
        (-32_009, "1000/minute request limit reached", RATE, RATE),
        (-32_012, "API credits limit reached", RATE, RATE),
        (-32_012, "backend is over capacity", RATE, RATE),
        (-32_012, "block range is too wide", OTHER, OTHER),
        (-32_016, "over rate limit", RATE, RATE),
        (-32_016, "Request was canceled due to enabled timeout.", OTHER, OTHER),
        (-32_016, "unauthorized", OTHER, OTHER),
        (-32_024, "sender is over rate limit", RATE, RATE),
        (-32_029, "Rate limit hit", RATE, RATE),
        (-32_055, "no node is available, try again", RATE, RATE),
        (15, "Too many requests", RATE, RATE),
        (31, "Batch of more than 3 requests are not allowed on free tier", OTHER, OTHER),
        (35, "ranges over 10000 blocks are not supported on free tier", OTHER, OTHER),
        (12, "no route", OTHER, OTHER),
        (-32_014, "too many RPC calls in batch request", OTHER, OTHER),
        (-32_011, "no backends available for method", OTHER, OTHER),
        (-32_020, "backend response too large", OTHER, OTHER),
        (
            -32_600,
            "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range.",
            OTHER,
            OTHER,
        ),
        (-32_600, "batch too large", OTHER, OTHER),
        (
            -32_602,
            "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range",
            OTHER,
            OTHER,
        ),
        (-32_602, "Block range limit exceeded.", OTHER, OTHER),
        (-32_602, "block range extends beyond current head block", BLOCK, BLOCK),
        (-32_602, "invalid block range params: beyond current head block", BLOCK, BLOCK),
        (-32_602, "Block with such an ID doesn't exist yet", BLOCK, BLOCK),
        (-32_602, "Block requested not found", BLOCK, BLOCK),
        (-32_614, "eth_getLogs is limited to a 10,000 range", OTHER, OTHER),
        (-32_615, "eth_getLogs is limited to a 5 range", OTHER, OTHER),
        (-32_047, "Invalid eth_getLogs request. range too large. Max range: 800", OTHER, OTHER),
        (-32_062, "Block range is too large", OTHER, OTHER),
        (-32_701, "Please specify an address in your request", OTHER, OTHER),
        (-32_000, "requested too many blocks from 0 to 16777216, maximum is set to 2048", OTHER, OTHER),
        (-32_000, "logs matched by query exceeds limit of 10000", OTHER, OTHER),
        (-32_000, "header not found", BLOCK, BLOCK),
        (-32_000, "unknown block", BLOCK, BLOCK),
        (-32_000, "header for hash not found", BLOCK, BLOCK),
        (-32_000, "Block gas limit exceeded", OTHER, OTHER),
        (-32_000, "execution aborted (timeout = 5s)", OTHER, OTHER),
        (-32_019, "block is out of range", BLOCK, BLOCK),
        (-32_019, "whatever", BLOCK, BLOCK),
        (3, "Unknown block", BLOCK, BLOCK),
        (3, "execution reverted: unknown block, too many requests", OTHER, OTHER),
        (-32_015, "VM execution error: Reverted rate limit", OTHER, OTHER),
        (-32_603, "Internal error", OTHER, OTHER),
        (-32_601, "the method eth_getLogs does not exist/is not available", OTHER, OTHER),
        (4_444, "pruned history unavailable", OTHER, OTHER),
    ] {
        let payload = ErrorPayload { code, message: text.into(), data: None };
        let kind = |has_logs| judge(&payload, String::new(), has_logs).kind();
        assert_eq!((kind(true), kind(false)), (logs, others), "{code}: {text}");
    }
}
