package redisstore_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// refusers are ways to make a Redis refuse writes, while it answers reads, with words of the reason. dir is its folder.
func refusers(t *testing.T) map[string]func(c redis.UniversalClient, dir string) {
	set := func(c redis.UniversalClient, name, value string) {
		if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func(redis.UniversalClient, string){
		"is full":              func(c redis.UniversalClient, _ string) { set(c, "maxmemory", "1") },
		"has too few replicas": func(c redis.UniversalClient, _ string) { set(c, "min-replicas-to-write", "1") },
		"is a read-only replica": func(c redis.UniversalClient, _ string) {
			if err := c.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
				t.Fatal(err)
			}
		},
		"cannot save to its disk": func(c redis.UniversalClient, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			set(c, "save", "3600 1")
			if err := c.BgSave(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "saving has failed", func() bool {
				return strings.Contains(c.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
			})
		},
	}
}

// A Redis that answers, and refuses writes, cannot be relied on: Check says why, and calls open the breaker.
func TestCheck_RefusesWrites(t *testing.T) {
	t.Parallel()
	for why, refuse := range refusers(t) {
		t.Run(why, func(t *testing.T) {
			dir := t.TempDir()
			server := redistest.Start(t, "--dir", dir)
			store := storeOn(t, clientOf(t, redisstore.ClientConfig{Addrs: []string{server.Addr}, Timeout: patient, BreakAfter: 3, BreakRest: 300 * time.Millisecond}), redisstore.Options{Timeout: patient, CachedRefusals: -1})
			if _, err := store.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			plain := storeOn(t, connect(t, server.Addr), redisstore.Options{Timeout: patient, CachedRefusals: -1})
			var taken [][]limiter.Claim
			var permits []limiter.Permit
			for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.FixedWindow} {
				c := claim(5, time.Hour, 1)
				c[0].Limit.Algorithm, c[0].Key = a, limiter.KeyOf(a.String())
				taken, permits = append(taken, c), append(permits, decide(t, plain, c...).Permit)
			}
			refuse(connect(t, server.Addr), dir)
			for i := range taken {
				if err := plain.Refund(t.Context(), taken[i], permits[i]); redisstore.WhyNotWritable(err) == "" {
					t.Errorf("a refund of %v: %v; want that Redis %s", taken[i][0].Limit.Algorithm, err, why)
				}
			}
			for range 3 {
				_, err := store.Check(t.Context())
				if !errors.Is(err, redisstore.ErrNotWritable) || !strings.Contains(err.Error(), why) {
					t.Errorf("Check: %v; want that Redis %s", err, why)
				}
			}
			eventually(t, "the breaker is open", func() bool {
				var d limiter.Decision
				err := store.Take(t.Context(), claim(5, time.Hour, 1), &d)
				return errors.Is(err, redisstore.ErrOpen) && errors.Is(err, limiter.ErrUnavailable)
			})
		})
	}
}

// What a Redis that refuses writes is told of is not lost: it is told again.
func TestReport_WhileRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	s.do("config", "set", "maxmemory", "1")
	c := claim(5, time.Hour, 1)
	s.store.Report(c, limiter.Permit{ID: [16]byte{1}, At: time.Now()})
	s.until("Redis has refused the report", func() bool {
		return strings.Contains(s.client.Info(t.Context(), "errorstats").Val(), "errorstat_OOM")
	})
	s.do("config", "set", "maxmemory", "0")
	s.until("everything is reported", func() bool { return s.store.Unreported() == 0 })
	s.left(c, 4)
}

// An outage in which Redis refuses writes begins with the call that opens the breaker, even if that rejects none, and goes on,
// however well Redis answers, until it writes again.
func TestOutage_LastsWhileRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := storeOn(t, clientOf(t, redisstore.ClientConfig{Addrs: []string{server.Addr}, Timeout: patient, BreakAfter: 2, BreakRest: time.Nanosecond}), redisstore.Options{Timeout: patient, CachedRefusals: -1, Grace: time.Millisecond})
	direct := connect(t, server.Addr)
	limitMemory := func(to string) {
		if err := direct.ConfigSet(t.Context(), "maxmemory", to).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limitMemory("1")
	var d limiter.Decision
	for left := 2; left > 0; left-- {
		if !store.Available() {
			t.Fatalf("the outage begins %d calls too early", left)
		}
		if err := store.Take(t.Context(), claim(5, time.Hour, 1), &d); redisstore.WhyNotWritable(err) == "" {
			t.Fatalf("%v; want that Redis refuses writes", err)
		}
	}
	if store.Available() {
		t.Error("the call that opened the breaker has begun no outage")
	}
	probes := func() int {
		_, rest, _ := strings.Cut(direct.Info(t.Context(), "errorstats").Val(), "errorstat_OOM:count=")
		n, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
		return n
	}
	for before := probes(); probes() < before+4; {
		if store.Available() || store.Settling() {
			t.Fatal("the outage ended while Redis refused writes")
		}
	}
	limitMemory("0")
	eventually(t, "the outage ends", store.Available)
}
