package main

import (
	"fmt"
	"strconv"
	"strings"
)

// A contestant is a proxy, ready to be started.
type contestant struct {
	name  string
	args  []string // program and arguments; it listens on bench.port
	asked []string // the same of what it asks about each request, on bench.decidePort; nil for none
}

// contestants are those that can do w, configured for it.
func (b *bench) contestants(w workload) []contestant {
	out := []contestant{b.weir("weir", b.binary, w)}
	if b.other != "" {
		out = append(out, b.weir("weir-other", b.other, w))
	}
	if w.fields != "" {
		return out
	}
	if w.asks {
		return append(out, b.deciders(w)...)
	}
	if b.goPeer != "" && w.limits <= 1 && w.routes == 0 && !w.tls && !w.http2 && !w.log {
		out = append(out, b.reverseProxy(w))
	}
	if w.store == "redis" {
		if b.lua != "" {
			out = append(out, b.nginxLua(w))
		}
		return out
	}
	out = append(out, b.nginx("nginx", w, ""))
	if w.sameFields {
		out = append(out, b.nginx("nginx-fields", w, weirFields))
	}
	if b.haproxy != "" && w.limits <= 1 && w.routes == 0 && !w.tls && !w.http2 && !w.log {
		out = append(out, b.haproxyFor(w))
	}
	if b.caddy != "" && w.limits <= 1 && w.routes == 0 && w.upload == 0 && !w.tls && !w.http2 && !w.log {
		out = append(out, b.caddyFor(w))
	}
	return out
}

func (b *bench) weir(name, binary string, w workload) contestant {
	listen := fmt.Sprintf(`http: "127.0.0.1:%d"`, b.port)
	if w.tls {
		listen = fmt.Sprintf(`http: none, https: "127.0.0.1:%d", tls: {cert: %s/cert.pem, key: %[2]s/key.pem}`, b.port, b.dir)
	}
	if w.http2 && !w.tls {
		listen += ", h2c: true"
	}
	return b.weirAt(name, listen, binary, w)
}

// weirAt is a Weir with these listeners.
func (b *bench) weirAt(name, listen, binary string, w workload) contestant {
	level, to := "error", b.upstreamPort
	if w.log {
		level = "info"
	}
	if w.upload > 0 {
		to = b.sinkPort
	}
	var routes strings.Builder
	for i := range w.routes {
		fmt.Fprintf(&routes, "  - {name: r%d, match: {path: /r%[1]d/*}, upstream: up}\n", i)
	}
	routes.WriteString("  - match: {path: /*}\n    upstream: up\n")
	if w.limits > 0 {
		routes.WriteString("    limits:\n")
	}
	for i := range w.limits {
		fmt.Fprintf(&routes, "    - {name: key%d, key: {from: \"header:X-Api-Key\"}, rate: %d/1s, %s}\n", i, w.limit<<(4*i), w.fields)
	}
	if w.fields == conversion {
		routes.WriteString("  - {name: verify, match: {methods: [POST], path: /verify}, upstream: up, limits: [{key: \"header:X-Api-Key\", rate: 100/1s}]}\n")
	}
	path := b.write(name+".yaml", fmt.Sprintf(`listen: {%s}
admin: {http: "127.0.0.1:0"}
store: %s
redis: {addrs: ["127.0.0.1:%d"], timeout: 2s}
upstreams:
  up: {targets: [{url: "http://127.0.0.1:%d"}]}
routes:
%s`, listen, w.store, b.redisPort, to, routes.String()))
	return contestant{name: name, args: []string{binary, "run", "-c", path, "--log-level", level}}
}

func (b *bench) reverseProxy(w workload) contestant {
	to := b.upstreamPort
	if w.upload > 0 {
		to = b.sinkPort
	}
	return contestant{name: "reverseproxy", args: []string{
		b.goPeer, "-listen", local(b.port), "-to", "http://" + local(to), "-store", w.store, "-redis", local(b.redisPort), "-limit", strconv.Itoa(w.limit),
	}}
}

func (b *bench) haproxyFor(w workload) contestant {
	rules, to := "", b.upstreamPort
	if w.limit > 0 {
		rules = fmt.Sprintf("  stick-table type string len 32 size 200k expire 10s store http_req_rate(1s)\n"+
			"  http-request track-sc0 hdr(X-Api-Key)\n  http-request deny deny_status 429 if { sc_http_req_rate(0) gt %d }\n", w.limit)
	}
	if w.upload > 0 {
		to = b.sinkPort
	}
	path := b.write("haproxy.cfg", fmt.Sprintf(`global
  nbthread %d
  maxconn 8192
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  http-reuse always
frontend f
  bind 127.0.0.1:%d
%s  default_backend b
backend b
  option forwardfor
  server s 127.0.0.1:%d
`, b.of(contestants), b.port, rules, to))
	return contestant{name: "haproxy", args: []string{"env", "LD_LIBRARY_PATH=" + libraries(b.lua), b.haproxy, "-f", path}}
}

// caddyFor is Caddy with the module for limits that its authors keep beside it.
func (b *bench) caddyFor(w workload) contestant {
	limits := ""
	if w.limit > 0 {
		limits = fmt.Sprintf(`{"handler": "rate_limit", "rate_limits": {"keys": {"key": "{http.request.header.X-Api-Key}", "window": "1s", "max_events": %d}}},`, w.limit)
	}
	path := b.write("caddy.json", fmt.Sprintf(`{
  "admin": {"disabled": true, "config": {"persist": false}},
  "logging": {"logs": {"default": {"level": "ERROR"}}},
  "apps": {"http": {"servers": {"bench": {
    "listen": ["127.0.0.1:%d"], "automatic_https": {"disable": true}, "protocols": ["h1"],
    "routes": [{"handle": [%s {
      "handler": "reverse_proxy", "upstreams": [{"dial": "127.0.0.1:%d"}],
      "transport": {"protocol": "http", "compression": false, "keep_alive": {"max_idle_conns_per_host": 256}}
    }]}]
  }}}}
}`, b.port, limits, b.upstreamPort))
	return contestant{name: "caddy", args: []string{"env", "XDG_DATA_HOME=" + b.dir, b.caddy, path}}
}
