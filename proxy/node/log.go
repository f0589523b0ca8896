package node

import (
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
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
	return &Log{zerolog.New(lines).Level(least).Hook(newClock()), queue}
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

// A clock adds a timestamp in UTC to each line, RFC 3339 with milliseconds. All parts except the
// milliseconds are formatted once a second, because formatting them costs more than the rest of
// most lines.
type clock struct{ last *atomic.Pointer[second] }

// A second is the formatted part of the timestamps of one second.
type second struct {
	unix int64
	text string // "2006-01-02T15:04:05.
}

func newClock() clock { return clock{new(atomic.Pointer[second])} }

// Run implements zerolog.Hook.
func (c clock) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	var space [32]byte
	e.RawJSON(zerolog.TimestampFieldName, c.append(space[:0], time.Now()))
}

// append appends t in quotes.
func (c clock) append(b []byte, t time.Time) []byte {
	s := c.last.Load()
	if s == nil || s.unix != t.Unix() {
		s = &second{t.Unix(), t.UTC().Format(`"2006-01-02T15:04:05.`)}
		c.last.Store(s)
	}
	ms := t.Nanosecond() / 1e6
	return append(append(b, s.text...), '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z', '"')
}
