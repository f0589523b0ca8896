// Command proxies measures what a request costs in Weir and in other proxies, one
// beside the other on this machine: CPU time of the proxy for each request, from the
// kernel's own accounting, and of Redis where counts lie there; requests a second;
// and latency.
//
//	go run ./test/bench/proxies                            all workloads, 3 rounds
//	go run ./test/bench/proxies -rounds 5 memory refused   some
//	go run ./test/bench/proxies -weir /tmp/weir-before     a binary beside today's
//	go run ./test/bench/proxies -weir /tmp/weir-before -at-once   both at the same time
//	go run ./test/bench/proxies -cores 4 plain             with 1, 2 and 4 processors
//
// Contestants take turns within each round, so that a machine whose speed drifts is
// the same for all; medians are printed, and the ratio to nginx. A difference of a few per
// cent between two binaries of Weir is lost in that, because the speed of a machine drifts
// within a round as well. With -at-once these two share the same processor at the same
// time, each with its own load, and the ratio within each round is printed with two
// standard errors to each side: six rounds tell 1 % from 2 %. With two processors
// or more the contestant has the first to itself, and the load, the upstream and Redis
// share the others. It needs wrk, h2load, nginx and redis-server, which test/install finds
// or installs; HAProxy, an nginx with Lua and Caddy take part where test/bench/peers has
// unpacked or built them, Envoy where test/install has, and a proxy of Go's standard library (test/bench/reverseproxy)
// where the module proxy can be reached. Processor time is read from /proc, so it runs on
// Linux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// settings are what the flags say.
type settings struct {
	rounds      int
	measured    time.Duration
	connections int
	other       string // a second binary of weir; empty for none
	atOnce      bool   // measure the two binaries of weir alone, at the same time
	cores       int    // processors that a contestant has at most
}

func main() {
	if len(os.Args) > 1 {
		for name, program := range map[string]func([]string) error{"pace": pace, "sink": sink, "http2": http2} {
			if os.Args[1] == name {
				exitIf(program(os.Args[2:]))
				return
			}
		}
	}
	var s settings
	flag.IntVar(&s.rounds, "rounds", 3, "rounds; each runs every contestant once")
	flag.DurationVar(&s.measured, "time", 5*time.Second, "how long one run is measured, after a warm-up of a third")
	flag.IntVar(&s.connections, "connections", 64, "connections that are kept open")
	flag.StringVar(&s.other, "weir", "", "another binary of weir, measured beside the one of this tree")
	flag.BoolVar(&s.atOnce, "at-once", false, "measure the two binaries of weir alone, at the same time on the same processors")
	flag.IntVar(&s.cores, "cores", 1, "processors of a contestant; with more than one, each workload is measured with 1, 2, 4 and so on of them")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "proxies [flags] [WORKLOAD ...]; without names all workloads:")
		for _, w := range workloads() {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-16s %s\n", w.name, w.what)
		}
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exitIf(run(ctx, s, flag.Args()))
}

// exitIf ends the program if there is an error.
func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxies:", err)
		os.Exit(1)
	}
}

// run measures the named workloads, or all, and prints a table of each.
func run(ctx context.Context, s settings, names []string) error {
	if has := runtime.NumCPU(); s.cores < 1 || s.cores > 1 && s.cores >= has {
		return fmt.Errorf("-cores %d: contestants can have 1 to %d of the %d processors of this machine: the load, the upstreams and Redis need one", s.cores, max(has-1, 1), has)
	}
	if s.atOnce && s.other == "" {
		return errors.New("-at-once compares two binaries: name the other one with -weir")
	}
	if s.measured < time.Second {
		return fmt.Errorf("-time %v: wrk counts whole seconds; write 1s or more", s.measured)
	}
	b, err := newBench(s)
	if err != nil {
		return err
	}
	defer b.close()
	all := workloads()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(w workload) bool { return w.name == name }) {
			return fmt.Errorf("there is no workload %s", name)
		}
	}
	for _, w := range all {
		if len(names) > 0 && !slices.Contains(names, w.name) {
			continue
		}
		for b.now = 1; b.now <= b.cores; b.now *= 2 {
			compare := b.compare
			if b.atOnce {
				compare = b.compareAtOnce
			}
			results, err := compare(ctx, w)
			if err != nil {
				return err
			}
			printTable(os.Stdout, w, b.now, results)
		}
	}
	return nil
}

// compare has every contestant take its turn in each round. Another one is the first each
// time, so that none always follows the same one.
func (b *bench) compare(ctx context.Context, w workload) (map[string][]result, error) {
	results := map[string][]result{}
	all := b.contestants(w)
	for round := range b.rounds {
		for i := range all {
			c := all[(round+i)%len(all)]
			r, err := b.measure(ctx, c, w)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "proxies: %s, %s: left out: %v\n", w.name, c.name, err)
				continue
			}
			r.round = round
			results[c.name] = append(results[c.name], r)
		}
	}
	return results, nil
}

// compareAtOnce has both binaries of weir run at the same time. They change places each round.
// In Redis they share counts, and its time is that of both.
func (b *bench) compareAtOnce(ctx context.Context, w workload) (map[string][]result, error) {
	results := map[string][]result{}
	weirs, ports := b.contestants(w)[:2], []int{b.port, b.decidePort}
	for round := range b.rounds {
		var pair [2]result
		var errs [2]error
		var both sync.WaitGroup
		for i, c := range weirs {
			own := *b
			own.port = ports[(round+i)%2]
			both.Go(func() { pair[i], errs[i] = own.measure(ctx, own.weir(c.name, c.args[0], w), w) })
		}
		both.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		for i, c := range weirs {
			pair[i].round = round
			results[c.name] = append(results[c.name], pair[i])
		}
	}
	return results, nil
}

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
