package node

import (
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// A Log writes lines in the background, so that nobody waits for where they go. It
// ends with Close.
type Log struct {
	zerolog.Logger
	queue *logQueue
}

// NewLog writes JSON lines to out, or lines for people when that is a terminal.
func NewLog(out io.Writer, least zerolog.Level) *Log {
	queue := newLogQueue(out)
	var lines io.Writer = queue
	if f, ok := out.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		lines = zerolog.ConsoleWriter{Out: queue, TimeFormat: time.TimeOnly}
	}
	return &Log{zerolog.New(lines).Level(least).Hook(clock{}), queue}
}

// Close writes what has been logged, for a moment at most.
func (l *Log) Close() { l.queue.Close() }

// Standard is for what libraries write to the standard log: of use when looking for a
// fault, and no JSON by itself.
func (l *Log) Standard() io.Writer { return stdLog{l.Logger} }

type stdLog struct{ log zerolog.Logger }

func (w stdLog) Write(line []byte) (int, error) {
	w.log.Debug().Str("error", strings.TrimSpace(string(line))).Msg("stdlib log")
	return len(line), nil
}

// A clock stamps each line with the time in UTC, RFC 3339 with milliseconds.
type clock struct{}

// Run implements zerolog.Hook.
func (clock) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}
