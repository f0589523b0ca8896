package redisstore_test

import (
	"cmp"
	"crypto/tls"
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

// checked returns the result of Check for a client of this configuration.
func checked(t *testing.T, c redisstore.ClientConfig) (warning string, err error) {
	t.Helper()
	c.Timeout = cmp.Or(c.Timeout, patient)
	s := storeOn(t, clientOf(t, c), redisstore.Options{Timeout: c.Timeout, CachedRefusals: -1})
	return s.Check(t.Context())
}

// A Redis that may evict counts is warned of: one with a limit of memory and a policy
// other than noeviction. Without a limit it evicts nothing.
func TestCheck_Eviction(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"":             {"--maxmemory", "100mb"},
		" ":            {"--maxmemory-policy", "allkeys-lru"},
		"allkeys-lru":  {"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
		"volatile-ttl": {"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"},
	} {
		server := redistest.Start(t, args...)
		warning, err := checked(t, redisstore.ClientConfig{Addrs: []string{server.Addr}})
		want = strings.TrimSpace(want)
		if err != nil || (warning == "") != (want == "") || !strings.Contains(warning, want) {
			t.Errorf("%v: %q, %v; want a warning of %q", args, warning, err, want)
		}
	}
	cluster := redistest.StartCluster(t, 3)
	c := redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: cluster.Addrs()}
	if warning, err := checked(t, c); warning != "" || err != nil {
		t.Errorf("a cluster: %q, %v", warning, err)
	}
	master := redis.NewClient(&redis.Options{Addr: cluster.Nodes[1].Addr})
	defer master.Close()
	for name, value := range map[string]string{"maxmemory": "100mb", "maxmemory-policy": "allkeys-lfu"} {
		if err := master.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if warning, err := checked(t, c); !strings.Contains(warning, "allkeys-lfu") || !strings.Contains(warning, cluster.Nodes[1].Addr) || err != nil {
		t.Errorf("a cluster of which one master evicts: %q, %v", warning, err)
	}
}

// A deployment of another kind than the client is for is recognized.
func TestCheck_Mode(t *testing.T) {
	t.Parallel()
	single, cluster, sentinel := redistest.Start(t), redistest.StartCluster(t, 3), redistest.StartSentinel(t)
	for what, c := range map[string]redisstore.ClientConfig{
		"single for a cluster":    {Addrs: cluster.Addrs()[:1]},
		"single for a sentinel":   {Addrs: sentinel.Addrs[:1]},
		"cluster for a single":    {Mode: redisstore.Cluster, Addrs: []string{single.Addr}},
		"cluster for a sentinel":  {Mode: redisstore.Cluster, Addrs: sentinel.Addrs},
		"sentinel for a single":   {Mode: redisstore.Sentinel, Master: sentinel.Name, Addrs: []string{single.Addr}},
		"sentinel for a cluster":  {Mode: redisstore.Sentinel, Master: sentinel.Name, Addrs: cluster.Addrs()},
		"sentinel for a sentinel": {Mode: redisstore.Sentinel, Master: sentinel.Name, Addrs: sentinel.Addrs},
	} {
		want := redisstore.ErrMode
		if what == "sentinel for a sentinel" {
			want = nil
		}
		if _, err := checked(t, c); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

// A failed handshake says so, also if the server says nothing: a Redis without TLS waits
// for the end of the line.
func TestCheck_TLS(t *testing.T) {
	t.Parallel()
	c := redisstore.ClientConfig{Addrs: []string{redistest.Start(t).Addr}, TLS: &tls.Config{ServerName: "redis.test"}, Timeout: 200 * time.Millisecond}
	if _, err := checked(t, c); !errors.Is(err, redisstore.ErrTLS) || !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("%v, want ErrTLS", err)
	}
}

// A user who may not run scripts, or not read our keys, is recognized without a decision.
func TestCheck_Rights(t *testing.T) {
	t.Parallel()
	for what, rights := range map[string][]string{
		"no scripts": {"~weir:*", "+@read", "+@write", "+@connection", "+@pubsub", "+time", "+info"},
		"other keys": {"~other:*", "+@read", "+@write", "+@scripting", "+@connection", "+@pubsub", "+time", "+info"},
	} {
		server := redistest.Start(t, append([]string{"--user", "default", "off", "--user", "weir", "on", ">s3cret", "resetkeys", "resetchannels", "&weir:*", "-@all"}, rights...)...)
		c := redisstore.ClientConfig{Addrs: []string{server.Addr}, Username: "weir", Password: "s3cret"}
		if _, err := checked(t, c); !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%s: %v, want NOPERM", what, err)
		}
	}
}

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
