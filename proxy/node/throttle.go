package node

import (
	"context"
	"io"
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	// workPeriod is how long low-priority work runs before it pauses.
	workPeriod = 2 * time.Millisecond
	// maxPause bounds one pause, in case the process was suspended and the measured time was not
	// work.
	maxPause = 100 * time.Millisecond
)

// A throttle throttles low-priority work: after every two milliseconds of work it pauses, so that
// requests can use the processor. It ends the work when its context is done, or when it uses too
// much memory. It also wraps the reader of the work's input, because waiting for input is not work.
type throttle struct {
	io.Reader
	ctx       context.Context
	share     float64   // the share of one core that the work may use
	workStart time.Time // start of the current period of work
	liveHeap  []metrics.Sample
	maxHeap   uint64
}

func newThrottle(ctx context.Context, from io.Reader) *throttle {
	p := &throttle{Reader: from, ctx: ctx, share: cpuShare(runtime.GOMAXPROCS(0)), liveHeap: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.maxHeap = p.inUse() + simulateMemory
	p.workStart = time.Now()
	return p
}

// cpuShare returns the share of one core that may be used: an eighth of all cores, but at least a
// quarter and at most the whole of one core.
func cpuShare(cores int) float64 { return min(max(0.25, float64(cores)/8), 1) }

// pauseFor returns the pause after some time of work.
func pauseFor(worked time.Duration, share float64) time.Duration {
	return min(time.Duration(float64(worked)*(1/share-1)), maxPause)
}

// Read implements io.Reader.
func (t *throttle) Read(b []byte) (int, error) {
	began := time.Now()
	n, err := t.Reader.Read(b)
	t.workStart = t.workStart.Add(time.Since(began))
	if over := context.Cause(t.ctx); over != nil {
		return 0, over
	}
	return n, err
}

// wait pauses if it is time to.
func (t *throttle) wait() error {
	worked := time.Since(t.workStart)
	if worked < workPeriod {
		return nil
	}
	if t.inUse() > t.maxHeap {
		return errReplayFull
	}
	select {
	case <-time.After(pauseFor(worked, t.share)):
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
	t.workStart = time.Now()
	return nil
}

// inUse returns the live heap size as of the last garbage collection.
func (t *throttle) inUse() uint64 {
	metrics.Read(t.liveHeap)
	return t.liveHeap[0].Value.Uint64()
}
