package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// A parity is a Memory and a Redis, whose clocks are one.
type parity struct {
	t      *testing.T
	r      *rand.Rand
	now    int64
	memory *limiter.Memory
	redis  *redisstore.Store
	move   func(now int64) // sets the clock of the Redis
	said   []string        // of the key
	isPeek bool            // the next call only looks
	agree  bool            // the stores say the same of the key
}

// Whatever happens to a limit and to the clock between two calls, each call returns, and no wait is negative or longer than
// the horizon. If it happens once, the two stores say the same. If it happens often they need not: a Memory notes what it has
// seen of the clock at each look, and Redis when it grants. WEIR_SEED repeats what failed.
func TestStores_AgreeWhateverChanges(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.Start(t).Addr)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	seed := seed(rand.Uint64() >> 1)
	p := &parity{t: t, now: 1_800_000_000_000}
	p.memory = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return time.UnixMilli(p.now) }})
	p.redis = redisstore.NewWithTestClock(client, redisstore.Options{Timeout: patient})
	t.Cleanup(func() { p.redis.Close() })
	p.move = func(now int64) {
		if err := client.Set(ctx, redisstore.TestClock, now, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for a := range limiter.NumAlgorithms {
		for round := range uint64(rounds.Of(20)) {
			p.r, p.said = rand.New(rand.NewPCG(seed, uint64(a)<<32+round)), nil
			if p.round(ctx, a, fmt.Sprint(a, round)); t.Failed() {
				t.Fatalf("%s, WEIR_SEED=%d, round %d:\n%s", a, seed, round, join(p.said))
			}
		}
	}
}

func join(lines []string) (out string) {
	for _, l := range lines {
		out += l + "\n"
	}
	return out
}

// round asks for one key again and again, while its limit and the clock change: once, after some grants and before some calls,
// or at any time.
func (p *parity) round(ctx context.Context, a limiter.Algorithm, key string) {
	p.now += 24 * time.Hour.Milliseconds() // no step back comes to an earlier key
	l := p.limit(a, nil)
	p.agree = p.r.IntN(2) == 0
	p.now += l.Rate.Window.Milliseconds() - p.now%l.Rate.Window.Milliseconds() // a sliding window begins
	for step, change := 0, 1+p.r.IntN(7); step < 14; step++ {
		isChange := !p.agree && p.r.IntN(3) == 0 || step == change
		if isChange && p.r.IntN(4) > 0 {
			l = p.limit(a, l)
		}
		pause := p.r.Int64N(1 + l.Horizon().Milliseconds()/int64(1+p.r.IntN(12)))
		switch {
		case p.agree && step < change: // nothing expires
			p.now += pause / 30
		case isChange && p.r.IntN(2) == 0:
			p.now -= pause
		case p.r.IntN(3) == 0:
			p.now += pause
		}
		p.move(p.now)
		p.isPeek = !isChange && p.r.IntN(4) == 0
		if p.call(ctx, l, key); p.t.Failed() {
			return
		}
	}
}

// limit is a random limit of an algorithm, or another version of one.
func (p *parity) limit(a limiter.Algorithm, was *limiter.Limit) *limiter.Limit {
	l := &limiter.Limit{Name: "agree:" + a.String(), Algorithm: a}
	l.Rate = limiter.Rate{Count: 1 + p.r.Int64N([]int64{3, 30, 300}[p.r.IntN(3)]), Window: time.Duration(60_000+p.r.IntN(3_600_000)) * time.Millisecond}
	if was != nil && (p.r.IntN(3) > 0 || a.HasConversion()) { // whose buckets in Redis are parts of its window
		l.Rate.Window = was.Rate.Window
	}
	switch {
	case a.HasSteps():
		l.Rate.Count = 1
		for range 1 + p.r.IntN(4) {
			l.Steps = append(l.Steps, time.Duration(1+p.r.Int64N(l.Rate.Window.Milliseconds()))*time.Millisecond)
		}
		slices.Sort(l.Steps)
	case a.HasConversion():
		l.Noted, l.Conversion = true, 1+p.r.IntN(100)
	case a.HasBurst() && p.r.IntN(2) == 0:
		l.Burst = 1 + p.r.Int64N(2*l.Rate.Count)
	}
	return l
}

// call has both stores decide, and compares what they say.
func (p *parity) call(ctx context.Context, l *limiter.Limit, key string) {
	p.t.Helper()
	c := limiter.Claim{Limit: l, Key: limiter.KeyOf(key), Cost: 1, Value: limiter.KeyOf("value", fmt.Sprint(p.r.IntN(8)))}
	if !l.Algorithm.HasValues() {
		c.Cost = 1 + p.r.Int64N(l.Capacity())/int64(1+p.r.IntN(4))
	}
	var said [2]limiter.Decision
	for i, s := range []limiter.Store{p.memory, p.redis} {
		ask := s.Take
		if p.isPeek {
			ask = s.Peek
		}
		if err := ask(ctx, []limiter.Claim{c}, &said[i]); err != nil {
			p.t.Errorf("store %d: %v", i, errors.Join(err, ctx.Err()))
			return
		}
		if o := said[i].Outcomes[0]; o.Wait < 0 || o.Wait > l.Horizon() || said[i].Wait < 0 || said[i].Wait > l.Horizon() || !o.Allowed && o.Wait == 0 {
			p.t.Errorf("store %d says %+v; the horizon is %v", i, o, l.Horizon())
		}
	}
	m, r := said[0].Outcomes[0], said[1].Outcomes[0]
	p.said = append(p.said, fmt.Sprintf("%d: cost %d of %s burst %d %v, peek %v: %+v %+v", p.now, c.Cost, l.Rate, l.Burst, l.Steps, p.isPeek, m, r))
	if m != r && p.agree {
		p.t.Errorf("the memory says %+v, and Redis %+v", m, r)
	}
}
