package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

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
