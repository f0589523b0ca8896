package redisstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
	"github.com/weir-proxy/weir/test/redistest"
)

// What was about to be sent when the connection was lost goes by the next one.
func TestPipeline_KeepsWhatWasNotSent(t *testing.T) {
	s := grounded(t)
	p := s.only(t)
	lost, err := p.connection()
	if err != nil {
		t.Fatal(err)
	}
	lost.Abort(net.ErrClosed)
	eventually(t, "the reader ends", lost.IsUnusable)
	calls := []*call{}
	for range 3 {
		calls = append(calls, s.newCall([]limiter.Claim{{Limit: bucketOf("l", 5), Cost: 1}}, newID()))
	}
	s.join(t, calls...)
	p.send(lost)
	if n := s.fly(t); n != 1 {
		t.Errorf("%d batches, want 1", n)
	}
	for i, c := range calls {
		<-c.done
		if c.err != nil || c.decision.Outcomes[0].Remaining != int64(4-i) {
			t.Errorf("call %d: %+v, %v", i, c.decision, c.err)
		}
	}
}

// Whoever answers calls, in whatever order, each is answered once, and the queue knows
// those that nobody has answered, oldest first.
func TestQueue_KnowsWhoIsNotAnswered(t *testing.T) {
	q := &queue{timeout: time.Hour, startWriter: func() {}, sweepTimer: time.NewTimer(time.Hour)}
	q.writerWake.L = &q.mu
	rng := rand.New(rand.NewPCG(1, 2))
	left := errors.New("left")
	var open, taken []*call
	for range 5000 {
		switch rng.IntN(5) {
		case 0, 1:
			c := &call{claims: make([]limiter.Claim, 1+rng.IntN(3)), done: make(chan struct{}, 1), deadline: time.Now().Add(time.Minute)}
			if err := q.enqueue(c); err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		case 2:
			taken = q.dequeue(taken)
		case 3:
			if len(open) == 0 {
				continue
			}
			i := rng.IntN(len(open))
			if err := q.abandon(open[i], left); !errors.Is(err, left) {
				t.Fatal(err)
			}
			open = slices.Delete(open, i, i+1)
		case 4:
			n := rng.IntN(len(taken) + 1)
			q.claim(taken[:n])
			for _, c := range taken[:n] {
				if (c.state == callAnswered) != slices.Contains(open, c) {
					t.Fatalf("a call in state %d, of which somebody waits for %v", c.state, slices.Contains(open, c))
				}
			}
			open = slices.DeleteFunc(open, func(c *call) bool { return c.state == callAnswered })
			if taken = taken[n:]; rng.IntN(2) == 0 {
				q.requeue(taken)
				taken = nil
			}
		}
		var known []*call
		for c := q.oldest; c != nil; c = c.next {
			known = append(known, c)
		}
		if !slices.Equal(known, open) {
			t.Fatalf("%d calls are known, of %d", len(known), len(open))
		}
	}
	late, _, _ := q.expire(time.Now().Add(2 * time.Minute))
	if !slices.Equal(late, open) || q.oldest != nil || q.newest != nil {
		t.Errorf("%d of %d calls are late", len(late), len(open))
	}
}

// A refund that was started is run before a request that begins later, also in the same
// batch, and without waiting for it; refusals that are in flight are not remembered.
func TestPipeline_StartedRefundComesFirst(t *testing.T) {
	s := grounded(t)
	claims := []limiter.Claim{{Limit: bucketOf("once", 1), Key: limiter.Key{1}, Cost: 1}}
	take := func() *call {
		c := s.newCall(claims, newID())
		s.join(t, c)
		return c
	}
	first := take()
	s.fly(t)
	<-first.done
	for i := range 100 {
		before, wait := take(), s.StartRefund(claims, limiter.Permit{ID: first.id, At: first.decision.At})
		after := take()
		if n := s.fly(t); n != 1 {
			t.Fatalf("%d batches; want one", n)
		}
		<-before.done
		<-after.done
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		if !before.decision.Allowed || after.decision.Allowed { // the refund goes first of its batch
			t.Fatalf("round %d: the one before: allowed %t, the one after: %t; want one of them", i, before.decision.Allowed, after.decision.Allowed)
		}
		first = before
	}
}

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
			if err := direct.ScriptLoad(t.Context(), s.scripts.get(scriptName{name: "many", algorithms: 1 << limiter.GCRA}).text).Err(); err != nil { // or the client is asked
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
