package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// deciders are those that show what it costs to have an nginx ask: one that forwards alone, and
// one that asks a Weir for the limits of w. An nginx that refuses needs limits of its own.
func (b *bench) deciders(w workload) []contestant {
	alone := w
	if !w.refuses {
		alone.limits = 0
	}
	asked := b.weirAt("asked", fmt.Sprintf(`http: none, decide: {http: "127.0.0.1:%d", dialect: nginx}`, b.decidePort), b.binary, w)
	path := b.nginxConf("nginx-asks", "", b.nginxServer(w, b.asks), b.of(contestants))
	return []contestant{b.nginx("nginx", alone, ""), {
		name:  "nginx-asks-weir",
		args:  []string{b.nginxPath, "-p", b.dir, "-e", filepath.Join(b.dir, "nginx-asks.err"), "-c", path},
		asked: asked.args,
	}}
}
