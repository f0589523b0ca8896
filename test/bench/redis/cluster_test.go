package redis

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// A deployment is one Redis, or a cluster of several masters without replicas.
type deployment struct {
	name   string
	mode   redisstore.Mode
	addrs  []string
	clouds []*redis.Client // a client of each master
}

func newDeployment(b *testing.B, masters int) *deployment {
	d := &deployment{name: "one Redis", mode: redisstore.Single}
	if masters == 1 {
		d.addrs = []string{redistest.Start(b).Addr}
	} else {
		d.name, d.mode, d.addrs = fmt.Sprint(masters, " masters"), redisstore.Cluster, redistest.StartMasters(b, masters).Addrs()
	}
	for _, addr := range d.addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		b.Cleanup(func() { client.Close() })
		d.clouds = append(d.clouds, client)
	}
	return d
}

var infoNumber = regexp.MustCompile(`(?m)^(used_cpu_user_main_thread|used_cpu_sys_main_thread|cmdstat_evalsha:calls)[:=]([0-9.]+)`)

// used returns the seconds of CPU that the main threads of all masters have used, and how many script calls they have run.
func (d *deployment) used(b *testing.B) (seconds, calls float64) {
	for _, c := range d.clouds {
		for _, section := range []string{"cpu", "commandstats"} {
			info, err := c.Info(b.Context(), section).Result()
			if err != nil {
				b.Fatal(err)
			}
			for _, found := range infoNumber.FindAllStringSubmatch(info, -1) {
				n, _ := strconv.ParseFloat(found[2], 64)
				if found[1] == "cmdstat_evalsha:calls" {
					calls += n
				} else {
					seconds += n
				}
			}
		}
	}
	return seconds, calls
}

// A load is what callers of several nodes ask for.
type load struct {
	name    string
	claims  func(n int) []limiter.Claim // of the n-th request
	refused bool                        // by the last key
	forgets bool                        // that a key was refused: otherwise only the first refusals cost Redis anything
}

func loads() []load {
	limit := func(name string, count int64) *limiter.Limit {
		return &limiter.Limit{Name: name, Rate: rate(count, time.Hour), Algorithm: limiter.SlidingLog}
	}
	names := []*limiter.Limit{limit("a", 10), limit("b", 10), limit("c", 10)}
	keys := func(n, of int) (all []limiter.Claim) {
		for i := range of {
			all = append(all, limiter.Claim{Limit: names[i], Key: keyOf(of*n + i), Cost: 1})
		}
		return all
	}
	hot, full, bucket := limit("hot", limiter.MaxCount), limit("full", 1), *names[0]
	hot.Algorithm, bucket.Algorithm = limiter.FixedWindow, limiter.TokenBucket
	fullKey := func(n int) []limiter.Claim {
		return append(keys(n, 1), limiter.Claim{Limit: full, Key: keyOf(-1 - n%16), Cost: 1})
	}
	noted := *names[0]
	noted.Noted = true
	return []load{
		{name: "one key", claims: func(n int) []limiter.Claim { return keys(n, 1) }},
		{name: "one key, token_bucket", claims: func(n int) []limiter.Claim {
			return []limiter.Claim{{Limit: &bucket, Key: keyOf(n), Cost: 1}}
		}},
		{name: "two keys", claims: func(n int) []limiter.Claim { return keys(n, 2) }},
		{name: "three keys", claims: func(n int) []limiter.Claim { return keys(n, 3) }},
		{name: "second key refuses", refused: true, claims: fullKey},
		{name: "second key refuses, forgotten", refused: true, forgets: true, claims: fullKey},
		{name: "noted", claims: func(n int) []limiter.Claim {
			return []limiter.Claim{{Limit: &noted, Key: keyOf(n), Value: keyOf(-1 - n), Cost: 1}}
		}},
		{name: "hot key", claims: func(int) []limiter.Claim { return []limiter.Claim{{Limit: hot, Key: keyOf(0), Cost: 1}} }},
	}
}

// run has callers of nodes make requests, and returns what each cost all masters: µs of CPU, and script calls; and how long
// the caller in the middle waited, in µs.
func (d *deployment) run(b *testing.B, l load, nodes, callers, requests int) (cpu, calls, waited float64) {
	var stores []*redisstore.Store
	for range nodes {
		client, err := redisstore.NewClient(redisstore.ClientConfig{Mode: d.mode, Addrs: d.addrs, Timeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		options := redisstore.Options{Timeout: time.Minute}
		if l.forgets {
			options.CachedRefusals = -1
		}
		store := redisstore.New(client, options)
		defer store.Close()
		stores = append(stores, store)
	}
	var next atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	ask := func(until int) {
		var all sync.WaitGroup
		for i := range nodes * callers {
			all.Go(func() {
				var decision limiter.Decision
				var own []time.Duration
				for n := int(next.Add(1)); n <= until; n = int(next.Add(1)) {
					began := time.Now()
					err := stores[i%nodes].Take(b.Context(), l.claims(n), &decision)
					if own = append(own, time.Since(began)); err != nil || until > requests/10 && decision.Allowed == l.refused {
						b.Errorf("%+v, %v", decision, err)
						return
					}
				}
				mu.Lock()
				took = append(took, own...)
				mu.Unlock()
			})
		}
		all.Wait()
	}
	for _, c := range d.clouds {
		c.FlushAll(b.Context())
	}
	ask(requests / 10) // connections, scripts, and keys that refuse
	next.Store(int64(requests / 10))
	took = nil
	seconds, before := d.used(b)
	ask(requests + requests/10)
	usedSeconds, after := d.used(b)
	slices.Sort(took)
	return (usedSeconds - seconds) * 1e6 / float64(requests), (after - before) / float64(requests), float64(took[len(took)/2].Nanoseconds()) / 1000
}

// BenchmarkCluster prints what a decision costs all masters of a cluster together beside one Redis, in turn: the median of
// several rounds. LOAD names a part of the loads.
func BenchmarkCluster(b *testing.B) {
	const rounds, requests = 5, 20_000
	all := []*deployment{newDeployment(b, 1), newDeployment(b, 3), newDeployment(b, 6)}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nnodes x callers\tload\tdeployment\tµs\tto one Redis\tscript calls\tcaller waits µs\t")
	for _, callers := range []int{64, 256} {
		for _, l := range loads() {
			if !strings.Contains(l.name, os.Getenv("LOAD")) {
				continue
			}
			cpu, calls, waits := make([][]float64, len(all)), make([][]float64, len(all)), make([][]float64, len(all))
			for range rounds {
				for i, d := range all {
					used, made, waited := d.run(b, l, 4, callers, requests)
					cpu[i], calls[i], waits[i] = append(cpu[i], used), append(calls[i], made), append(waits[i], waited)
				}
			}
			for i, d := range all {
				fmt.Fprintf(w, "4 x %d\t%s\t%s\t%.1f\t%.2f\t%.2f\t%.0f\t\n", callers, l.name, d.name,
					median(cpu[i]), median(cpu[i])/median(cpu[0]), median(calls[i]), median(waits[i]))
			}
		}
	}
	w.Flush()
}
