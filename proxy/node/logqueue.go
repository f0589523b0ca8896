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
	// maxQueued is the maximum number of queued bytes. Lines of requests may use three quarters of
	// it, so that the rest remains for more important lines.
	maxQueued = 4 << 20
	// maxBatch is the maximum number of bytes written by one call. It bounds the loss if the output
	// accepts only a part and then blocks.
	maxBatch = 64 << 10
	// flushTimeout bounds the wait for queued lines when Weir stops.
	flushTimeout = time.Second
)

// A logQueue queues log lines and writes them in the background, in order and in batches, so that
// logging never blocks on the output, such as a pipe that is not read or a full disk. If the queue
// is full, lines are dropped and counted.
//
// zerolog's diode writer is not used: it keeps one buffer for each line for ever, so that its limit
// is in lines and not in bytes; it discards the whole ring if the writer overtakes the reader; it
// makes one call for each line; and its Close waits without limit for a blocked output.
type logQueue struct {
	out     io.Writer
	dropped atomic.Int64
	ended   chan struct{} // closed when the background goroutine has ended

	mu      sync.Mutex // guards what follows; never held while writing
	changed *sync.Cond // signals that there are lines, or that the queue is closing
	lines   []byte
	closing bool
}

// newLogQueue returns a queue for out. It must be closed by Close.
func newLogQueue(out io.Writer) *logQueue {
	q := &logQueue{out: out, ended: make(chan struct{})}
	q.changed = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// Write implements io.Writer. It uses the whole queue.
func (q *logQueue) Write(line []byte) (int, error) { return q.add(line, maxQueued) }

// WriteLevel implements zerolog.LevelWriter. Lines below level warn, mostly those of requests, do
// not use the last quarter of the queue.
func (q *logQueue) WriteLevel(l zerolog.Level, line []byte) (int, error) {
	if l < zerolog.WarnLevel {
		return q.add(line, maxQueued/4*3)
	}
	return q.add(line, maxQueued)
}

// add queues a line if at most most bytes are queued then. It never returns an error, because
// zerolog would report it on stderr.
func (q *logQueue) add(line []byte, most int) (int, error) {
	select {
	case <-q.ended: // everything is written, and writing may block now
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
		q.changed.Signal()
	}
	return len(line), nil
}

// run writes queued lines until the queue is closed and empty.
func (q *logQueue) run() {
	defer close(q.ended)
	var lines []byte
	for {
		q.mu.Lock()
		if len(q.lines) == 0 && !q.closing {
			q.wait()
		}
		lines, q.lines = q.lines, lines[:0] // the two buffers are swapped
		q.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		q.write(lines)
	}
}

// wait waits for lines, or for the queue to close. It then yields the processor once: requests in
// progress often log at almost the same time, and their lines are then written by one call. q.mu
// must be held.
func (q *logQueue) wait() {
	for len(q.lines) == 0 && !q.closing {
		q.changed.Wait()
	}
	q.mu.Unlock()
	runtime.Gosched()
	q.mu.Lock()
}

// write writes complete lines in batches. Lines that the output does not accept are lost.
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

// Close rejects further lines, and waits until all queued lines have been written, but at most
// flushTimeout.
func (q *logQueue) Close() {
	q.mu.Lock()
	q.closing = true
	q.changed.Signal()
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
