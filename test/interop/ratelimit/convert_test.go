// Package ratelimit compares Weir with envoyproxy/ratelimit, by the code of the latter.
package ratelimit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	theirs "github.com/envoyproxy/ratelimit/src/config"
	theirlimiter "github.com/envoyproxy/ratelimit/src/limiter"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	"github.com/envoyproxy/ratelimit/src/utils"
	gostats "github.com/lyft/gostats"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/convert"
	"github.com/weir-proxy/weir/proxy/route"
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
	c, err := config.Parse("weir.yaml", yaml, func(string) (string, bool) { return "", false })
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
