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
	// Compare is a second configuration for the same requests; nil for none.
	Compare *config.Config
	// Host is the host of requests without one in the log; localhost if empty.
	Host string
	Top  int // number of top keys per limit
	// Progress, unless nil, is called periodically.
	Progress func(c Counts)
	Bounds
}

// Bounds limit the resources of a simulation. The zero value has no limits.
type Bounds struct {
	// MaxBytes is the maximum size of all logs, uncompressed; beyond it Run returns
	// ErrTooLong.
	MaxBytes int64
	// MaxKeys and MaxStore are the capacity of the store for each configuration, in keys
	// and bytes.
	MaxKeys  int
	MaxStore int64
	// Pace, unless nil, is called regularly. It may wait; an error ends the run.
	Pace func() error
}

// ErrTooLong reports that logs are longer than Bounds.MaxBytes.
var ErrTooLong = errors.New("the logs are too long")

const (
	// every is the number of requests between calls of Progress, and paced that between
	// calls of Pace.
	every = 1 << 12
	paced = 1 << 6
	// piece is the size of reads if there is a Pace, in bytes.
	piece = 16 << 10
)

// Run reads the logs to their end and returns the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	all := mergeReader{seen: map[key.Origin]bool{}}
	left := o.MaxBytes
	for _, l := range o.Logs {
		s, err := open(l, o.Format, o.Names)
		if err == nil {
			s.bound(&left, o.Bounds)
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
		if n%every == 0 {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			if o.Progress != nil {
				o.Progress(all.Counts)
			}
		}
		if n%paced == 0 && o.Pace != nil {
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
		all.release(r)
	}
	return newReport(o, &all, replays, time.Since(began)), nil
}
