package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A bench is what all runs share: programs, ports, the upstreams and Redis.
type bench struct {
	settings
	dir        string
	binary     string // weir of this tree
	self       string // this program, which is also some of the upstreams and of the load
	nginxPath  string
	wrkPath    string
	h2loadPath string
	lua        string   // a tree that has an nginx with Lua; empty for none
	haproxy    string   // empty for none
	caddy      string   // empty for none
	goPeer     string   // test/bench/reverseproxy; empty if it could not be built
	asks       limiting // how an nginx asks weir
	envoy      string   // empty for none
	envoyAsks  string   // its configuration, which asks weir
	now        int      // processors that a contestant has at present

	port, decidePort, upstreamPort, sinkPort, redisPort int
	upstream, sink, redis                               *process
}

// newBench builds weir and starts what stays: the upstreams, of which an nginx answers
// with bodies and a sink takes them, and Redis.
func newBench(s settings) (*bench, error) {
	dir, err := os.MkdirTemp("", "weir-proxies-")
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, now: 1, dir: dir, binary: filepath.Join(dir, "weir")}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if out, err := exec.Command("go", "build", "-o", b.binary, "github.com/weir-proxy/weir").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build weir: %w: %s", err, out)
	}
	top, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module: %w", err)
	}
	test := filepath.Join(strings.TrimSpace(string(top)), "test")
	var redis string
	for name, path := range map[string]*string{"nginx": &b.nginxPath, "wrk": &b.wrkPath, "h2load": &b.h2loadPath, "redis-server": &redis} {
		if *path, err = installed(test, name); err != nil {
			return nil, err
		}
	}
	peer := filepath.Join(dir, "reverseproxy")
	if out, err := exec.Command("go", "build", "-C", filepath.Join(test, "bench", "reverseproxy"), "-o", peer).CombinedOutput(); err == nil {
		b.goPeer = peer
	} else {
		fmt.Fprintf(os.Stderr, "proxies: no reverseproxy: %s", out)
	}
	b.findPeers(filepath.Join(test, ".cache", "peers"))
	for _, port := range []*int{&b.port, &b.decidePort, &b.upstreamPort, &b.sinkPort, &b.redisPort} {
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	if err := b.findAsking(filepath.Join(test, "deploy")); err != nil {
		return nil, err
	}
	if err := b.findEnvoy(test); err != nil {
		return nil, err
	}
	b.write("load.lua", load)
	b.write(strconv.Itoa(middle), strings.Repeat("x", middle))
	b.write(strconv.Itoa(long), strings.Repeat("x", long))
	if err := b.certify(); err != nil {
		return nil, err
	}
	if b.upstream, err = b.start(others, b.upstreamPort, b.nginxPath, "-p", dir, "-e", filepath.Join(dir, "upstream.err"), "-c", b.upstreamConf()); err != nil {
		return nil, err
	}
	if b.sink, err = b.start(others, b.sinkPort, b.self, "sink", local(b.sinkPort)); err != nil {
		return nil, err
	}
	b.redis, err = b.start(others, b.redisPort, redis, "--bind", "127.0.0.1", "--port", strconv.Itoa(b.redisPort), "--save", "", "--appendonly", "no", "--dir", dir)
	return b, err
}

// findPeers finds what test/bench/peers has unpacked, and says what is missing.
func (b *bench) findPeers(room string) {
	tree, caddy := filepath.Join(room, "tree"), filepath.Join(room, "caddy", "caddy")
	if _, err := os.Stat(caddy); err == nil {
		b.caddy = caddy
	} else {
		fmt.Fprintln(os.Stderr, "proxies: no Caddy: run test/bench/peers caddy for one")
	}
	if _, err := os.Stat(filepath.Join(tree, "usr", "lib", "nginx", "modules", "ngx_http_lua_module.so")); err == nil {
		b.lua = tree
	} else {
		fmt.Fprintln(os.Stderr, "proxies: no nginx with Lua: run test/bench/peers for one")
	}
	for _, name := range []string{"haproxy", filepath.Join(tree, "usr", "sbin", "haproxy")} {
		if path, err := exec.LookPath(name); err == nil {
			b.haproxy = path
			return
		}
	}
	fmt.Fprintln(os.Stderr, "proxies: no HAProxy: install it, or run test/bench/peers for one")
}

func (b *bench) close() {
	for _, p := range []*process{b.upstream, b.sink, b.redis} {
		p.stop()
	}
	os.RemoveAll(b.dir)
}

// installed is the path of a program, as test/install finds or installs it.
func installed(test, name string) (string, error) {
	cmd := exec.Command(filepath.Join(test, "install"), name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePort is a port of 127.0.0.1 that nobody listens on at this moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// write writes a file of the bench's folder and returns its path.
func (b *bench) write(name, text string) string {
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err) // the folder was made for this
	}
	return path
}
