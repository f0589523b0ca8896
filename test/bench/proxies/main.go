// Command proxies measures what a request costs in Weir and in other proxies, one
// beside the other on this machine: CPU time of the proxy for each request, from the
// kernel's own accounting, and of Redis where counts lie there; requests a second;
// and latency.
//
//	go run ./test/bench/proxies                            all workloads, 3 rounds
//	go run ./test/bench/proxies -rounds 5 memory refused   some
//	go run ./test/bench/proxies -weir /tmp/weir-before     a binary beside today's
//	go run ./test/bench/proxies -cores 4 plain             with 1, 2 and 4 processors
//
// Contestants take turns within each round, so that a machine whose speed drifts is
// the same for all; medians are printed, and the ratio to nginx. With two processors
// or more the contestant has the first to itself, and the load, the upstream and Redis
// share the others. It needs wrk, h2load, nginx and redis-server, which test/install finds
// or installs; HAProxy, an nginx with Lua and Caddy take part where test/bench/peers has
// unpacked or built them, Envoy where test/install has, and a proxy of Go's standard library (test/bench/reverseproxy)
// where the module proxy can be reached. Processor time is read from /proc, so it runs on
// Linux.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// settings are what the flags say.
type settings struct {
	rounds      int
	measured    time.Duration
	connections int
	other       string // a second binary of weir; empty for none
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
			results, err := b.compare(ctx, w)
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
			results[c.name] = append(results[c.name], r)
		}
	}
	return results, nil
}
