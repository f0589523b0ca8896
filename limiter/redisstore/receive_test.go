package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
	"github.com/weir-proxy/weir/test/sockettest"
)

// After what no Redis says, or says unasked, its connection is not used any more: nobody
// is told what belongs to somebody else. The next call has another one.
func TestConn_IsNotUsedAfterAFault(t *testing.T) {
	t.Parallel()
	for what, bad := range map[string]string{
		"garbage":        "HTTP/1.1 400 Bad Request\r\n\r\n",
		"a cut line":     "*4\r\n:18000000\n",
		"twice the time": granted + granted,
	} {
		t.Run(what, func(t *testing.T) {
			calledBy := map[int]bool{}
			s := newSpeaker(t, func(conn, call int) string {
				calledBy[conn] = true
				if call == 1 {
					return bad
				}
				return granted
			})
			store := s.store(t, Options{}, ClientConfig{})
			var d limiter.Decision
			err := store.Take(t.Context(), five(), &d)
			if first := strings.HasPrefix(bad, granted); (err == nil) != first || err != nil && !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("the first call: %+v, %v", d, err)
			}
			p := store.only(t)
			eventually(t, "the connection is given up", p.is(func(q *queue) bool { return q.conn == nil }))
			must(t, store)
			if len(calledBy) != 2 {
				t.Errorf("calls on %d connections, want 2", len(calledBy))
			}
		})
	}
}

// An answer of another shape fails its call, and an error that Redis answers does, too;
// the connection is as good as before, unless its server is a master no more.
func TestConn_GoesOnAfterAnError(t *testing.T) {
	next, calledBy := "", map[int]bool{}
	s := newSpeaker(t, func(conn, _ int) string { calledBy[conn] = true; return next })
	store := s.store(t, Options{}, ClientConfig{})
	for bad, conns := range map[string]int{
		"-LOADING Redis is loading the dataset in memory\r\n": 1, "-OOM command not allowed\r\n": 1, "-BUSY script\r\n": 1,
		"-MOVED 3 127.0.0.1:1\r\n": 1, "-CLUSTERDOWN no\r\n": 1, "-TRYAGAIN no\r\n": 1, "-NOPERM no\r\n": 1,
		"+OK\r\n": 1, "*1\r\n:5\r\n": 1, "*4\r\n:5\r\n:1\r\n$1\r\n4\r\n:0\r\n": 1, "*-1\r\n": 1, "_\r\n": 1, "%1\r\n:1\r\n:2\r\n": 1,
		"-READONLY You can't write against a read only replica.\r\n": 2,
	} {
		next, calledBy = bad, map[int]bool{}
		var d limiter.Decision
		if err := store.Take(t.Context(), five(), &d); !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("%q: %v", bad, err)
		}
		next = granted
		must(t, store)
		if len(calledBy) != conns {
			t.Errorf("%q: calls on %d connections, want %d", bad, len(calledBy), conns)
		}
	}
}

// A connection that was closed while nobody used it costs no call.
func TestConn_ClosedWhileIdleCostsNothing(t *testing.T) {
	s := newSpeaker(t, func(int, int) string { return granted })
	store := s.store(t, Options{}, ClientConfig{})
	must(t, store)
	for range 3 {
		p := store.only(t)
		s.cut()
		eventually(t, "the writer has ended", p.is(func(q *queue) bool { return !q.hasWriter }))
		must(t, store)
	}
}

// A connection is not used for longer than the client uses its own.
func TestConn_EndsWithItsLife(t *testing.T) {
	calledBy := map[int]bool{}
	s := newSpeaker(t, func(conn, _ int) string { calledBy[conn] = true; return granted })
	store := New(alone(t, s.addr, time.Nanosecond), Options{Timeout: patient, CachedRefusals: -1})
	defer store.Close()
	for range 3 {
		must(t, store)
	}
	if len(calledBy) != 3 {
		t.Errorf("calls on %d connections, want 3", len(calledBy))
	}
}

// When the client finds another master, a pipeline goes there, too.
func TestConn_FollowsTheMaster(t *testing.T) {
	calledBy := map[int]bool{}
	s := newSpeaker(t, func(conn, _ int) string { calledBy[conn] = true; return granted })
	store := s.store(t, Options{}, ClientConfig{})
	must(t, store)
	p := store.only(t)
	p.dialer.Masters = &wire.Masters{}
	p.dialer.Masters.Set(s.addr)
	must(t, store)
	p.dialer.Masters.Set("10.1.2.3:6379")
	must(t, store)
	must(t, store)
	if len(calledBy) != 2 {
		t.Errorf("calls on %d connections, want 2", len(calledBy))
	}
}

