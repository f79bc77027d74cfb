-- Asks Tiergate about a request. HAProxy 2.5 or newer, without any other script:
--
--   http-request lua.tiergate URL SECRET MILLISECONDS
--
-- HAProxy logs an error in here and goes on with the request. So the configuration denies whatever has no txn.verified, which
-- is set last.

-- Headers that are the connection's, or that this script writes itself.
local not_copied = {}
for name in string.gmatch([[connection keep-alive proxy-connection te trailer transfer-encoding upgrade expect
        content-length host forwarded x-forwarded-method x-forwarded-host x-forwarded-uri x-forwarded-proto x-authz-secret]], "%S+") do
    not_copied[name] = true
end

-- Some servers take another path than the one that was judged by the first four. The others say where a request comes from: of a
-- client that is nobody's word. Leave out those that a balancer before HAProxy sets.
local dropped = {}
for name in string.gmatch([[proxy x-original-uri x-original-url x-rewrite-url forwarded x-real-ip x-client-ip x-cluster-client-ip
        true-client-ip cf-connecting-ip fastly-client-ip]], "%S+") do
    dropped[name] = true
end

-- More headers than HAProxy's own client can send, with those of this script, end HAProxy: it writes beyond tune.http.maxhdr (101)
-- onto its stack. Mended in releases from April 2026 on.
local HEADERS_MAX = 80

-- Lists that begin with 0, as HAProxy gives headers, to such that begin with 1, as it takes them.
local function copied(headers)
    local result = {}
    for name, values in pairs(headers or {}) do
        if not not_copied[name] then
            result[name] = {}
            for index = 0, #values do table.insert(result[name], values[index]) end
        end
    end
    return result
end

core.register_action("tiergate", { "http-req" }, function(txn, url, secret, milliseconds)
    local received = txn.http:req_get_headers()
    local count = 0
    -- Of a list that begins with 0 this is the last index.
    for _, values in pairs(received) do count = count + #values + 1 end
    if count > HEADERS_MAX then
        local body = '{"error":"The request line and headers are too long","errorType":"REQUEST_HEADER_FIELDS_TOO_LARGE","timestamp":%d}'
        local headers = { ["content-type"] = { "application/json" }, ["cache-control"] = { "no-store" } }
        return txn:done(txn:reply{ status = 431, headers = headers, body = body:format(core.now().sec * 1000) })
    end
    local headers = copied(received)
    -- Tiergate refuses an upgrade where the route has none. The configuration has left a WebSocket or none.
    headers["x-authz-upgrade"] = received["upgrade"] and { received["upgrade"][0] }
    headers["x-authz-secret"] = { secret }
    headers["x-forwarded-method"] = { txn.f:method() }
    -- The whole line: `req_hdr` would give the last of "a,b".
    headers["x-forwarded-host"] = { txn.f:req_fhdr("host") or "" }
    headers["x-forwarded-uri"] = { txn.f:pathq() }
    headers["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" }
    headers["x-forwarded-for"] = headers["x-forwarded-for"] or {}
    table.insert(headers["x-forwarded-for"], txn.f:src())

    local answer = core.httpclient():get{ url = url, headers = headers, timeout = tonumber(milliseconds) }
    local said = copied(answer.headers)
    if answer.status ~= 200 or (said["x-authz-status"] or {})[1] ~= "200" then
        local is_refusal = answer.status >= 300 and (said["content-type"] or {})[1] == "application/json"
        if is_refusal then return txn:done(txn:reply{ status = answer.status, headers = said, body = answer.body }) end
        -- HAProxy's own answer where none came, or some other server's.
        local error = '{"error":"The agent can not be verified now","errorType":"OVERLOADED","timestamp":%d}'
        headers = { ["content-type"] = { "application/json" }, ["cache-control"] = { "no-store" }, ["retry-after"] = { "1" } }
        return txn:done(txn:reply{ status = 503, headers = headers, body = error:format(core.now().sec * 1000) })
    end
    -- Whatever a server may read as one of our headers goes: X_Agent_Id, x.agent.tier.
    for name in pairs(txn.http:req_get_headers()) do
        local plain = name:gsub("%W", "-")
        if plain:find("^x%-agent%-") or plain:find("^x%-forwarded%-") or dropped[plain] then txn.http:req_del_header(name) end
    end
    for name, values in pairs(said) do
        if name:find("^x%-agent%-") then txn.http:req_set_header(name, values[1]) end
        if name:find("ratelimit") then txn:set_var("txn." .. name:gsub("-", "_"), values[1]) end
    end
    txn:set_var("txn.verified", true)
end, 3)
