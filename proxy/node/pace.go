package node

import (
	"context"
	"io"
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	// workFor is the time for which background work runs before it pauses.
	workFor = 2 * time.Millisecond
	// mostRest is the maximum pause: a suspended process has not worked meanwhile.
	mostRest = 100 * time.Millisecond
)

// A pace throttles background work: every two milliseconds it pauses, so that requests have
// the rest of the CPU. It ends when its context does, or when too much memory is in use. It
// wraps the reader of the input; waiting for input does not count as work.
type pace struct {
	io.Reader
	ctx   context.Context
	share float64   // maximum share of one core
	since time.Time // begin of the current work period
	live  []metrics.Sample
	most  uint64
}

func newPace(ctx context.Context, from io.Reader) *pace {
	p := &pace{Reader: from, ctx: ctx, share: shareOf(runtime.GOMAXPROCS(0)), live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.most = p.inUse() + simulateMemory
	p.since = time.Now()
	return p
}

// shareOf returns the share of one core that may be used: an eighth of all cores, at least
// a quarter of one and at most one.
func shareOf(cores int) float64 { return min(max(0.25, float64(cores)/8), 1) }

// restFor returns the pause after work.
func restFor(worked time.Duration, share float64) time.Duration {
	return min(time.Duration(float64(worked)*(1/share-1)), mostRest)
}

// Read implements io.Reader.
func (p *pace) Read(b []byte) (int, error) {
	began := time.Now()
	n, err := p.Reader.Read(b)
	p.since = p.since.Add(time.Since(began))
	if over := context.Cause(p.ctx); over != nil {
		return 0, over
	}
	return n, err
}

// wait pauses if it is due.
func (p *pace) wait() error {
	worked := time.Since(p.since)
	if worked < workFor {
		return nil
	}
	if p.inUse() > p.most {
		return errReplayFull
	}
	rest := time.NewTimer(restFor(worked, p.share))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	p.since = time.Now()
	return nil
}

// inUse returns the memory in use as of the last garbage collection.
func (p *pace) inUse() uint64 {
	metrics.Read(p.live)
	return p.live[0].Value.Uint64()
}
