package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

const (
	// probeInterval is how often it is tried, about, whether Redis is back.
	probeInterval = 200 * time.Millisecond
	// probeTimeout is how long an answer to that may take. Nobody waits for it, and it is
	// longer than a decision may take, so that processes learn at about the same time that
	// Redis is back, also those on a busy machine.
	probeTimeout = time.Second
)

// An outage is the time for which others decide in place of Redis. It begins
// when the breaker opens. It ends some time after Redis answers again: it settles
// until each process has told what it granted, so that none takes for free what another
// has let pass. A single failure is no absence.
type outage struct {
	cancel context.CancelFunc
	ctx    context.Context // of the goroutine that looks; ends with the store
	wg     sync.WaitGroup

	away     atomic.Bool // changed with mu held
	settling atomic.Bool // away, but Redis answers and has been told

	mu      sync.Mutex // guards what follows; never held over I/O
	looking bool
}

func newOutage() *outage {
	ctx, cancel := context.WithCancel(context.Background())
	return &outage{ctx: ctx, cancel: cancel}
}

// Available reports whether Redis is to be asked about what others may have
// decided in its place: false from the time that its breaker opened until
// Options.Settle after it is back. In a cluster it is always true.
func (s *Store) Available() bool {
	return !s.outage.away.Load()
}

// Settling reports whether Redis answers again and has been told what this process
// granted in its place, while others may not have told it yet: Available is about to
// become true. Who asks it meanwhile grants no more than its share besides.
func (s *Store) Settling() bool {
	return s.outage.settling.Load()
}

// Report has Redis count what was granted in its place: as soon as it answers,
// and before the next decision over any of these claims. It is counted whatever
// is left, as old as it is then. Up to 128 grants of a window are known by their
// ids, of 50,000 windows; what is beyond that for its windows is not reported.
// It does not wait.
func (s *Store) Report(claims []limiter.Claim, p limiter.Permit) {
	s.reports.add(time.Now(), claims, p)
	s.watchOutage(false)
}

// Reported is how many permits Redis has heard of that were granted in its place,
// and how many it never will hear of, for want of memory: each window of a limit
// by itself, since the Store was made.
func (s *Store) Reported() (heard, lost int64) {
	return s.reports.heard.Load(), s.reports.lost.Load()
}

// Withdraw takes back what was to be reported of p, and reports whether it was in
// time. If not, Refund gives it back.
func (s *Store) Withdraw(claims []limiter.Claim, p limiter.Permit) bool {
	return s.reports.drop(claims, p)
}

// heard learns from how a decision went.
func (s *Store) heard(err error) {
	if errors.Is(err, ErrOpen) && !errors.Is(err, errSharedOpen) && !s.apart && s.settle > 0 {
		s.watchOutage(true)
	}
}

// watchOutage makes sure that somebody looks for Redis.
func (s *Store) watchOutage(away bool) {
	a := s.outage
	a.mu.Lock()
	defer a.mu.Unlock()
	if away {
		a.away.Store(true)
	}
	if a.looking || a.ctx.Err() != nil {
		return
	}
	a.looking = true
	a.wg.Go(s.probe)
}

// probe asks again and again, reports, and lets the others report. Processes
// that lost Redis together do not look together.
func (s *Store) probe() {
	var back time.Time
	for {
		err := s.answers(s.outage.ctx, max(s.timeout, probeTimeout))
		s.outage.settling.Store(err == nil && s.outage.away.Load())
		switch {
		case err != nil:
			back = time.Time{}
			s.heard(err)
		case back.IsZero():
			back = time.Now()
		}
		if err == nil && s.over(back) {
			return
		}
		select {
		case <-s.outage.ctx.Done():
			return
		case <-time.After(probeInterval/2 + rand.N(probeInterval)):
		}
	}
}

// answers asks whether Redis is there at all, and then reports. A Redis that hangs
// reads what it was sent when it wakes up, however often, so nothing that counts
// is sent to find out.
func (s *Store) answers(ctx context.Context, timeout time.Duration) error {
	if err := s.ping(ctx, timeout); err != nil {
		return err
	}
	if s.breaker != nil && s.outage.away.Load() && !s.outage.settling.Load() {
		s.breaker.own.Close()
	}
	return s.tell(ctx, nil)
}

// ping asks also a Redis that rests: an absence must not end later in one process than in
// another because that one asked at the wrong moment.
func (s *Store) ping(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, insideBreaker{}, true), timeout)
	defer cancel()
	if client, ok := s.client.(*redis.Client); ok {
		return client.WithTimeout(timeout).Ping(ctx).Err()
	}
	return s.client.Ping(ctx).Err()
}

// over ends the absence when it is time, and reports whether there is nothing
// left to look for.
func (s *Store) over(back time.Time) bool {
	a := s.outage
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(back) >= s.settle {
		a.away.Store(false)
		a.settling.Store(false)
	}
	a.looking = a.away.Load() || s.reports.known.Load() > 0
	return !a.looking
}

// close stops looking, and reports once more what there is.
func (a *outage) close(s *Store) {
	a.cancel()
	a.wg.Wait()
	if s.reports.known.Load() > 0 {
		_ = s.answers(context.Background(), s.timeout) // without an answer it is lost
	}
}
