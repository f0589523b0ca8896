package node

import (
	"context"
	"io"
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	// workFor is how long work goes on that is not urgent before it rests.
	workFor = 2 * time.Millisecond
	// mostRest bounds one rest: a process that was stopped has not worked in the meantime.
	mostRest = 100 * time.Millisecond
)

// A pace keeps work that is not urgent from what is: after each two milliseconds it rests
// so long that requests have the rest of the processor, and ends when its context does or
// it takes too much memory. It reads what the work is about: waiting for that is no work.
type pace struct {
	io.Reader
	ctx   context.Context
	share float64   // of one core that it may take
	since time.Time // it works since then
	live  []metrics.Sample
	most  uint64
}

func newPace(ctx context.Context, from io.Reader) *pace {
	p := &pace{Reader: from, ctx: ctx, share: shareOf(runtime.GOMAXPROCS(0)), live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.most = p.inUse() + simulateMemory
	p.since = time.Now()
	return p
}

// shareOf is how much of one core may be taken of so many: an eighth of all, but a
// quarter of one at least.
func shareOf(cores int) float64 { return min(max(0.25, float64(cores)/8), 1) }

// restFor is how long to rest after work.
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

// wait rests if it is time to.
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

// inUse is what the garbage collector found in use when it last looked.
func (p *pace) inUse() uint64 {
	metrics.Read(p.live)
	return p.live[0].Value.Uint64()
}
