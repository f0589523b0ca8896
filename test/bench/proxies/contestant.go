package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	if w.fields != "" && w.fields != lease {
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

// nginxConf is a configuration of nginx with so many workers and these contents of http{}.
func (b *bench) nginxConf(name, modules, http string, workers int) string {
	return b.write(name+".conf", fmt.Sprintf(`daemon off; worker_processes %[5]d; pid %[1]s/%[2]s.pid; error_log %[1]s/%[2]s.err crit; user root;
%[3]s
events { worker_connections 16384; }
http {
  keepalive_requests 1000000000; keepalive_timeout 300s; client_max_body_size 0;
  client_body_temp_path %[1]s/%[2]s.1; proxy_temp_path %[1]s/%[2]s.2; fastcgi_temp_path %[1]s/%[2]s.3; uwsgi_temp_path %[1]s/%[2]s.4; scgi_temp_path %[1]s/%[2]s.5;
  %[4]s
}
`, b.dir, name, modules, http, workers))
}

// upstreamConf answers with 1 KiB, and under the name of a file with that.
func (b *bench) upstreamConf() string {
	return b.nginxConf("upstream", "", fmt.Sprintf(`access_log off; sendfile on;
  server {
    listen 127.0.0.1:%d backlog=4096;
    location / { return 200 "%s"; }
    location = /%d { root %s; }
    location = /%d { root %[4]s; }
  }`, b.upstreamPort, strings.Repeat("x", short), middle, b.dir, long), b.of(others))
}

// weirFields are the directives by which nginx sets the fields that Weir sets in each
// request and response, beside X-Forwarded-For.
const weirFields = `proxy_set_header X-Real-Ip $remote_addr; proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header Via "1.1 nginx"; proxy_set_header X-Request-Id $request_id; add_header X-Request-Id $request_id;`

// nginx is an nginx with more directives for its locations.
func (b *bench) nginx(name string, w workload, directives string) contestant {
	l := b.nginxLimits(w)
	l.location += directives
	path := b.nginxConf(name, "", b.nginxServer(w, l), b.of(contestants))
	return contestant{name: name, args: []string{b.nginxPath, "-p", b.dir, "-e", filepath.Join(b.dir, name+".err"), "-c", path}}
}

// A limiting is what makes an nginx limit: in http{} and in each location{}, and more locations.
type limiting struct{ http, location, locations string }

// nginxLimits are limits of its own, which it counts in memory.
func (b *bench) nginxLimits(w workload) (l limiting) {
	for i := range w.limits {
		rate := w.limit << (4 * i) // the others are wider
		l.http += fmt.Sprintf("limit_req_zone $http_x_api_key zone=keys%d:64m rate=%dr/s;\n", i, rate)
		l.location += fmt.Sprintf("limit_req zone=keys%d burst=%d nodelay;\n", i, rate-1)
	}
	if w.limits > 0 {
		l.http += "limit_req_status 429;\n"
	}
	return l
}

// nginxServer is the contents of http{}: a proxy for w.
func (b *bench) nginxServer(w workload, l limiting) string {
	listen, certificate, log := "", "", "access_log off;"
	if w.tls {
		listen, certificate = "ssl", fmt.Sprintf("ssl_certificate %s/cert.pem; ssl_certificate_key %[1]s/key.pem;", b.dir)
	}
	if w.http2 {
		listen += " http2"
	}
	if w.log {
		log = fmt.Sprintf("access_log %s/access.log;", b.dir)
	}
	to := b.upstreamPort
	if w.upload > 0 {
		to = b.sinkPort
	}
	location := l.location + `proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_request_buffering off; proxy_max_temp_file_size 0;`
	locations := l.locations + "location / {" + location + "}\n"
	for i := range w.routes {
		locations += fmt.Sprintf("location /r%d/ {%s}\n", i, location)
	}
	return fmt.Sprintf(`%s
  %s
  upstream up { server 127.0.0.1:%d; keepalive 256; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:%d backlog=4096 %s;
    %s
    %s
  }`, log, l.http, to, b.port, listen, certificate, locations)
}

// nginxLua is an nginx that asks Redis by a script, once for each request: how those who
// need counts that several of them share do it.
func (b *bench) nginxLua(w workload) contestant {
	modules := fmt.Sprintf("load_module %s/usr/lib/nginx/modules/ndk_http_module.so; load_module %[1]s/usr/lib/nginx/modules/ngx_http_lua_module.so;", b.lua)
	limit := b.write("limit.lua", fmt.Sprintf(askRedis, b.redisPort, w.limits, w.limit))
	l := limiting{
		http:     fmt.Sprintf(`lua_package_path "%s/usr/share/lua/5.1/?.lua;;"; lua_code_cache on;`, b.lua),
		location: fmt.Sprintf("access_by_lua_file %s;\n", limit),
	}
	path := b.nginxConf("nginx-lua", modules, b.nginxServer(w, l), b.of(contestants))
	return contestant{name: "nginx-lua", args: []string{
		"env", "LD_LIBRARY_PATH=" + libraries(b.lua),
		filepath.Join(b.lua, "usr", "sbin", "nginx"), "-p", b.dir, "-e", filepath.Join(b.dir, "nginx-lua.err"), "-c", path,
	}}
}

// libraries are the folders of an unpacked tree that have shared libraries.
func libraries(tree string) string {
	usr, _ := filepath.Glob(filepath.Join(tree, "usr", "lib", "*-linux-gnu*"))
	lib, _ := filepath.Glob(filepath.Join(tree, "lib", "*-linux-gnu*"))
	return strings.Join(append(usr, lib...), ":")
}

// askRedis limits by GCRA over connections that are kept: for each of its limits the
// script keeps when a key may next be asked for, by the clock of Redis, and moves that
// on only if all of them let the request pass.
const askRedis = `local redis = require "nginx.redis"
if not sha then
  script = [[
local now = redis.call("TIME")
now = now[1] * 1000000 + now[2]
local next, wait = {}, 0
for i = 1, #KEYS do
  local step, room = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local at = math.max(tonumber(redis.call("GET", KEYS[i]) or 0), now)
  wait = math.max(wait, at + step - now - room)
  next[i] = at + step
end
if wait > 0 then return {0, wait} end
for i = 1, #KEYS do
  redis.call("SET", KEYS[i], string.format("%%.0f", next[i]), "PX", math.ceil((next[i] - now) / 1000))
end
return {1, 0}
]]
end
local r = redis:new()
r:set_timeout(2000)
local ok, err = r:connect("127.0.0.1", %d)
if not ok then return ngx.exit(503) end
local key = ngx.var.http_x_api_key or ""
local limits, limit = %d, %d
local args = {}
for i = 1, limits do args[i] = "lua:" .. i .. ":" .. key end
for i = 1, limits do
  local rate = limit * 16 ^ (i - 1)
  args[#args + 1] = 1000000 / rate
  args[#args + 1] = 1000000
end
if not sha then sha = r:script("load", script) end
local said, err = r:evalsha(sha, limits, unpack(args))
r:set_keepalive(60000, 256)
if not said then return ngx.exit(503) end
if said[1] == 0 then
  ngx.header["Retry-After"] = math.ceil(said[2] / 1000000)
  return ngx.exit(429)
end
`

// asking finds, in the example for nginx beside Weir, what asks in a location that forwards,
// and the locations of the question and of refusals.
var asking = regexp.MustCompile(`(?s)\tlocation / \{(.*?)proxy_pass http://application;.*?\t(location @refused \{.*?)\t# location @weir-down`)

// findAsking takes from test/deploy/decide/nginx.conf how nginx asks Weir, so that what is
// measured is what users are told to write. Only its timeouts are longer, and all connections
// to Weir stay open, as those to the upstream do.
func (b *bench) findAsking(deploy string) error {
	path := filepath.Join(deploy, "decide", "nginx.conf")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read how nginx asks: %w", err)
	}
	m := asking.FindStringSubmatch(string(text))
	if m == nil {
		return fmt.Errorf("%s: nothing there asks Weir as %s expects", path, asking)
	}
	b.asks = limiting{
		http:      fmt.Sprintf("upstream weir { server 127.0.0.1:%d; keepalive 256; keepalive_requests 1000000000; }", b.decidePort),
		location:  m[1],
		locations: strings.ReplaceAll(m[2], "50ms", "5s"),
	}
	return nil
}

