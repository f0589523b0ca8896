package node

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

const (
	// maxQueued is how many bytes of log lines wait to be written; those of requests
	// leave the last quarter to lines that say more.
	maxQueued = 4 << 20
	// maxBatch is how many bytes are written by one call: a sink that takes a piece
	// and then no more has little of it.
	maxBatch = 64 << 10
	// flushTimeout is how long the end of weir waits for lines to be written.
	flushTimeout = time.Second
)

// A logQueue takes log lines at once and writes them by itself, in order and many by
// one call, so that nobody waits for where they go: a pipe that nobody reads, a full
// disk. Lines for which there is no room are dropped and counted.
//
// It is not zerolog's diode writer: that keeps one buffer a line for good, so that its
// bound is in lines and not in bytes, forgets the whole ring when the writer laps the
// reader, writes each line by a call of its own, and its Close waits for a sink without
// end.
type logQueue struct {
	out     io.Writer
	dropped atomic.Int64
	ended   chan struct{} // closed when nothing is written any more

	mu      sync.Mutex // guards what follows; never held while writing
	more    *sync.Cond // there are lines, or there will be none
	lines   []byte
	closing bool
}

// newLogQueue makes a queue before out. It ends with Close.
func newLogQueue(out io.Writer) *logQueue {
	q := &logQueue{out: out, ended: make(chan struct{})}
	q.more = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// Write implements io.Writer for lines that are always wanted.
func (q *logQueue) Write(line []byte) (int, error) { return q.add(line, maxQueued) }

// WriteLevel implements zerolog.LevelWriter: lines below warning, which are mostly
// those of requests, leave room for the others.
func (q *logQueue) WriteLevel(l zerolog.Level, line []byte) (int, error) {
	if l < zerolog.WarnLevel {
		return q.add(line, maxQueued/4*3)
	}
	return q.add(line, maxQueued)
}

// add takes a line if no more than most bytes wait then. It never fails, so that
// zerolog does not complain where nobody reads.
func (q *logQueue) add(line []byte, most int) (int, error) {
	select {
	case <-q.ended: // the sink has taken all, and nobody waits any more
		_, _ = q.out.Write(line)
		return len(line), nil
	default:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing || len(q.lines)+len(line) > most {
		q.dropped.Add(1)
		return len(line), nil
	}
	q.lines = append(q.lines, line...)
	if len(q.lines) == len(line) {
		q.more.Signal()
	}
	return len(line), nil
}

// run writes what is there, until Close and all is written.
func (q *logQueue) run() {
	defer close(q.ended)
	var lines []byte
	for {
		q.mu.Lock()
		if len(q.lines) == 0 && !q.closing {
			q.wait()
		}
		lines, q.lines = q.lines, lines[:0] // the two buffers take turns
		q.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		q.write(lines)
	}
}

// wait waits for lines, or the end. Whoever is about to run goes first when one has come:
// of requests in work many log soon, and their lines share one call. q.mu is held.
func (q *logQueue) wait() {
	for len(q.lines) == 0 && !q.closing {
		q.more.Wait()
	}
	q.mu.Unlock()
	runtime.Gosched()
	q.mu.Lock()
}

// write writes whole lines, some by one call. What the sink does not take is lost.
func (q *logQueue) write(lines []byte) {
	for len(lines) > 0 {
		n := len(lines)
		if n > maxBatch {
			n = bytes.LastIndexByte(lines[:maxBatch], '\n') + 1
			if n == 0 {
				n = maxBatch
			}
		}
		if _, err := q.out.Write(lines[:n]); err != nil {
			q.dropped.Add(int64(bytes.Count(lines[:n], []byte{'\n'})))
		}
		lines = lines[n:]
	}
}

// Close takes no more lines, and waits until those there are have been written, but
// for a sink that takes none no longer than flushTimeout.
func (q *logQueue) Close() {
	q.mu.Lock()
	q.closing = true
	q.more.Signal()
	q.mu.Unlock()
	late := time.NewTimer(flushTimeout)
	defer late.Stop()
	select {
	case <-q.ended:
	case <-late.C:
	}
}

// watchDropped shows in the figures how many lines were dropped before any of the sinks.
func watchDropped(r prometheus.Registerer, queues ...*logQueue) {
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "weir_log_lines_dropped_total", Help: "Log lines dropped because the output was too slow.",
	}, func() float64 {
		n := int64(0)
		for _, q := range queues {
			n += q.dropped.Load()
		}
		return float64(n)
	}))
}
