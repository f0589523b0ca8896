package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// newFullPool is a pool of one target that takes one request at a time, which it has.
func newFullPool(t *testing.T, q Queue) (*Pool, *backend) {
	t.Helper()
	p := newTestPool(t, Config{MaxConnections: 1, Queue: q}, 1)
	m, err := p.acquire(t.Context(), time.Now(), selection{})
	if err != nil {
		t.Fatal(err)
	}
	return p, m
}

func TestQueue_FirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := newFullPool(t, Queue{3, time.Minute})
		served := make(chan int, 3)
		for i := range 3 {
			go func() {
				m, err := p.acquire(t.Context(), time.Now(), selection{})
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
				served <- i
				p.group.release(m, 0)
			}()
			synctest.Wait()
		}
		if _, err := p.acquire(t.Context(), time.Now(), selection{}); !errors.Is(err, errQueueFull) {
			t.Errorf("a fourth in a queue of three: %v", err)
		}
		p.group.release(m, 0)
		for want := range 3 {
			if got := <-served; got != want {
				t.Errorf("served %d, want %d", got, want)
			}
		}
		synctest.Wait()
		if m.inFlight.Sum() != 0 || len(p.group.waiting) != 0 {
			t.Errorf("in the end %d are busy and %d wait", m.inFlight.Sum(), len(p.group.waiting))
		}
	})
}

func TestQueue_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := newFullPool(t, Queue{1, time.Minute})
		began := time.Now()
		if _, err := p.acquire(t.Context(), time.Now(), selection{}); !errors.Is(err, errQueueFull) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v, want errBusy after a minute", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.acquire(ctx, time.Now(), selection{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that left: %v", err)
		}
		p.group.release(m, 0)
		if m, err := p.acquire(t.Context(), time.Now(), selection{}); err != nil || m.inFlight.Sum() != 1 {
			t.Errorf("nobody waits and nobody is busy, but got %v, %v", m, err)
		}
	})
}

// A turn that comes in the very moment in which its client gives up is not lost.
func TestQueue_CanceledWaiterLosesNoBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			p, m := newFullPool(t, Queue{1, time.Minute})
			go func() {
				time.Sleep(time.Minute) // of the bubble: the moment in which the wait ends
				p.group.release(m, 0)
			}()
			if m, err := p.acquire(t.Context(), time.Now(), selection{}); err == nil {
				p.group.release(m, 0)
			}
			synctest.Wait()
			if m.inFlight.Sum() != 0 || len(p.group.waiting) != 0 {
				t.Fatalf("%d busy, %d waiting; want nobody", m.inFlight.Sum(), len(p.group.waiting))
			}
		}
	})
}

// A client that has left loses its place in the queue, also if its request has waited
// there before and has been sent in between.
func TestQueue_ClientGoneInASecondWait(t *testing.T) {
	arrived, first, last := make(chan string, 1), make(chan bool), make(chan bool)
	url := startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fails":
			panic(http.ErrAbortHandler)
		case "/first":
			arrived <- r.URL.Path
			<-first
		case "/last":
			arrived <- r.URL.Path
			<-last
		}
	})
	defer close(last)
	p := newOrderedPool(t, Config{MaxConnections: 1, Queue: Queue{2, time.Hour}, Retries: 1, ResponseTimeout: time.Hour}, url)
	waiting := func(want int) {
		t.Helper()
		await.Until(t, fmt.Sprintf("%d in the queue", want), func() bool {
			p.group.mu.Lock()
			defer p.group.mu.Unlock()
			return len(p.group.waiting) == want
		})
	}
	h := startProxy(t, p, nil)
	h.dial(t, "GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
	await.Value(t, arrived, "the first request")
	leaves, _ := h.dial(t, "GET /fails HTTP/1.1\r\nHost: a\r\n\r\n")
	waiting(1)
	h.dial(t, "GET /last HTTP/1.1\r\nHost: a\r\n\r\n")
	waiting(2)
	close(first) // the second request is sent, fails, and waits behind the third
	await.Value(t, arrived, "the last request")
	waiting(1)
	leaves.Close()
	waiting(0)
}

func TestQueue_RecoveredTargetIsUsedImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, Config{MaxConnections: 1, Queue: Queue{1, time.Minute}, Health: Health{FailureThreshold: 1, Path: "/", Interval: 1, Timeout: 1}}, 1, 1)
		p.group.recordCheck(p.backends[0], &p.config.Health, false)
		if m, err := p.acquire(t.Context(), time.Now(), selection{}); err != nil || m.host != "b" {
			t.Fatalf("got %v, %v", m, err)
		}
		got := make(chan *backend, 1)
		go func() {
			m, _ := p.acquire(t.Context(), time.Now(), selection{})
			got <- m
		}()
		synctest.Wait()
		p.group.recordCheck(p.backends[0], &p.config.Health, true)
		if m := <-got; m != p.backends[0] {
			t.Errorf("got %v, want the one that is back", m)
		}
	})
}

func TestHealthCheck_ImmediatelyAndEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, Config{Health: Health{FailureThreshold: 2, EjectFor: time.Second, Path: "/", Interval: 5 * time.Second, Timeout: time.Second}}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		ended := make(chan bool)
		go func() {
			p.checkHealth(ctx, p.backends[0], func(ctx context.Context, _ *backend) error {
				at = append(at, time.Since(began))
				<-ctx.Done() // as slow as may be
				return ctx.Err()
			})
			close(ended)
		}()
		time.Sleep(4 * time.Second)
		if !preferred(p)[0] {
			t.Error("one look in two takes it down")
		}
		time.Sleep(4 * time.Second)
		if preferred(p)[0] {
			t.Error("two slow looks leave it healthy")
		}
		cancel()
		<-ended
		if len(at) != 2 || at[0] != 0 || at[1] != 5*time.Second {
			t.Errorf("looked at %v, want at once and after 5 s", at)
		}
	})
}

func TestGroups_KeepStateAcrossPools(t *testing.T) {
	f := NewGroups(1)
	h := Health{FailureThreshold: 1, EjectFor: time.Hour}
	one := newTestPool(t, Config{Name: "x", Groups: f, Health: h}, 1, 1)
	other := newTestPool(t, Config{Name: "y", Groups: f, Health: h}, 1)
	one.group.recordConnect(one.backends[0], &h, false)
	two := newTestPool(t, Config{Name: "x", Groups: f, Health: h}, 1, 1, 1)
	one.Close()
	one.Close() // does no harm
	if got := preferred(two); got[0] || !got[1] || !got[2] {
		t.Errorf("states %v, want that a still rests", got)
	}
	if !preferred(other)[0] {
		t.Error("the same target of another upstream rests too")
	}
	two.Close()
	if three := newTestPool(t, Config{Name: "x", Groups: f, Health: h}, 1); !preferred(three)[0] {
		t.Error("an upstream that nobody had is remembered")
	}
	if n := len(f.groups); n != 2 {
		t.Errorf("%d groups, want those of x and y", n)
	}
}

// However requests end, there are never more in flight than MaxConnections, and none waits while there is room.
func TestQueue_HoldsInParallel(t *testing.T) {
	const goroutines, each, most = 8, 3000, 2
	p := newTestPool(t, Config{MaxConnections: most, Queue: Queue{Length: goroutines, Timeout: time.Minute}, Groups: NewGroups(4)}, 1)
	var busy, worst atomic.Int64
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for range each {
				m, err := p.acquire(t.Context(), time.Now(), selection{stripe: i % 4})
				if err != nil {
					t.Error(err)
					return
				}
				if n := busy.Add(1); n > worst.Load() {
					worst.Store(n)
				}
				busy.Add(-1)
				p.group.release(m, i%4)
			}
		})
	}
	all.Wait()
	if n := p.backends[0].inFlight.Sum(); n != 0 || len(p.group.waiting) != 0 || worst.Load() > most {
		t.Errorf("in the end %d in flight and %d wait; %d at most at a time, want %d", n, len(p.group.waiting), worst.Load(), most)
	}
}
