package limit

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// redisNodes are nodes over one Redis.
func redisNodes(tb testing.TB, count int, args ...string) (nodes []*aheadStore, server *redistest.Server) {
	server = redistest.Start(tb, args...)
	for range count {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		store := redisstore.New(client, redisstore.Options{Timeout: 10 * time.Second})
		n := newAhead(store, count)
		tb.Cleanup(func() { n.close(); store.Close(); client.Close() })
		nodes = append(nodes, n)
	}
	return nodes, server
}

// clockStep is how inexact the times of decisions are: those of Redis are in whole milliseconds.
const clockStep = 2 * time.Millisecond

// A key that all requests have costs Redis at most a tenth of a call a decision, whether or not it is refused, and no window
// has more than the rate.
func TestAhead_HotKeyInRedis(t *testing.T) {
	for _, rate := range []limiter.Rate{{Count: 1_000_000, Window: time.Second}, {Count: 2000, Window: time.Second}} {
		nodes, server := redisNodes(t, 4)
		w := aheadWindow(limiter.Limit{Name: "l", Algorithm: limiter.SlidingLog, Rate: rate}, 100*time.Millisecond)
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		var all uses
		all.load(t, 1500*time.Millisecond, func(caller int) (*aheadStore, *Window) { return nodes[caller%len(nodes)], w })
		calls, most := redistest.Scripts(t, client).Calls, all.most(rate.Window-clockStep)
		client.Close()
		t.Logf("%v: %d decisions, %d granted, at most %d in a window, %.5f calls a decision", rate, all.asked, len(all.all), most, float64(calls)/float64(all.asked))
		const leases = 4 * 15 // of the nodes, each of which asks once in 100 ms however few callers it has
		if most > rate.Count || 10*(calls-2*leases) > all.asked {
			t.Errorf("%d calls for %d decisions; at most %d in a window", calls, all.asked, most)
		}
	}
}

// load lets 32 callers take permits of one key, one after the other.
func (u *uses) load(t *testing.T, during time.Duration, of func(caller int) (*aheadStore, *Window)) {
	var callers sync.WaitGroup
	until := time.Now().Add(during)
	for i := range 32 {
		callers.Go(func() {
			for time.Now().Before(until) {
				s, w := of(i)
				u.take(t, s, []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}})
			}
		})
	}
	callers.Wait()
}

// Whatever is killed, nodes or a Redis that keeps what it has answered, and whenever a reload changes the rate: no window has
// more than the rate.
func TestAhead_KilledUnderLoad(t *testing.T) {
	nodes, server := redisNodes(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	windows := []*Window{}
	for _, count := range []int64{3000, 1500} {
		windows = append(windows, aheadWindow(limiter.Limit{Name: "l", Algorithm: limiter.SlidingLog, Rate: limiter.Rate{Count: count, Window: time.Second}}, 100*time.Millisecond))
	}
	var mu sync.Mutex
	var current atomic.Pointer[Window]
	current.Store(windows[0])
	var all uses
	var loads sync.WaitGroup
	loads.Go(func() {
		all.load(t, 4*time.Second, func(caller int) (*aheadStore, *Window) {
			mu.Lock()
			defer mu.Unlock()
			return nodes[caller%len(nodes)], current.Load()
		})
	})
	often := time.NewTicker(450 * time.Millisecond)
	defer often.Stop()
	for i := range 8 {
		<-often.C
		switch i % 3 {
		case 0:
			server.Kill()
			server.Restart()
		case 1:
			mu.Lock()
			nodes[rand.N(len(nodes))] = newAhead(nodes[0].AdminStore, len(nodes)) // the one before has died
			mu.Unlock()
		default:
			current.Store(windows[rand.N(2)])
		}
	}
	loads.Wait()
	if most := all.most(time.Second - clockStep); most > 3000 || len(all.all) < 3000 {
		t.Errorf("%d granted, at most %d in a window", len(all.all), most)
	}
}

// A decision that needs no call.
func BenchmarkAhead_Take(b *testing.B) {
	nodes, _ := redisNodes(b, 1)
	w := aheadWindow(limiter.Limit{Name: "l", Algorithm: limiter.SlidingLog, Rate: limiter.Rate{Count: 1e9, Window: time.Second}}, 100*time.Millisecond)
	claims := []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}}
	var d limiter.Decision
	b.ReportAllocs()
	for b.Loop() {
		if err := nodes[0].Take(b.Context(), claims, &d); err != nil || !d.Allowed {
			b.Fatal(err, d)
		}
	}
}