// A server that takes connections and says nothing is away: each attempt that takes
// longer than a decision may is a failure, though it goes on.
func TestDialer_SilenceOpensTheBreaker(t *testing.T) {
	const timeout = 40 * time.Millisecond
	s := storeAt(t, sockettest.Listen(t).Addr().String(), Options{Timeout: timeout}, ClientConfig{Timeout: timeout, BreakAfter: 2, BreakRest: time.Minute})
	var d limiter.Decision
	for range 2 {
		if err := s.Take(t.Context(), five(), &d); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOpen) {
			t.Errorf("a server that says nothing: %v", err)
		}
	}
	eventually(t, "the breaker is open", func() bool { return errors.Is(s.Take(t.Context(), five(), &d), ErrOpen) })
}

// A caller that leaves does so at once, and holds up nobody.
func TestPipeline_LetsCallersLeave(t *testing.T) {
	held := make(chan struct{})
	s := newSpeaker(t, func(_, call int) string {
		if call == 1 {
			<-held
		}
		return granted
	})
	store := s.store(t, Options{}, ClientConfig{})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := make(chan error)
	go func() {
		var d limiter.Decision
		gone <- store.Take(ctx, five(), &d)
	}()
	eventually(t, "the call is under way", store.only(t).is(func(q *queue) bool { return len(q.inFlight) == 1 }))
	why := errors.New("the client has left")
	cancel(why)
	if err := <-gone; !errors.Is(err, why) || !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("left: %v", err)
	}
	close(held)
	must(t, store)
}

// A Redis that does not answer: each caller waits for as long as it may, the connection
// is given up, and the breaker counts one failure for all that were under way on it.
func TestPipeline_SilenceIsOneFailure(t *testing.T) {
	s := newSpeaker(t, func(_, call int) string {
		if call <= 3 {
			return ""
		}
		return granted
	})
	store := s.store(t, Options{Timeout: 200 * time.Millisecond, MaxInFlight: 3}, ClientConfig{BreakAfter: 2, BreakRest: time.Minute})
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			var d limiter.Decision
			if err := store.Take(t.Context(), five(), &d); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("a silent Redis: %v", err)
			}
		})
		eventually(t, "the call is there", func() bool { return s.called() > i })
	}
	wg.Wait()
	p := store.only(t)
	eventually(t, "the connection is given up", p.is(func(q *queue) bool { return q.conn == nil }))
	must(t, store)
}

// A batch whose calls have reached their deadlines before it was sent is given up like others if Redis does not answer it,
// and does not hold up Close.
func TestPipeline_SilenceAfterTheDeadlines(t *testing.T) {
	s := newSpeaker(t, func(_, _ int) string { return granted })
	store := s.store(t, Options{Timeout: time.Second}, ClientConfig{})
	must(t, store)
	p := store.only(t)
	eventually(t, "no sweep is due", p.is(func(q *queue) bool { return len(q.inFlight) == 0 && !q.isSweepSet }))
	b := store.newBatch()
	b.sentAt = time.Now()
	if !p.queue.addInFlight(b, p.conn) {
		t.Fatal("the connection was lost")
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// A closed store leaves nothing behind, whatever it was doing.
func TestPipeline_CloseEndsAll(t *testing.T) {
	s := newSpeaker(t, func(_, call int) string {
		if call%2 == 0 {
			return ""
		}
		return granted
	})
	client := alone(t, s.addr, 0)
	client.Ping(t.Context())
	ignored := goleak.IgnoreCurrent()
	for _, calls := range []int{0, 1, 2} {
		store := New(client, Options{Timeout: 50 * time.Millisecond, CachedRefusals: -1})
		for range calls {
			var d limiter.Decision
			_ = store.Take(t.Context(), five(), &d)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		s.cut() // whose goroutines are the speaker's
		if err := goleak.Find(ignored); err != nil {
			t.Errorf("after %d calls: %v", calls, err)
		}
		var d limiter.Decision
		if err := store.Take(t.Context(), five(), &d); !errors.Is(err, redis.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
}
