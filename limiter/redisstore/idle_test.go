package redisstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
	"github.com/weir-proxy/weir/test/redistest"
)

// A connection that was idle may have been forgotten by a firewall, which tells nobody. The calls that come next use
// another one, in time, and each counts once.
func TestPipeline_IdleConnectionIsForgotten(t *testing.T) {
	t.Parallel()
	for _, calls := range []int{1, 24} {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewFaultProxy(t, server.Addr)
			direct := redis.NewClient(&redis.Options{Addr: server.Addr})
			defer direct.Close()
			s := storeAt(t, proxy.Addr, Options{Timeout: 2 * time.Second}, ClientConfig{Timeout: 2 * time.Second, BreakAfter: 1, BreakRest: time.Hour})
			claims := []limiter.Claim{{Limit: &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 50, Window: time.Hour}, Algorithm: limiter.GCRA}, Cost: 1}}
			must := func() {
				var d limiter.Decision
				if err := s.Take(t.Context(), claims, &d); err != nil || !d.Allowed {
					t.Errorf("take: %+v, %v", d, err)
				}
			}
			must()
			if err := direct.ScriptLoad(t.Context(), s.scripts.get("many", 1<<limiter.GCRA).text).Err(); err != nil { // or the client is asked
				t.Fatal(err)
			}
			s.idleLimit = time.Nanosecond
			p := s.only(t)
			first := connOf(p)
			must()
			if connOf(p) != first {
				t.Error("a connection that replies was replaced")
			}
			proxy.Forget()
			var all sync.WaitGroup
			for range calls {
				all.Go(must)
			}
			all.Wait()
			in, err := New(direct, Options{Timeout: patient, CachedRefusals: -1}).Inspect(t.Context(), claims)
			if want := int64(2 + calls); err != nil || in.Statuses[0].Used != want {
				t.Errorf("%+v, %v; want %d used", in.Statuses, err, want)
			}
		})
	}
}

func connOf(p *pipeline) *wire.Conn {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	return p.queue.conn
}
