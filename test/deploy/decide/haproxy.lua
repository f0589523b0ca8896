-- Asks Weir about a request, and reports the status of its response; see haproxy.cfg.
local weir = "http://127.0.0.1:8083"

-- first returns the value of a field of a response, or nil.
local function first(headers, name)
	return headers and headers[name] and headers[name][0]
end

core.register_action("weir_decide", { "http-req" }, function(txn)
	local headers = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		if name ~= "connection" and name ~= "content-length" and name ~= "transfer-encoding" and name ~= "expect" and name ~= "host" then
			headers[name] = {}
			for i = 0, #values do
				headers[name][#headers[name] + 1] = values[i]
			end
		end
	end
	headers["x-original-method"] = { txn.f:method() }
	headers["x-original-uri"] = { txn.f:pathq() }
	headers["x-original-host"] = { txn.f:req_hdr("host") }
	headers["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" }
	headers["x-forwarded-for"] = headers["x-forwarded-for"] or {}
	table.insert(headers["x-forwarded-for"], txn.f:src())
	local body = txn.f:req_body()
	if body == "" then
		body = nil
	end
	local r = core.httpclient():post { url = weir .. "/decide", headers = headers, body = body }
	if r.status == 200 then
		for name, variable in pairs({ ["x-weir-handle"] = "txn.weir_handle", ["ratelimit"] = "txn.weir_ratelimit", ["ratelimit-policy"] = "txn.weir_policy" }) do
			local value = first(r.headers, name)
			if value then
				txn:set_var(variable, value)
			end
		end
		return
	end
	local reply = txn:reply { status = r.status == 0 and 503 or r.status, body = r.body }
	for name, values in pairs(r.headers or {}) do
		if name ~= "content-length" and name ~= "connection" and name ~= "transfer-encoding" then
			for i = 0, #values do
				reply:add_header(name, values[i])
			end
		end
	end
	txn:done(reply)
end)

core.register_action("weir_outcome", { "http-res" }, function(txn)
	local query = "?handle=" .. txn:get_var("txn.weir_handle") .. "&status=" .. txn.f:status()
	core.httpclient():post { url = weir .. "/decide/outcome" .. query, body = "-" }
end)
