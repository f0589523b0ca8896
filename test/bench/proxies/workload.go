package main

import (
	"fmt"
	"io"
	"slices"
)

// A workload is what is asked of every contestant.
type workload struct {
	name, what string
	limit      int    // requests a second for each key; 0 is no limit
	keys       int    // keys in rotation
	store      string // memory or redis
	refuses    bool   // nearly everything is refused
}

func workloads() []workload {
	return []workload{
		{name: "plain", what: "no limit", keys: 1, store: "memory"},
		{name: "memory", what: "100 a second for each of 10,000 keys, in memory", limit: 100, keys: 10_000, store: "memory"},
		{name: "refused", what: "10 a second for one key, in memory: nearly all are refused", limit: 10, keys: 1, store: "memory", refuses: true},
		{name: "redis", what: "100 a second for each of 10,000 keys, in Redis", limit: 100, keys: 10_000, store: "redis"},
		{name: "redis-refused", what: "10 a second for one key, in Redis: nearly all are refused", limit: 10, keys: 1, store: "redis", refuses: true},
	}
}

// A result is one measured run.
type result struct {
	requests   float64 // a second
	cpu, redis float64 // µs of CPU for each request
	p50, p99   float64 // ms
	odd        int     // answers that the workload does not have
}

// printTable prints the medians of each contestant, and their ratio to nginx.
func printTable(out io.Writer, w workload, all map[string][]result) {
	fmt.Fprintf(out, "\n%s: %s\n\n", w.name, w.what)
	fmt.Fprintln(out, "| proxy | CPU µs a request (least to most) | to nginx | Redis µs | requests a second | p50 ms | p99 ms | odd answers |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	base := median(all["nginx"], func(r result) float64 { return r.cpu })
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		rs := all[name]
		cpu := func(r result) float64 { return r.cpu }
		ratio := "-"
		if base > 0 {
			ratio = fmt.Sprintf("%.2f", median(rs, cpu)/base)
		}
		odd := 0
		for _, r := range rs {
			odd += r.odd
		}
		fmt.Fprintf(out, "| %s | **%.1f** (%.1f-%.1f) | %s | %.1f | %.0f | %.2f | %.2f | %d |\n", name, median(rs, cpu),
			slices.MinFunc(rs, func(a, b result) int { return int(1000 * (a.cpu - b.cpu)) }).cpu,
			slices.MaxFunc(rs, func(a, b result) int { return int(1000 * (a.cpu - b.cpu)) }).cpu,
			ratio, median(rs, func(r result) float64 { return r.redis }),
			median(rs, func(r result) float64 { return r.requests }),
			median(rs, func(r result) float64 { return r.p50 }), median(rs, func(r result) float64 { return r.p99 }), odd)
	}
}

// median is that of what of gives of each; 0 of none.
func median(rs []result, of func(result) float64) float64 {
	if len(rs) == 0 {
		return 0
	}
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = of(r)
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
