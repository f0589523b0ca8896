package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/trace"
)

// A Log writes log lines in the background, so that logging never blocks on its output. It must be
// closed by Close.
type Log struct {
	zerolog.Logger
	queue *logQueue
}

// NewLog returns a Log that writes JSON lines to out, or readable lines if out is a terminal.
func NewLog(out io.Writer, least zerolog.Level) *Log {
	queue := newLogQueue(out)
	var lines io.Writer = queue
	if f, ok := out.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		lines = zerolog.ConsoleWriter{Out: queue, TimeFormat: time.TimeOnly}
	}
	return &Log{zerolog.New(lines).Level(least).Hook(clock{}), queue}
}

// Close writes pending lines. It waits for at most flushTimeout.
func (l *Log) Close() { l.queue.Close() }

// Standard returns a writer for the standard library's log. Its lines are logged at debug level.
func (l *Log) Standard() io.Writer { return stdLog{l.Logger} }

type stdLog struct{ log zerolog.Logger }

func (s stdLog) Write(line []byte) (int, error) {
	s.log.Debug().Str("error", strings.TrimSpace(string(line))).Msg("stdlib log")
	return len(line), nil
}

// A clock adds a timestamp in UTC to each line, RFC 3339 with milliseconds.
type clock struct{}

// Run implements zerolog.Hook.
func (c clock) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	var space [32]byte
	e.RawJSON(zerolog.TimestampFieldName, c.append(space[:0], time.Now()))
}

// append appends t in quotes. Layouts of the time package other than its own cost more than the rest of most lines.
func (clock) append(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(append(b, '"'), time.RFC3339)
	ms := t.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z', '"')
}

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
	ended   chan struct{}  // closed when the background goroutine has ended
	isCut   bool           // the output has the beginning of a line whose rest was lost; of the background goroutine
	report  zerolog.Logger // where it is told that the output fails, if anywhere

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
			n = cmp.Or(bytes.LastIndexByte(lines[:maxBatch], '\n')+1, maxBatch)
		}
		if q.isCut { // what follows must not become part of that line
			_, err := q.out.Write([]byte{'\n'})
			q.isCut = err != nil
		}
		if done, err := q.out.Write(lines[:n]); err != nil {
			q.report.Error().Err(err).Msg("access log cannot be written; its lines are lost until it can")
			q.dropped.Add(int64(bytes.Count(lines[done:n], []byte{'\n'})))
			q.isCut = q.isCut || done > 0 && lines[done-1] != '\n'
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
	select {
	case <-q.ended:
	case <-time.After(flushTimeout):
	}
}

// watchDropped registers the metric of dropped lines.
func watchDropped(r prometheus.Registerer, queues ...*logQueue) {
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "weir_log_lines_dropped_total", Help: "Log lines dropped because the output was too slow, or failed.",
	}, func() float64 {
		n := int64(0)
		for _, q := range queues {
			n += q.dropped.Load()
		}
		return float64(n)
	}))
}

// An accessLog is the destination of the access log: the process log, or a file.
type accessLog struct {
	proxy.AccessWriter
	file *logFile // nil if lines go to the process log
}

// openAccessLog opens the configured destination.
func (n *Node) openAccessLog(o Options) error {
	path := o.Config.AccessLog.File
	if path == "" {
		n.access = &accessLog{proxy.AccessWriter{Log: o.Log.Logger, Lines: o.Log.queue}, nil}
		watchDropped(n.registry, o.Log.queue)
		return nil
	}
	file, err := openLogFile(path)
	if err != nil {
		return fmt.Errorf("access_log.file cannot be written: %w; name a file in a directory that weir may write to", err)
	}
	queue := newLogQueue(file)
	queue.report = o.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	n.access = &accessLog{proxy.AccessWriter{Log: zerolog.New(queue).Level(zerolog.InfoLevel).Hook(clock{}), Lines: queue}, file}
	watchDropped(n.registry, o.Log.queue, queue)
	n.closers.push("access log", func(context.Context) error {
		queue.Close()
		return file.Close()
	})
	return nil
}

// reopenOnce reopens the access log file. Lines logged before may still be in the renamed file.
func (n *Node) reopenOnce() {
	if n.access.file == nil {
		n.log.Info().Msg("no access_log.file to reopen")
		return
	}
	path := n.access.file.path
	if err := n.access.file.reopen(); err != nil {
		n.log.Error().Err(err).Str("file", path).Msg("cannot reopen access log; still writing to the old file")
		return
	}
	n.log.Info().Str("file", path).Msg("access log reopened")
}

// logMode is the mode of a new log file: it is not readable for users outside Weir's group.
const logMode = 0o640

// A logFile is an append-only file that can be reopened after it was renamed.
type logFile struct {
	path string

	mu sync.Mutex // guards what follows; held while writing, so that reopen does not close the file during a write
	f  *os.File
}

func openLogFile(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.reopen()
}

// Write implements io.Writer.
func (l *logFile) Write(lines []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Write(lines)
}

// reopen opens the file at the path again for all further lines. If that fails, nothing changes. A pipe without a reader is
// an error, and not waited for.
func (l *logFile) reopen() error {
	next, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, logMode) // #nosec G302 -- Weir's group may read it
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil { // it is not opened for the first time
		err = l.f.Close()
	}
	l.f = next
	return err
}

// Close closes the file. Later writes return an error.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}

// openTraces returns the exporter for the configured collector, or nil. It ends after the last
// request.
func (n *Node) openTraces(c config.Traces) *trace.Exporter {
	if c.Endpoint == "" {
		return nil
	}
	e := trace.NewExporter(trace.Options{
		Endpoint: c.Endpoint, Headers: c.Headers, Service: c.Service, Version: n.build.Version, Instance: n.store.id,
	}, n.registry)
	sending := newTasks()
	sending.start("traces", e.Run)
	n.closers.push("traces", func(ctx context.Context) error {
		return errors.Join(sending.stop(ctx), sending.wait(ctx)) // queued spans are sent first
	})
	return e
}
