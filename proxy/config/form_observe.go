package config

// accessLogForm says what is written of each request, and where.
type accessLogForm struct {
	// Format of the lines: json, combined (that of Apache and nginx, without queries), or none.
	Format string `yaml:"format" jsonschema:"default=json,enum=json,enum=combined,enum=none"`
	// File that lines are written to, relative to this one, instead of standard error. SIGUSR1 has it opened anew, after it was renamed. Lines are written whatever --log-level says.
	File string `yaml:"file" jsonschema:"default="`
	// Fields of a JSON line, instead of the standard ones; standard stands for these. Time, level and message are always there.
	Fields list `yaml:"fields" jsonschema:"enum=standard,enum=request_id,enum=route,enum=method,enum=host,enum=path,enum=status,enum=bytes,enum=duration_ms,enum=client,enum=upstream,enum=upstream_ms,enum=shadow,enum=limit,enum=wait_ms,enum=rate,enum=key,enum=masked,enum=banned,enum=ban_began,enum=also,enum=new_keys,enum=repeated,enum=list,enum=refunded,enum=fallback,enum=error,enum=trace_id,enum=sample,enum=proto,enum=scheme,enum=own_ms,enum=waited_ms,enum=user_agent,enum=referer"`
	// Sample writes, of requests that passed and were answered well, one in so many. Refusals, failures, and what shadow limits would have refused are always written.
	Sample int `yaml:"sample" jsonschema:"default=1,minimum=1,maximum=1000000"`
}

// tracesForm says where traces of requests are sent (OpenTelemetry).
type tracesForm struct {
	// Endpoint is the URL of a collector that speaks OTLP over HTTP; /v1/traces is added where it has no path. Nothing is traced when it is empty.
	Endpoint string `yaml:"endpoint" jsonschema:"default="`
	// Headers that the collector wants, with an API key for example. Values are never shown.
	Headers map[string]*secret `yaml:"headers,omitempty"`
	// Sample is how many of the requests are traced that no parent decides about.
	Sample string `yaml:"sample" jsonschema:"default=1%,pattern=^[0-9]+([.][0-9]+)?%$"`
	// Parent says whose traceparent is believed, which decides whether a request is traced and what its spans belong to: trusted, of client_ip.trusted_proxies; any, of every client; none, each request begins a trace.
	Parent string `yaml:"parent" jsonschema:"default=trusted,enum=trusted,enum=any,enum=none"`
	// Service is what traces call this Weir (service.name).
	Service string `yaml:"service" jsonschema:"default=weir"`
}
