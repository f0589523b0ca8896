package node

import (
	"context"
	"io"
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	// workFor is how long low-priority work runs before it pauses.
	workFor = 2 * time.Millisecond
	// mostRest bounds one pause, in case the process was suspended and the measured time was not
	// work.
	mostRest = 100 * time.Millisecond
)

// A pace throttles low-priority work: after every two milliseconds of work it pauses, so that
// requests can use the processor. It ends the work when its context is done, or when it uses too
// much memory. It also wraps the reader of the work's input, because waiting for input is not work.
type pace struct {
	io.Reader
	ctx   context.Context
	share float64   // the share of one core that the work may use
	since time.Time // start of the current period of work
	live  []metrics.Sample
	most  uint64
}

func newPace(ctx context.Context, from io.Reader) *pace {
	p := &pace{Reader: from, ctx: ctx, share: shareOf(runtime.GOMAXPROCS(0)), live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.most = p.inUse() + simulateMemory
	p.since = time.Now()
	return p
}

// shareOf returns the share of one core that may be used: an eighth of all cores, but at least a
// quarter and at most the whole of one core.
func shareOf(cores int) float64 { return min(max(0.25, float64(cores)/8), 1) }

// restFor returns the pause after some time of work.
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

// wait pauses if it is time to.
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

// inUse returns the live heap size as of the last garbage collection.
func (p *pace) inUse() uint64 {
	metrics.Read(p.live)
	return p.live[0].Value.Uint64()
}
