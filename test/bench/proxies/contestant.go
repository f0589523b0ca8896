package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// A contestant is a proxy, ready to be started.
type contestant struct {
	name string
	args []string // program and arguments; it listens on bench.port
}

// contestants are those that can do w, configured for it.
func (b *bench) contestants(w workload) []contestant {
	out := []contestant{b.weir("weir", b.binary, w)}
	if b.other != "" {
		out = append(out, b.weir("weir-other", b.other, w))
	}
	if w.store == "memory" {
		out = append(out, b.nginx(w))
		if program, err := exec.LookPath("haproxy"); err == nil {
			out = append(out, b.haproxy(program, w))
		}
	}
	return out
}

func (b *bench) weir(name, binary string, w workload) contestant {
	limits := ""
	if w.limit > 0 {
		limits = fmt.Sprintf("    limits: [{name: key, key: {from: \"header:X-Api-Key\"}, rate: %d/1s}]\n", w.limit)
	}
	path := b.write(name+".yaml", fmt.Sprintf(`listen: {http: "127.0.0.1:%d"}
admin: {http: "127.0.0.1:0"}
store: %s
redis: {addrs: ["127.0.0.1:%d"], timeout: 2s}
routes:
  - match: {path: "/*"}
    upstream: http://127.0.0.1:%d
%s`, b.port, w.store, b.redisPort, b.upstreamPort, limits))
	return contestant{name, []string{binary, "run", "-c", path, "--log-level", "error"}}
}

func (b *bench) nginx(w workload) contestant {
	zone, limit := "", ""
	if w.limit > 0 {
		zone = fmt.Sprintf("limit_req_zone $http_x_api_key zone=keys:64m rate=%dr/s; limit_req_status 429;", w.limit)
		limit = fmt.Sprintf("limit_req zone=keys burst=%d nodelay;", w.limit-1)
	}
	path := b.write("nginx.conf", fmt.Sprintf(`daemon off; worker_processes 1; pid %[1]s/nginx.pid; error_log %[1]s/nginx.err crit;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000; keepalive_timeout 300s;
  client_body_temp_path %[1]s/t1; proxy_temp_path %[1]s/t2; fastcgi_temp_path %[1]s/t3; uwsgi_temp_path %[1]s/t4; scgi_temp_path %[1]s/t5;
  %[4]s
  upstream up { server 127.0.0.1:%[3]d; keepalive 256; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:%[2]d backlog=4096;
    location / {
      %[5]s
      proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }
  }
}
`, b.dir, b.port, b.upstreamPort, zone, limit))
	return contestant{"nginx", []string{b.nginxPath, "-p", b.dir, "-e", filepath.Join(b.dir, "nginx.err"), "-c", path}}
}

func (b *bench) haproxy(program string, w workload) contestant {
	rules := ""
	if w.limit > 0 {
		rules = fmt.Sprintf("  stick-table type string len 32 size 200k expire 10s store http_req_rate(1s)\n"+
			"  http-request track-sc0 hdr(X-Api-Key)\n  http-request deny deny_status 429 if { sc_http_req_rate(0) gt %d }\n", w.limit)
	}
	path := b.write("haproxy.cfg", fmt.Sprintf(`global
  nbthread 1
  maxconn 4096
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
`, b.port, rules, b.upstreamPort))
	return contestant{"haproxy", []string{program, "-f", path}}
}

// write writes a file of the bench's folder and returns its path.
func (b *bench) write(name, text string) string {
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err) // the folder was made for this
	}
	return path
}
