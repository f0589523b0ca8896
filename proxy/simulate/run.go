package simulate

import (
	"context"
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
}

// Progress is told every so many lines.
const every = 1 << 12

// Run reads the logs to their end and reports what the configurations would have done.
func Run(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	all := order{seen: map[key.Origin]bool{}}
	for _, l := range o.Logs {
		s, err := open(l, o.Format, o.Names)
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
		r, err := proxy.NewReplay(c, proxy.ReplayOptions{Host: o.Host, Top: o.Top})
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
