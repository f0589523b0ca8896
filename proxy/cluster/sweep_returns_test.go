package cluster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// returning are the limits that a proxy makes of one with return_on: its rates, and what shadow mode would
// have refused.
func returning(name string) map[string][]*limiter.Limit {
	of := func(suffix string, window time.Duration) *limiter.Limit {
		return &limiter.Limit{Name: name + suffix, Rate: limiter.Rate{Count: 3, Window: window}, Noted: true}
	}
	hour, day := of(":1h", time.Hour), of(":1d", 24*time.Hour)
	for _, l := range []*limiter.Limit{hour, day} {
		l.Algorithm, l.Conversion = limiter.Conversion, 50
	}
	return map[string][]*limiter.Limit{
		"conversion": {hour, day}, "shadow": {of(":shadow:refused", 24*time.Hour)},
		"cooldown": {{Name: name + ":cooldown", Algorithm: limiter.Cooldown, Rate: limiter.Rate{Count: 1, Window: time.Hour}, Steps: []time.Duration{time.Minute}}},
	}
}

// takes lets the store take for a subject under all of these limits, and return what it took for another.
func (f *field) takes(limits map[string][]*limiter.Limit) {
	f.t.Helper()
	store := redisstore.New(f.rdb, redisstore.Options{Prefix: "test", Timeout: 5 * time.Second, CachedRefusals: -1})
	defer store.Close()
	for _, windows := range limits {
		for _, subject := range []limiter.Key{limiter.KeyOf("ann"), limiter.KeyOf("bob")} {
			var claims []limiter.Claim
			for _, l := range windows {
				claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf("CN", subject.String()), Cost: 1, Value: subject})
			}
			var d limiter.Decision
			if err := store.Take(f.t.Context(), claims, &d); err != nil || !d.Allowed {
				f.t.Fatal(d, err)
			}
		}
		if windows[0].Noted {
			if n, err := store.Return(f.t.Context(), windows, limiter.KeyOf("bob")); n != 1 || err != nil {
				f.t.Fatal(n, err)
			}
		}
	}
}

// All that a limit with return_on leaves expires by itself, and is deleted when the limit is removed.
func TestSweep_NothingOfReturnsStays(t *testing.T) {
	t.Parallel()
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.takes(returning("send.phone"))
	want := f.keys()
	f.takes(returning("send.old"))
	for _, sign := range []string{"{v}", "{n}", "{c}", ":shadow{n}", ":shadow:refused:value"} {
		if !slices.ContainsFunc(f.keys(), func(key string) bool { return strings.HasSuffix(key, "send.old"+sign) }) {
			t.Errorf("no key ends in %s: %q", sign, f.keys())
		}
	}
	for _, key := range f.keys() {
		if ttl := f.rdb.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 31*24*time.Hour {
			t.Errorf("%s lives for %v", key, ttl)
		}
	}
	f.sweep(0)
	if got := f.keys(); !slices.Equal(got, want) {
		t.Errorf("the sweep left\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The keys of a conversion are found, and its subjects are none of them.
func TestCounted_FindsConversions(t *testing.T) {
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.takes(returning("send.old"))
	all, whole, err := f.node.Counted(t.Context(), map[string]bool{"send.old:1h": true})
	for _, c := range all {
		if c.Key == limiter.KeyOf("ann") || c.Key == limiter.KeyOf("bob") {
			t.Errorf("the subject %v is among the keys", c.Key)
		}
	}
	if err != nil || !whole || len(all) != 2 {
		t.Errorf("Counted = %v, %v, %v; want the two countries", all, whole, err)
	}
}
