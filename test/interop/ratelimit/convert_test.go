// Package ratelimit compares Weir with envoyproxy/ratelimit, by the code of the latter.
package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	units "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	theirs "github.com/envoyproxy/ratelimit/src/config"
	theirlimiter "github.com/envoyproxy/ratelimit/src/limiter"
	_ "github.com/envoyproxy/ratelimit/src/service_cmd/runner" // the program is built
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	"github.com/envoyproxy/ratelimit/src/utils"
	gostats "github.com/lyft/gostats"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/convert"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/test/redistest"
)

const domain = "edge"

// writeRules writes random rules for entries with some of these keys, in this order.
func writeRules(w *strings.Builder, random *rand.Rand, keys []string, indent string) {
	written := map[string]bool{}
	for range 1 + random.IntN(5) {
		at := random.IntN(len(keys))
		value := []string{"", "", "x", "xy", "xyz", "z", "x*", "xy*", "z*", "*"}[random.IntN(10)]
		if id := keys[at] + "=" + value; written[id] {
			continue
		} else {
			written[id] = true
		}
		fmt.Fprintf(w, "%s- key: %s\n", indent, keys[at])
		if value != "" {
			fmt.Fprintf(w, "%s  value: %q\n", indent, value)
		}
		if strings.HasSuffix(value, "*") && random.IntN(2) == 0 {
			fmt.Fprintf(w, "%s  share_threshold: true\n", indent)
		}
		if random.IntN(4) == 0 {
			fmt.Fprintf(w, "%s  shadow_mode: true\n", indent)
		}
		if random.IntN(6) == 0 {
			fmt.Fprintf(w, "%s  detailed_metric: true\n", indent)
		}
		switch random.IntN(8) {
		case 0, 1: // none
		case 2:
			fmt.Fprintf(w, "%s  rate_limit: {unlimited: true}\n", indent)
		default:
			unit := []string{"hour", "DAY", "week", "month", "year"}[random.IntN(5)]
			fmt.Fprintf(w, "%s  rate_limit: {unit: %s, requests_per_unit: %d}\n", indent, unit, random.IntN(4))
		}
		if at+1 < len(keys) && random.IntN(3) > 0 {
			fmt.Fprintf(w, "%s  descriptors:\n", indent)
			writeRules(w, random, keys[at+1:], indent+"  ")
		}
	}
}

// randomDescriptor returns a descriptor with some of these keys, in this order.
func randomDescriptor(random *rand.Rand, keys []string) (d route.Descriptor) {
	for _, key := range keys {
		if random.IntN(3) > 0 || len(d) == 0 && key == keys[len(keys)-1] {
			d = append(d, route.DescriptorField{Key: key, Value: []string{"", "x", "xy", "xyz", "xyzz", "z", "zz", "*", "other"}[random.IntN(9)]})
		}
	}
	return d
}

// A rateLimitService is envoyproxy/ratelimit with a configuration, and counts in a map.
type rateLimitService struct {
	theirs.RateLimitConfig
	keys   theirlimiter.CacheKeyGenerator
	counts map[string]uint32
}

// newRateLimitService returns nil for a configuration that is none.
func newRateLimitService(text string) (s *rateLimitService, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	manager := stats.NewStatManager(gostats.NewStore(gostats.NewNullSink(), false), settings.Settings{})
	loaded := theirs.NewRateLimitConfigImpl([]theirs.RateLimitConfigToLoad{{Name: "file", ConfigYaml: theirs.ConfigFileContentToYaml("file", text)}}, manager, false)
	return &rateLimitService{loaded, theirlimiter.NewCacheKeyGenerator(""), map[string]uint32{}}, nil
}

// An answer is what both say about a descriptor.
type answer struct {
	rate            limiter.Rate // zero for none, and for a limit in shadow mode
	refused, shadow bool
	remaining       int64
}

// ask asks about a descriptor that is sent once.
func (s *rateLimitService) ask(t *testing.T, d route.Descriptor) (a answer) {
	sent := &envoy.RateLimitDescriptor{}
	for _, f := range d {
		sent.Entries = append(sent.Entries, &envoy.RateLimitDescriptor_Entry{Key: f.Key, Value: f.Value})
	}
	l := s.GetLimit(t.Context(), domain, sent)
	if l == nil || l.Unlimited {
		return a
	}
	k := s.keys.GenerateCacheKey(domain, sent, l, 0).Key
	s.counts[k]++
	over := s.counts[k] > l.Limit.RequestsPerUnit
	if l.ShadowMode {
		return answer{shadow: over && l.Limit.RequestsPerUnit > 0} // what never passes has no shadow in Weir
	}
	a.refused = over
	if l.Limit.RequestsPerUnit > 0 {
		a.rate = limiter.Rate{Count: int64(l.Limit.RequestsPerUnit), Window: time.Duration(utils.UnitToDivider(l.Limit.Unit)) * time.Second}
		a.remaining = max(0, int64(l.Limit.RequestsPerUnit)-int64(s.counts[k]))
	}
	return a
}