// deciders are those that show what it costs to have an nginx or Envoy ask: one that forwards alone, and
// one that asks a Weir for the limits of w. An nginx that refuses needs limits of its own.
func (b *bench) deciders(w workload) []contestant {
	alone := w
	if !w.refuses {
		alone.limits = 0
	}
	asked := b.weirAt("asked", fmt.Sprintf(`http: none, decide: {http: "127.0.0.1:%d", dialect: nginx}`, b.decidePort), b.binary, w)
	path := b.nginxConf("nginx-asks", "", b.nginxServer(w, b.asks), b.of(contestants))
	return append([]contestant{b.nginx("nginx", alone, ""), {
		name:  "nginx-asks-weir",
		args:  []string{b.nginxPath, "-p", b.dir, "-e", filepath.Join(b.dir, "nginx-asks.err"), "-c", path},
		asked: asked.args,
	}}, b.envoys(w)...)
}

// limiter is the filter of the example for Envoy by which it asks.
var limiter = regexp.MustCompile(`(?s) +- name: envoy.filters.http.ratelimit\n.*?( +- name: envoy.filters.http.router\n)`)

// findEnvoy takes from test/deploy/decide/envoy.yaml how Envoy asks Weir, with a longer timeout. It says if there
// is no Envoy.
func (b *bench) findEnvoy(test string) error {
	path, err := exec.Command(filepath.Join(test, "install"), "--found", "envoy").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxies: no Envoy: run test/install envoy for one")
		return nil
	}
	text, err := os.ReadFile(filepath.Join(test, "deploy", "decide", "envoy.yaml"))
	if err != nil {
		return fmt.Errorf("read how Envoy asks: %w", err)
	}
	b.envoy = strings.TrimSpace(string(path))
	b.envoyAsks = strings.NewReplacer("port_value: 8000", fmt.Sprint("port_value: ", b.port), "port_value: 8081", fmt.Sprint("port_value: ", b.decidePort),
		"port_value: 3000", fmt.Sprint("port_value: ", b.upstreamPort), "0.05s", "5s", "x-phone", "x-api-key").Replace(string(text))
	return nil
}

// envoys are an Envoy that asks Weir, and one that forwards alone where nothing is refused.
func (b *bench) envoys(w workload) (out []contestant) {
	if b.envoy == "" {
		return nil
	}
	envoy := func(name, text string) contestant {
		return contestant{name: name, args: []string{
			b.envoy, "-c", b.write(name+".yaml", text), "--disable-hot-restart", "--concurrency", strconv.Itoa(b.of(contestants)), "--log-level", "error",
		}}
	}
	if !w.refuses {
		out = append(out, envoy("envoy", limiter.ReplaceAllString(b.envoyAsks, "$1")))
	}
	asks := envoy("envoy-asks-weir", b.envoyAsks)
	asks.asked = []string{b.binary, "run", "--log-level", "error", "-c", b.write("asked-by-envoy.yaml", fmt.Sprintf(`listen: {http: none, decide: {grpc: "127.0.0.1:%d"}}
admin: {http: "127.0.0.1:0"}
routes:
  - {match: {domain: edge, descriptor: {path: "*", phone: "*"}}, limits: [{key: "descriptor:phone", rate: %d/1s}]}
`, b.decidePort, w.limit))}
	return append(out, asks)
}
