package config

// accessLogForm configures the access log.
type accessLogForm struct {
	// Format of the lines: json, combined (that of Apache and nginx, without queries), or none.
	Format string `yaml:"format" jsonschema:"default=json,enum=json,enum=combined,enum=none"`
	// File for the access log, relative to this one, instead of standard error. SIGUSR1 reopens it, for log rotation. It does not depend on --log-level.
	File string `yaml:"file" jsonschema:"default="`
	// Fields of a JSON line, instead of the standard ones; standard stands for all of these. Time, level and message are always written.
	Fields list `yaml:"fields" jsonschema:"enum=standard,enum=request_id,enum=route,enum=method,enum=host,enum=path,enum=status,enum=bytes,enum=duration_ms,enum=client,enum=upstream,enum=upstream_ms,enum=shadow,enum=limit,enum=wait_ms,enum=rate,enum=key,enum=masked,enum=banned,enum=ban_began,enum=also,enum=new_keys,enum=repeated,enum=list,enum=refunded,enum=fallback,enum=error,enum=trace_id,enum=sample,enum=proto,enum=scheme,enum=own_ms,enum=waited_ms,enum=user_agent,enum=referer"`
	// Sample logs one in so many of the successful requests. Refusals, failures, and requests that a shadow limit would have refused are always logged.
	Sample int `yaml:"sample" jsonschema:"default=1,minimum=1,maximum=1000000"`
}

// tracesForm configures the export of traces (OpenTelemetry).
type tracesForm struct {
	// Endpoint is the URL of a collector for OTLP over HTTP; /v1/traces is added if it has no path. Tracing is off when it is empty.
	Endpoint string `yaml:"endpoint" jsonschema:"default="`
	// Headers for the collector, an API key for example. Values are treated as secrets.
	Headers map[string]*secret `yaml:"headers,omitempty"`
	// Sample is the part of requests without a parent that is traced.
	Sample string `yaml:"sample" jsonschema:"default=1%,pattern=^[0-9]+([.][0-9]+)?%$"`
	// Parent selects whose traceparent is used, which determines whether a request is sampled and the parent of its spans: trusted, that of client_ip.trusted_proxies; any, that of every client; none, each request starts a trace.
	Parent string `yaml:"parent" jsonschema:"default=trusted,enum=trusted,enum=any,enum=none"`
	// Service is the service.name of this Weir.
	Service string `yaml:"service" jsonschema:"default=weir"`
}