// newWeir returns a Proxy with a converted configuration.
func newWeir(t *testing.T, text string) (p *proxy.Proxy, yaml []byte) {
	t.Helper()
	result, err := convert.Convert("ratelimit", "file", strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return serve(t, result.YAML), result.YAML
}

// serve returns a Proxy with a configuration.
func serve(t *testing.T, yaml []byte) *proxy.Proxy {
	t.Helper()
	c, err := config.LoadText("weir.yaml", yaml)
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	p, err := proxy.New(t.Context(), proxy.Options{Config: c, Store: limiter.NewMemory(limiter.MemoryOptions{}), Registry: prometheus.NewRegistry(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask asks about a descriptor that is sent once.
func ask(t *testing.T, p *proxy.Proxy, d route.Descriptor) (a answer) {
	q := &proxy.DescriptorQuestion{
		Listener: "decide/envoy", Domain: domain, Method: "POST", Path: "/", Deadline: time.Now().Add(time.Minute),
		Descriptors: []proxy.AskedDescriptor{{Descriptor: d, Hits: 1}},
	}
	p.DecideDescriptors(t.Context(), q, func(got *proxy.DescriptorAnswer) {
		s := got.Statuses[0]
		a = answer{rate: s.Rate, refused: s.Refused, shadow: s.Shadow, remaining: s.Remaining}
		if s.Refused == got.Allowed {
			t.Errorf("%v: %+v, but allowed is %v", d, s, got.Allowed)
		}
	})
	return a
}

// A converted configuration finds the same limits as envoyproxy/ratelimit, or none where that finds none, and
// counts what that counts together.
func TestConvert_FindsTheSameLimits(t *testing.T) {
	limited, refused, shadow, tried := 0, 0, 0, 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 26))
		keys := []string{"a", "b", "c"}
		var text strings.Builder
		fmt.Fprintf(&text, "domain: %s\ndescriptors:\n", domain)
		writeRules(&text, random, keys, "  ")
		s, err := newRateLimitService(text.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, &text)
		}
		if !slices.ContainsFunc([]string{"requests_per_unit: 1", "requests_per_unit: 2", "requests_per_unit: 3"}, func(r string) bool { return strings.Contains(text.String(), r) }) {
			continue
		}
		p, yaml := newWeir(t, text.String())
		for range 300 {
			d := randomDescriptor(random, keys)
			want, got := s.ask(t, d), ask(t, p, d)
			tried++
			limited += count(want.rate.Count > 0)
			refused += count(want.refused)
			shadow += count(want.shadow)
			if got != want {
				t.Fatalf("seed %d: %v: Weir says %+v, ratelimit %+v\n%s\n%s", seed, d, got, want, &text, yaml)
			}
		}
		p.Close()
	}
	t.Logf("%d descriptors: %d limited, %d refused, %d over a limit in shadow mode", tried, limited, refused, shadow)
	if limited < 5_000 || refused < 3_000 || shadow < 500 {
		t.Error("the configurations have too few limits to compare")
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// at is a time at which no two units begin, in seconds: envoyproxy/ratelimit counts two that begin together as one.
const at = 1_700_000_123

// With rate_from a limit of a descriptor replaces the configured one as in envoyproxy/ratelimit: each unit has a count of its own,
// which the number does not change. What envoyproxy/ratelimit refuses uses up the limit there, and nothing in Weir.
func TestOverride_CountsLikeRatelimit(t *testing.T) {
	service, err := newRateLimitService("domain: edge\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 20}}]\n")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, []byte(`
listen: {http: none, decide: {grpc: "127.0.0.1:0"}}
routes:
  - {name: user, match: {domain: edge, descriptor: {user: "*"}}, limits: [{name: user, key: "descriptor:user", rate: 20/1h, rate_from: descriptor}]}
`))
	random := rand.New(rand.NewPCG(1, 2))
	refusals := 0
	for i := range 2000 {
		d := route.Descriptor{{Key: "user", Value: fmt.Sprint(random.IntN(5))}}
		sent := &envoy.RateLimitDescriptor{Entries: []*envoy.RateLimitDescriptor_Entry{{Key: "user", Value: d[0].Value}}}
		asked := proxy.AskedDescriptor{Descriptor: d, Hits: 1}
		if unit := random.IntN(7); unit > 1 { // a second would be over
			sent.Limit = &envoy.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(1 + random.IntN(60)), Unit: units.RateLimitUnit(unit)}
			asked.Rate = &limiter.Rate{Count: int64(sent.Limit.RequestsPerUnit), Window: limit.RateLimitUnits()[unit]}
		}
		l := service.GetLimit(t.Context(), domain, sent)
		k := service.keys.GenerateCacheKey(domain, sent, l, at).Key
		want := answer{rate: limiter.Rate{Count: int64(l.Limit.RequestsPerUnit), Window: time.Duration(utils.UnitToDivider(l.Limit.Unit)) * time.Second}}
		if want.refused = service.counts[k] >= l.Limit.RequestsPerUnit; want.refused {
			refusals++
		} else {
			service.counts[k]++
			want.remaining = int64(l.Limit.RequestsPerUnit - service.counts[k])
		}
		var got answer
		q := &proxy.DescriptorQuestion{Listener: "decide/envoy", Domain: domain, Method: "POST", Path: "/", Deadline: time.Now().Add(time.Minute), Descriptors: []proxy.AskedDescriptor{asked}}
		p.DecideDescriptors(t.Context(), q, func(a *proxy.DescriptorAnswer) {
			s := a.Statuses[0]
			got = answer{rate: s.Rate, refused: s.Refused, remaining: s.Remaining}
		})
		if got != want {
			t.Fatalf("call %d, %v: %+v, want %+v", i, sent, got, want)
		}
	}
	if refusals < 100 {
		t.Errorf("%d refusals of 2000 calls; want more to compare", refusals)
	}
}

// benchLimits are limits that refuse nobody.
const benchLimits = "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}\n  - {key: tenant, rate_limit: {unit: hour, requests_per_unit: 1000000000}}\n"

// BenchmarkDecision measures the time of a processor that a call of the service takes, in Weir and in
// envoyproxy/ratelimit, each with a Redis of its own. Each operation is one call.
func BenchmarkDecision(b *testing.B) {
	dir := b.TempDir()
	theirs := filepath.Join(dir, "theirs")
	if out, err := exec.Command("go", "build", "-o", theirs, "github.com/envoyproxy/ratelimit/src/service_cmd").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "ratelimit", "config", "edge.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(benchLimits), 0o600); err != nil {
		b.Fatal(err)
	}
	ours := filepath.Join(filepath.Dir(os.Getenv("WEIR_AS_RATELIMIT")), "weir")
	converted, err := exec.Command(ours, "convert", "ratelimit", file).Output()
	if err != nil {
		b.Fatal(err)
	}
	for _, descriptors := range []int{1, 2} {
		b.Run(fmt.Sprintf("weir/descriptors-%d", descriptors), func(b *testing.B) {
			redis, rpc := redistest.Start(b), redistest.FreeAddr(b)
			text := strings.Replace(string(converted), `{grpc: "127.0.0.1:8081"}`, fmt.Sprintf("{grpc: %q, within: 5s}", rpc), 1) +
				fmt.Sprintf("admin: {http: \"127.0.0.1:0\"}\nstore: redis\nredis: {addrs: [%q], timeout: 5s}\n", redis.Addr)
			weir := filepath.Join(b.TempDir(), "weir.yaml")
			if err := os.WriteFile(weir, []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
			measure(b, exec.Command(ours, "run", "-c", weir, "--log-level", "error"), rpc, descriptors)
		})
		b.Run(fmt.Sprintf("ratelimit/descriptors-%d", descriptors), func(b *testing.B) {
			redis, port := redistest.Start(b), redistest.FreePort(b)
			c := exec.Command(theirs)
			// Without Prometheus it would write each time that it measures to its log.
			c.Env = append(os.Environ(), "USE_STATSD=false", "USE_PROMETHEUS=true", fmt.Sprintf("PROMETHEUS_ADDR=127.0.0.1:%d", redistest.FreePort(b)), "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr,
				"RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
				fmt.Sprint("PORT=", redistest.FreePort(b)), fmt.Sprint("DEBUG_PORT=", redistest.FreePort(b)), fmt.Sprint("GRPC_PORT=", port))
			measure(b, c, fmt.Sprintf("127.0.0.1:%d", port), descriptors)
		})
	}
}

// measure runs a service and calls it b.N times, from 32 callers over four connections.
func measure(b *testing.B, c *exec.Cmd, address string, descriptors int) {
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		c.Process.Kill()
		c.Wait()
		if b.Failed() {
			b.Log(said.String())
		}
	}()
	var clients []service.RateLimitServiceClient
	for range 4 {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		clients = append(clients, service.NewRateLimitServiceClient(conn))
	}
	call := func(i int) {
		r := &service.RateLimitRequest{Domain: "edge"}
		for _, key := range []string{"user", "tenant"}[:descriptors] {
			r.Descriptors = append(r.Descriptors, &envoy.RateLimitDescriptor{Entries: []*envoy.RateLimitDescriptor_Entry{{Key: key, Value: strconv.Itoa(i % 10_000)}}})
		}
		answer, err := clients[i%len(clients)].ShouldRateLimit(context.Background(), r)
		if err != nil || answer.OverallCode != service.RateLimitResponse_OK || answer.Statuses[0].CurrentLimit == nil {
			b.Errorf("%v, %v", answer, err)
		}
	}
	for i := range 2_000 { // connections, scripts, the heap
		call(i)
	}
	took := make([][]time.Duration, 32)
	began := cpu(b, c.Process.Pid)
	b.ResetTimer()
	var all sync.WaitGroup
	for g := range took {
		all.Go(func() {
			for i := g; i < b.N; i += len(took) {
				at := time.Now()
				call(i)
				took[g] = append(took[g], time.Since(at))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	times := slices.Concat(took...)
	slices.Sort(times)
	b.ReportMetric(float64((cpu(b, c.Process.Pid)-began).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

// cpu returns the time of processors that a process has used.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
