package lock

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/redistest"
)

// BenchmarkScripts is the processor time that Redis itself says (INFO
// commandstats) it has spent on the two scripts of a free lock and its unlock,
// all that they call and publish included, for each pair. Pairs are sent one
// call at a time, as a program does, or many at once, as the calls of many
// programs arrive at a busy server. Each round is some pairs, and then as many
// calls of a script that does nothing; shown are the median of the rounds and the
// best, which has the least of the machine's noise, and how many empty calls a
// pair costs (the median of the rounds' ratios), whatever machine that is.
//
//	go test ./lock -run '^$' -bench Scripts -benchtime 300x
func BenchmarkScripts(b *testing.B) {
	for name, kind := range map[string]func(*Locker) *Lock{
		"reentrant": func(l *Locker) *Lock { return l.Reentrant("a") },
		"fenced":    func(l *Locker) *Lock { return l.Fenced("a") },
		"simple":    func(l *Locker) *Lock { return l.Simple("a") },
		"fair":      func(l *Locker) *Lock { return l.Fair("a") },
		"read":      func(l *Locker) *Lock { return l.ReadWrite("a").Read() },
		"write":     func(l *Locker) *Lock { return l.ReadWrite("a").Write() },
		"group-1":   func(l *Locker) *Lock { return l.Group("a", "one") },
		"group-3":   func(l *Locker) *Lock { return l.Group("a", "one", "two", "three") },
	} {
		b.Run(name+"/single", func(b *testing.B) { benchScripts(b, kind, 100, (*pipe).single) })
		b.Run(name+"/pipelined", func(b *testing.B) { benchScripts(b, kind, 500, (*pipe).pipelined) })
	}
}

// A sending calls f so many times, and says when Redis has answered all.
type sending func(p *pipe, ctx context.Context, times int, f func() error) error

func benchScripts(b *testing.B, kind func(*Locker) *Lock, pairs int, send sending) {
	s := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer rdb.Close()
	p := &pipe{UniversalClient: rdb}
	l := New(p)
	defer l.Close()
	k := kind(l).kind
	pair := func() error {
		c := callParams{owner: l.NewOwner(), count: 1, lease: DefaultLease}
		_, err := k.attempt(b.Context(), c)
		c.count = 0
		_, err2 := k.release(b.Context(), c)
		return errors.Join(err, err2)
	}
	if err := pair(); err != nil { // Redis knows the scripts now
		b.Fatal(err)
	}
	empty := redis.NewScript("return 0")
	if err := empty.Load(b.Context(), rdb).Err(); err != nil {
		b.Fatal(err)
	}
	nothing := func() error {
		return p.Process(b.Context(), redis.NewCmd(b.Context(), "evalsha", empty.Hash(), 1, "a"))
	}
	// cost is how many µs of EVALSHA each of the calls of f takes.
	cost := func(f func() error) float64 {
		rdb.ConfigResetStat(b.Context())
		if err := send(p, b.Context(), pairs, f); err != nil {
			b.Fatal(err)
		}
		return float64(redistest.Commands(b, rdb)["evalsha"].Took.Microseconds()) / float64(pairs)
	}
	var costs, ratios []float64
	for b.Loop() {
		pairCost := cost(pair)
		costs = append(costs, pairCost)
		ratios = append(ratios, pairCost/cost(nothing))
	}
	slices.Sort(costs)
	slices.Sort(ratios)
	b.ReportMetric(costs[0], "best-redis-µs/pair")
	b.ReportMetric(costs[len(costs)/2], "median-redis-µs/pair")
	b.ReportMetric(ratios[len(ratios)/2], "empty-calls/pair")
	b.ReportMetric(0, "ns/op")
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

// single waits for the answer to each call.
func (p *pipe) single(_ context.Context, times int, f func() error) error {
	for range times {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// pipelined sends all calls at once. What a call returns is no answer yet.
func (p *pipe) pipelined(ctx context.Context, times int, f func() error) error {
	p.into = p.Pipeline()
	defer func() { p.into = nil }()
	for range times {
		f()
	}
	_, err := p.into.Exec(ctx)
	return err
}
