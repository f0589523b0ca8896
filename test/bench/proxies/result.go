package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// A result is one measured run.
type result struct {
	requests   float64 // a second
	cpu, redis float64 // µs of CPU for each request
	asked      float64 // those of cpu that what the proxy asks has taken
	p50, p99   float64 // ms
	odd        int     // answers that the workload does not have
}

// printTable prints the medians of each contestant, and their ratio to nginx: with
// Lua where counts are in Redis.
func printTable(out io.Writer, w workload, cores int, all map[string][]result) {
	fmt.Fprintf(out, "\n%s: %s; processors of a contestant: %d; processes that ran or waited for one in the last minute: %s\n\n", w.name, w.what, cores, loadAverage())
	fmt.Fprintln(out, "| proxy | CPU µs a request (least to most) | of which what it asks | to nginx | Redis µs | requests a second | p50 ms | p99 ms | odd answers |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|")
	cpu := func(r result) float64 { return r.cpu }
	base := cmp.Or(median(all["nginx"], cpu), median(all["nginx-lua"], cpu))
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		rs := all[name]
		ratio := "-"
		if base > 0 {
			ratio = fmt.Sprintf("%.2f", median(rs, cpu)/base)
		}
		odd := 0
		for _, r := range rs {
			odd += r.odd
		}
		byCPU := func(a, b result) int { return cmp.Compare(a.cpu, b.cpu) }
		fmt.Fprintf(out, "| %s | **%.1f** (%.1f-%.1f) | %.1f | %s | %.1f | %.0f | %.2f | %.2f | %d |\n", name, median(rs, cpu),
			slices.MinFunc(rs, byCPU).cpu, slices.MaxFunc(rs, byCPU).cpu,
			median(rs, func(r result) float64 { return r.asked }), ratio, median(rs, func(r result) float64 { return r.redis }),
			median(rs, func(r result) float64 { return r.requests }),
			median(rs, func(r result) float64 { return r.p50 }), median(rs, func(r result) float64 { return r.p99 }), odd)
	}
}

// loadAverage is that of the last minute. What was measured at rest has one of 3 at
// most: the contestant, what puts the load, and the upstream.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
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
