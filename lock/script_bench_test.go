package lock

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/redistest"
)

// BenchmarkScripts is what Redis itself says a free lock and its unlock cost, in
// the best of many rounds of pipelined calls: nothing of the network, little of
// the noise.
func BenchmarkScripts(b *testing.B) {
	for name, kind := range map[string]func(*Locker) *Lock{
		"reentrant": func(l *Locker) *Lock { return l.Reentrant("a") },
		"fenced":    func(l *Locker) *Lock { return l.Fenced("a") },
		"simple":    func(l *Locker) *Lock { return l.Simple("a") },
		"fair":      func(l *Locker) *Lock { return l.Fair("a") },
		"read":      func(l *Locker) *Lock { return l.ReadWrite("a").Read() },
		"write":     func(l *Locker) *Lock { return l.ReadWrite("a").Write() },
	} {
		b.Run(name, func(b *testing.B) {
			s := redistest.Start(b)
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
			defer rdb.Close()
			p := &pipe{UniversalClient: rdb}
			l := New(p)
			defer l.Close()
			k := kind(l).kind
			best := 1e9
			for b.Loop() {
				rdb.Do(b.Context(), "config", "resetstat")
				p.into = rdb.Pipeline()
				for range 1000 {
					c := claim{owner: l.NewOwner(), count: 1, lease: DefaultLease}
					k.attempt(b.Context(), c)
					c.count = 0
					k.release(b.Context(), c)
				}
				if _, err := p.into.Exec(b.Context()); err != nil {
					// Redis does not know the scripts yet: run them once the slow way.
					p.into = nil
					c := claim{owner: l.NewOwner(), count: 1, lease: DefaultLease}
					k.attempt(b.Context(), c)
					c.count = 0
					k.release(b.Context(), c)
					continue
				}
				best = min(best, evalshaCost(b, rdb)/1000)
			}
			b.ReportMetric(best, "redis-µs/lock+unlock")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// A pipe collects commands instead of sending them; their replies are not read.
type pipe struct {
	redis.UniversalClient
	into redis.Pipeliner
}

func (p *pipe) Process(ctx context.Context, cmd redis.Cmder) error {
	if p.into == nil {
		return p.UniversalClient.Process(ctx, cmd)
	}
	return p.into.Process(ctx, cmd)
}

// evalshaCost is how many µs EVALSHA has taken since the statistics were reset.
func evalshaCost(b *testing.B, rdb *redis.Client) float64 {
	info, err := rdb.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
	_, rest, _ = strings.Cut(rest, "usec=")
	usec, _, _ := strings.Cut(rest, ",")
	n, err := strconv.ParseFloat(usec, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
