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
	// maxQueued is the maximum number of queued bytes; access log lines may not use the
	// last quarter.
	maxQueued = 4 << 20
	// maxBatch is the maximum number of bytes per write.
	maxBatch = 64 << 10
	// flushTimeout is the maximum time for pending lines on shutdown.
	flushTimeout = time.Second
)

// A logQueue accepts log lines without blocking and writes them in the background, in order
// and several per call, so that a slow sink, such as a pipe without a reader or a full
// disk, does not block requests. Lines that exceed the queue are dropped and counted.
//
// zerolog's diode writer is not used: it keeps one buffer per line, so its bound is in
// lines instead of bytes; it drops the whole ring when it overflows; it writes each line
// separately; and its Close may wait forever.
type logQueue struct {
	out     io.Writer
	dropped atomic.Int64
	ended   chan struct{} // closed when the writer has ended

	mu      sync.Mutex // guards what follows; never held while writing
	more    *sync.Cond // signals new lines, or the end
	lines   []byte
	closing bool
}

// newLogQueue returns a queue for out. It must be closed.
func newLogQueue(out io.Writer) *logQueue {
	q := &logQueue{out: out, ended: make(chan struct{})}
	q.more = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// Write implements io.Writer for lines that may use the whole queue.
func (q *logQueue) Write(line []byte) (int, error) { return q.add(line, maxQueued) }

// WriteLevel implements zerolog.LevelWriter: lines below warning, mostly the access log,
// leave room for others.
func (q *logQueue) WriteLevel(l zerolog.Level, line []byte) (int, error) {
	if l < zerolog.WarnLevel {
		return q.add(line, maxQueued/4*3)
	}
	return q.add(line, maxQueued)
}

// add queues a line if at most most bytes are queued then. It never fails, because zerolog
// would report that on standard error.
func (q *logQueue) add(line []byte, most int) (int, error) {
	select {
	case <-q.ended: // all written, and no reader is left
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

// run writes queued lines, until Close has been called and all are written.
func (q *logQueue) run() {
	defer close(q.ended)
	var lines []byte
	for {
		q.mu.Lock()
		if len(q.lines) == 0 && !q.closing {
			q.wait()
		}
		lines, q.lines = q.lines, lines[:0] // the two buffers alternate
		q.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		q.write(lines)
	}
}

// wait waits for lines, or the end. It yields once when a line has arrived, because
// concurrent requests often log at the same time and can share one call. q.mu must be held.
func (q *logQueue) wait() {
	for len(q.lines) == 0 && !q.closing {
		q.more.Wait()
	}
	q.mu.Unlock()
	runtime.Gosched()
	q.mu.Lock()
}

// write writes whole lines, several per call. Lines that the sink does not accept are lost.
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

// Close stops accepting lines, and waits until queued lines are written, at most
// flushTimeout.
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

// watchDropped registers the metric of dropped lines.
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
