// Package simulate evaluates what a configuration would have done with past requests. It reads
// access logs, orders their lines by time, passes them to proxy.Replay for one or two
// configurations, and reports the result of each limit as text, as JSON, or as a self-contained
// HTML page.
//
// A line is Weir's own JSON, JSON of another server, or the common or combined log format of Apache
// and nginx. Data that a line does not have is unknown, not absent from the request: see
// proxy.LoggedRequest. JSON fields are identified by the names that servers usually use (names.go),
// or by names that the operator configures.
//
// Reading a line does not allocate: lines are held in reused buffers, and all strings of a request
// share the memory of its line. A line is held until no earlier one is expected: 65,536 lines, or
// those of one minute, whichever is less. A line that is even later is evaluated at the time of the
// previous one, and counted as late.
package simulate

import (
	"bufio"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// Options configure a simulation.
type Options struct {
	Logs   []Log
	Format Format
	Names  *Names
	// Configs are one or two configurations, which are evaluated with the same requests.
	Configs []*config.Config
	// Host is the host of requests whose log has none; localhost if empty.
	Host string
	Top  int // number of most refused keys to report for each limit
	// Progress is called at intervals; it may be nil.
	Progress func(c Counts)
	Bounds
}

// Bounds limit the resources of a simulation that runs beside other work of a process. The zero
// value sets no limits.
type Bounds struct {
	// MaxBytes is the maximum size of all logs together, uncompressed; more is ErrTooLong.
	MaxBytes int64
	// MaxKeys and MaxStore limit the memory for counts of each configuration: the number of keys,
	// and the number of bytes.
	MaxKeys  int
	MaxStore int64
	// Pace is called before every few lines and requests; it may be nil. It may block, and an error
	// ends the run.
	Pace func() error
}

// ErrTooLong reports that logs are longer than Bounds.MaxBytes.
var ErrTooLong = errors.New("the logs are too long")

const (
	// progressInterval is the number of lines between calls of Progress, and paceInterval that between
	// calls of Pace and looks at the context.
	progressInterval = 1 << 12
	paceInterval     = 1 << 6
	// readSize is the number of bytes read at a time between calls of Pace.
	readSize = 16 << 10
	// maxAhead is how far the time of a request may be ahead of this machine's.
	maxAhead = 24 * time.Hour
)

// Run reads the logs to their end and returns the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	all := mergeReader{origins: map[key.Origin]bool{}, free: sync.Pool{New: func() any { return new(record) }}}
	all.proceed = func(n int64) error { return o.proceed(ctx, n, all.Counts) }
	left := o.MaxBytes
	for _, l := range o.Logs {
		s, err := open(l, o.Format, o.Names)
		if err != nil {
			return nil, err
		}
		s.in = bufio.NewReaderSize(&boundedReader{s.in, &left, o.Bounds}, readSize)
		s.horizon = began.Add(maxAhead)
		all.sources = append(all.sources, s)
	}
	var replays []*proxy.Replay
	for _, c := range o.Configs {
		r, err := proxy.NewReplay(c, proxy.ReplayOptions{Host: o.Host, Top: o.Top, MaxKeys: o.MaxKeys, MaxBytes: o.MaxStore})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		replays = append(replays, r)
	}
	for {
		r, err := all.next()
		switch {
		case err != nil:
			return nil, err
		case r == nil:
			return newReport(o, &all, replays, time.Since(began)), nil
		}
		for _, replay := range replays {
			replay.Request(&r.LoggedRequest)
		}
		all.recycle(r)
	}
}

// proceed is called with the number of steps so far: lines that were read and requests that were
// evaluated. An error ends the run.
func (o *Options) proceed(ctx context.Context, n int64, c Counts) error {
	if n%paceInterval != 0 {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if o.Progress != nil && n%progressInterval == 0 {
		o.Progress(c)
	}
	if o.Pace != nil {
		return o.Pace()
	}
	return nil
}

// parseCombined parses r.line in the common or the combined log format of Apache and nginx, with
// or without a leading virtual host:
//
//	192.0.2.1 - alice [22/Nov/2026:11:05:47 +0000] "GET /a?b=c HTTP/1.1" 200 123 "referer" "agent"
//
// Anything after the user agent is ignored.
func (s *source) parseCombined(r *record) lineKind {
	client, rest, _ := strings.Cut(stringOf(r.line), " [")
	at, rest, _ := strings.Cut(rest, "]")
	asked, rest, ok := cutQuoted(rest)
	if !ok || !r.setClient(client) {
		return kindMalformed
	}
	if r.At, ok = r.parseTime(at); !ok {
		return kindMalformed
	}
	status, rest, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if r.Status, ok = parseStatus(status); !ok {
		return kindMalformed
	}
	if r.Method, r.Target, r.Proto, ok = splitRequestLine(asked); !ok {
		return kindOther // a connection without a request, or not HTTP
	}
	_, rest, _ = strings.Cut(rest, " ") // bytes sent
	s.setFields(r, rest)
	return kindRequest
}

// setClient parses the part before the time: an optional virtual host, the client's address, and two
// user names.
func (r *record) setClient(s string) bool {
	first, rest, ok := strings.Cut(s, " ")
	if !ok {
		return false
	}
	if r.Client = proxy.ParseForwardedFor(first); r.Client.IsValid() {
		return true
	}
	if second, _, _ := strings.Cut(rest, " "); second != "" && second != "-" {
		if a := proxy.ParseForwardedFor(second); a.IsValid() {
			r.Host, r.Client = first, a
		}
	}
	return true // a host name instead of an address leaves the client unknown
}

// setFields parses Referer and User-Agent if they are needed.
func (s *source) setFields(r *record, rest string) {
	for _, name := range []string{"Referer", "User-Agent"} {
		value, next, ok := cutQuoted(rest)
		if !ok {
			return // the common format has none
		}
		if rest = next; value == "-" {
			value = ""
		}
		if o := key.HeaderField(name); slices.Contains(s.json.names.origins, o) {
			r.Fields = append(r.Fields, proxy.LoggedField{Origin: o, Value: value})
		}
	}
}

// cutQuoted returns the quoted text at the beginning of s, and the rest of s.
func cutQuoted(s string) (value, rest string, ok bool) {
	s = strings.TrimLeft(s, " ")
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil || quoted[0] != '"' {
		return "", s, false
	}
	value, err = strconv.Unquote(quoted)
	return value, s[len(quoted):], err == nil
}

// splitRequestLine splits a request line.
func splitRequestLine(s string) (method, target, proto string, ok bool) {
	method, rest, _ := strings.Cut(s, " ")
	target, proto, _ = strings.Cut(rest, " ")
	return method, target, proto, method != "" && target != "" && strings.HasPrefix(proto, "HTTP/")
}
