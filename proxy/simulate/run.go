package simulate

import (
	"context"
	"errors"
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
	Config *config.Config
	// Compare is another configuration that is evaluated with the same requests; nil for none.
	Compare *config.Config
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
	// progressInterval is the number of requests between calls of Progress, and paced that between calls of
	// Pace.
	progressInterval = 1 << 12
	paceInterval     = 1 << 6
	// readSize is the number of bytes read at a time if Pace is set.
	readSize = 16 << 10
)

// Run reads the logs to their end and returns the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	all := mergeReader{origins: map[key.Origin]bool{}}
	left := o.MaxBytes
	for _, l := range o.Logs {
		s, err := open(l, o.Format, o.Names)
		if err == nil {
			s.setBounds(&left, o.Bounds)
		}
		if err != nil {
			return nil, err
		}
		all.sources = append(all.sources, s)
	}
	var replays []*proxy.Replay
	for _, c := range []*config.Config{o.Config, o.Compare} {
		if c == nil {
			continue
		}
		r, err := proxy.NewReplay(c, proxy.ReplayOptions{Host: o.Host, Top: o.Top, MaxKeys: o.MaxKeys, MaxBytes: o.MaxStore})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		replays = append(replays, r)
	}
	for n := int64(0); ; n++ {
		if n%progressInterval == 0 {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			if o.Progress != nil {
				o.Progress(all.Counts)
			}
		}
		if n%paceInterval == 0 && o.Pace != nil {
			if err := o.Pace(); err != nil {
				return nil, err
			}
		}
		r, err := all.next()
		if err != nil {
			return nil, err
		}
		if r == nil {
			break
		}
		for _, replay := range replays {
			replay.Request(&r.LoggedRequest)
		}
		all.recycle(r)
	}
	return newReport(o, &all, replays, time.Since(began)), nil
}
