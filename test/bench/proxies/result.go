package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// A result is one measured run.
type result struct {
	round      int
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
	printPairs(out, all["weir"], all["weir-other"])
}

// printPairs prints what a request costs in one binary of Weir by what it costs in the
// other one, from runs of the same round: the mean of the logarithms of the ratios, and
// two of its standard errors to each side.
func printPairs(out io.Writer, weir, other []result) {
	var sum, squares, n float64
	for _, a := range weir {
		for _, b := range other {
			if a.round == b.round && a.cpu > 0 && b.cpu > 0 {
				ratio := math.Log(a.cpu / b.cpu)
				sum, squares, n = sum+ratio, squares+ratio*ratio, n+1
			}
		}
	}
	if n < 2 {
		return
	}
	mean := sum / n
	off := 2 * math.Sqrt(max(squares/n-mean*mean, 0)/(n-1))
	fmt.Fprintf(out, "\nweir to weir-other, round by round: %.3f (%.3f to %.3f, of %.0f rounds)\n", math.Exp(mean), math.Exp(mean-off), math.Exp(mean+off), n)
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

// A workload is what is asked of every contestant.
type workload struct {
	name, what string
	store      string // memory or redis
	limit      int    // requests a second for each key; 0 is no limit
	limits     int    // that are on the same key: the others are wider, and never refuse
	keys       int    // keys in rotation
	refuses    bool   // nearly everything is refused
	routes     int    // 0 is one for everything; of several, the last is asked for
	answer     int    // bytes of the answer's body
	upload     int    // bytes of the request's body; 0 is a GET
	tls        bool
	http2      bool // 8 requests at once on each of 8 connections; with prior knowledge where there is no tls
	rate       int  // requests a second, sent whether or not answers come; 0 is as many as answers allow
	idle       int  // connections beside those of the load that say nothing
	log        bool
	fields     string // more fields of Weir's limits, which no other contestant has
	asks       bool   // beside an nginx that asks Weir, and one that only forwards
	sameFields bool   // beside an nginx that sets the fields that Weir sets, as well
}

const (
	short  = 1 << 10
	middle = 100 << 10
	long   = 10 << 20
)

const (
	conversion = `return_on: {route: verify, key: "header:X-Api-Key"}, conversion: 35%, mode: enforce`
	lease      = `algorithm: sliding_log, lease: 100ms`
	stepUp     = `step_up: {rate: 100/1s, jwt: {secret: "a secret for tokens of challenges"}}`
)

func workloads() []workload {
	all := []workload{
		{name: "plain", what: "no limit", keys: 1, sameFields: true},
		{name: "memory", what: "100 a second for each of 10,000 keys, in memory", limit: 100, keys: 10_000, sameFields: true},
		{name: "refused", what: "10 a second for one key, in memory: nearly all are refused", limit: 10, keys: 1, refuses: true},
		{name: "redis", what: "100 a second for each of 10,000 keys, in Redis", limit: 100, keys: 10_000, store: "redis"},
		{name: "redis-refused", what: "10 a second for one key, in Redis: nearly all are refused", limit: 10, keys: 1, store: "redis", refuses: true},
		{name: "redis-hot", what: "a million a second for one key, in Redis; Weir takes permits ahead (lease)", limit: 1_000_000, keys: 1, store: "redis", fields: lease},
		{name: "limits-3", what: "as memory, with three limits on the key", limit: 100, limits: 3, keys: 10_000},
		{name: "limits-6", what: "as memory, with six limits on the key", limit: 100, limits: 6, keys: 10_000},
		{name: "redis-limits-3", what: "as redis, with three limits on the key", limit: 100, limits: 3, keys: 10_000, store: "redis"},
		{name: "conversion", what: "as memory, of requests that are not used, with 35% as the least conversion", limit: 100, keys: 10_000, fields: conversion},
		{name: "redis-conversion", what: "as conversion, in Redis", limit: 100, keys: 10_000, store: "redis", fields: conversion},
		{name: "step-up", what: "as memory, with step_up, which no request needs", limit: 100, keys: 10_000, fields: stepUp},
		{name: "redis-step-up", what: "as step-up, in Redis", limit: 100, keys: 10_000, store: "redis", fields: stepUp},
		{name: "decide", what: "as memory; an nginx that asks Weir about each request, and one that has no limit", limit: 100, keys: 10_000, asks: true},
		{name: "decide-refused", what: "as refused; an nginx that asks Weir about each request, and one that limits by itself", limit: 10, keys: 1, refuses: true, asks: true},
		{name: "routes-1000", what: "as plain, by the last of 1,000 routes", keys: 1, routes: 1000},
		{name: "down-100k", what: "as plain, answers of 100 KiB", keys: 1, answer: middle},
		{name: "down-10m", what: "as plain, answers of 10 MiB", keys: 1, answer: long},
		{name: "up-100k", what: "as plain, requests of 100 KiB", keys: 1, upload: middle},
		{name: "up-10m", what: "as plain, requests of 10 MiB", keys: 1, upload: long},
		{name: "tls", what: "as plain, clients speak TLS", keys: 1, tls: true},
		{name: "http2", what: "as tls, in HTTP/2: 8 connections with 8 requests at once", keys: 1, tls: true, http2: true},
		{name: "http2-refused", what: "as http2, with a limit as in refused", limit: 10, keys: 1, tls: true, http2: true, refuses: true},
		{name: "h2c", what: "as http2, without TLS", keys: 1, http2: true},
		{name: "h2c-refused", what: "as http2-refused, without TLS", limit: 10, keys: 1, http2: true, refuses: true},
		{name: "idle", what: "as plain, beside 5,000 connections that say nothing", keys: 1, idle: 5000},
		{name: "log", what: "as plain, with a line in the access log for each request", keys: 1, log: true, sameFields: true},
		{name: "open", what: "as plain, 5,000 requests a second whether or not answers come", keys: 1, rate: 5000},
		{name: "open-decide", what: "as decide, 1,000 requests a second whether or not answers come", limit: 100, keys: 10_000, rate: 1000, asks: true},
		{name: "open-redis", what: "as redis, 5,000 requests a second whether or not answers come", limit: 100, keys: 10_000, store: "redis", rate: 5000},
	}
	for i := range all {
		w := &all[i]
		if w.store == "" {
			w.store = "memory"
		}
		if w.answer == 0 {
			w.answer = short
		}
		if w.limit > 0 && w.limits == 0 {
			w.limits = 1
		}
	}
	return all
}

// scheme is that of the URLs that are asked for.
func (w *workload) scheme() string {
	if w.tls {
		return "https"
	}
	return "http"
}
