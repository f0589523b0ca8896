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
