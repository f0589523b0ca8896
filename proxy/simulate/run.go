package simulate

import (
	"context"
	"errors"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// Options say what is simulated.
type Options struct {
	Logs   []Log
	Format Format
	Names  *Names
	Config *config.Config
	// Compare is another configuration, that is given the same requests; nil for none.
	Compare *config.Config
	// Host is that of requests whose log tells of none; localhost when empty.
	Host string
	Top  int // keys of each limit to tell of
	// Progress, unless nil, is called now and then.
	Progress func(c Counts)
	Bounds
}

// Bounds keep a simulation small beside what else a process does. The zero value bounds
// nothing.
type Bounds struct {
	// MaxBytes is how much is read of all logs together, unpacked; more is ErrTooLong.
	MaxBytes int64
	// MaxKeys and MaxStore are the room for counts of each configuration: how many keys,
	// and how many bytes.
	MaxKeys  int
	MaxStore int64
	// Pace, unless nil, is called before each few lines and requests. It may wait, and an
	// error of it ends the run.
	Pace func() error
}

// ErrTooLong reports that logs are longer than Bounds.MaxBytes.
var ErrTooLong = errors.New("the logs are too long")

const (
	// every is after how many requests Progress is told, and paced after how many Pace
	// is called.
	every = 1 << 12
	paced = 1 << 6
	// piece is how much of a log is read at a time where there is a Pace, in bytes.
	piece = 16 << 10
)

// Run reads the logs to their end and reports what the configurations would have done.
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
