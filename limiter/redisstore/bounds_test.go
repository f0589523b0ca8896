package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// maxScript is how long Redis may do nothing else for one call about one key, whatever the key holds. A machine on which
// as much as oneMillisecond takes longer than that may take as long, and beside other tests whose work counts as the time
// of a script beside them, four times as long: ./test/proof rounds measures it alone.
const (
	maxScript      = time.Millisecond
	besideOthers   = 4
	oneMillisecond = "local n = 0 for i = 1, 24000 do n = n + string.byte(ARGV[1], i % 64 + 1) end return n"
)

// boundedLimits are limits whose keys hold the most that they can.
func boundedLimits() (all []*limiter.Limit) {
	for a := range limiter.NumAlgorithms {
		l := limitertest.LimitOf(a, "bound:"+a.String(), limiter.Rate{Count: 1_000_000, Window: time.Hour})
		switch {
		case a.HasLeases():
			l.Rate.Count = limiter.MaxConcurrent
		case a.HasValues():
			l.Rate.Count = limiter.MaxDistinct
		case a.HasSteps():
			l.Steps = []time.Duration{time.Millisecond}
		}
		l.Noted = !a.HasLeases() && !a.HasValues() && !a.HasSteps()
		all = append(all, l)
	}
	return all
}

// A bounded is one key at its bounds.
type bounded struct {
	*testStore
	limit   *limiter.Limit
	key     limiter.Key
	permits []limiter.Permit // of the latest requests
	values  []limiter.Key
}

func (b *bounded) claim(value limiter.Key) []limiter.Claim {
	return []limiter.Claim{{Limit: b.limit, Key: b.key, Cost: 1, Value: value}}
}

// take takes for each of values, in one call.
func (b *bounded) take(values ...limiter.Key) {
	b.t.Helper()
	var all [][]limiter.Claim
	for _, v := range values {
		all = append(all, b.claim(v))
	}
	errs, ds := b.store.TakeInOneCall(b.t.Context(), all)
	b.check(errors.Join(errs...))
	for i, d := range ds {
		if d.Allowed {
			b.permits, b.values = append(b.permits, d.Permit), append(b.values, values[i])
		}
	}
}

// fill lets the key have what it can: entries until they are merged, marks of refunds, values with all their uses, buckets.
func (b *bounded) fill() {
	b.t.Helper()
	a, subject := b.limit.Algorithm, limiter.KeyOf("subject")
	switch {
	case a.HasLeases():
		for range b.limit.Rate.Count / 100 {
			b.take(make([]limiter.Key, 100)...)
		}
	case a.HasValues():
		for i := range 3 * b.limit.Rate.Count / 100 {
			var values []limiter.Key
			for j := range int64(100) {
				values = append(values, limiter.KeyOf(fmt.Sprint("value", (100*i+j)%b.limit.Rate.Count)))
			}
			b.take(values...)
			b.advance(100 * time.Millisecond)
		}
	case a.HasConversion():
		for i := range 61 {
			confirmed := limiter.KeyOf(fmt.Sprint("confirmed", i))
			b.take(confirmed)
			_, err := b.store.Return(b.t.Context(), []*limiter.Limit{b.limit}, confirmed)
			b.check(err)
			b.take(subject)
			b.advance(time.Minute)
		}
	default:
		for i := range 300 {
			b.take(limiter.Key{})
			b.advance(9 * time.Second)
			if i%2 == 0 {
				b.check(b.store.Refund(b.t.Context(), b.claim(limiter.Key{}), b.permits[len(b.permits)-1]))
			}
		}
	}
}

// calls are what is asked of the key, by name and in their order.
func (b *bounded) calls() (names []string, calls map[string]func(i int)) {
	ctx, value := context.Background(), func(i int) limiter.Key { return limiter.KeyOf(fmt.Sprint("new", i)) }
	calls = map[string]func(i int){
		"take":    func(i int) { b.take(value(i)) },
		"peek":    func(i int) { b.check(b.store.Peek(ctx, b.claim(value(i)), &limiter.Decision{})) },
		"inspect": func(int) { _, err := b.store.Inspect(ctx, b.claim(limiter.Key{})); b.check(err) },
		"refund": func(i int) {
			at := len(b.permits) - 1 - i%len(b.permits)
			b.check(b.store.Refund(ctx, b.claim(b.values[at]), b.permits[at]))
		},
		"grant": func(i int) { b.check(b.store.Grant(ctx, b.claim(value(i)))) },
		"ban": func(int) {
			b.check(b.store.Ban(ctx, b.claim(limiter.Key{}), time.Second))
			b.check(b.store.Ban(ctx, b.claim(limiter.Key{}), 0))
		},
		"report": func(i int) {
			b.check(b.store.TellAged(ctx, b.claim(value(i)), limiter.Permit{ID: [16]byte{1, byte(i)}, At: time.Now()}, time.Minute))
		},
	}
	names = []string{"take", "peek", "inspect", "refund", "report", "ban", "grant"}
	if b.limit.Algorithm.HasLeases() {
		names, b.values = slices.Insert(names, 0, "renew"), make([]limiter.Key, len(b.permits)) // a grant forgets any of them
		calls["renew"] = func(i int) { b.check(b.store.Renew(ctx, b.claim(limiter.Key{}), b.permits[i])) }
	}
	if b.limit.Noted {
		names = append(names, "return")
		calls["return"] = func(i int) { // of as much as is noted under one subject
			b.take(slices.Repeat([]limiter.Key{value(i)}, 64)...)
			b.do("config", "resetstat")
			_, err := b.store.Return(ctx, []*limiter.Limit{b.limit}, value(i))
			b.check(err)
		}
	}
	return names, calls
}

// least is the least time of a script call of six rounds, and of up to ten times as many until it is within bound, by the
// statistics of Redis.
func (b *bounded) least(bound time.Duration, call func(i int)) (least time.Duration) {
	b.t.Helper()
	least = time.Hour
	for i := 0; i < 6 || i < 60 && least > bound; i++ {
		b.do("config", "resetstat")
		call(i)
		ran := redistest.Scripts(b.t, b.client)
		least = min(least, ran.Took/time.Duration(ran.Calls))
	}
	return least
}

// Whatever a key holds, no call about it keeps Redis from others for longer than a millisecond. With -v it prints the table
// of test/bench/RESULTS.md.
func TestBounds_NoScriptIsLong(t *testing.T) {
	s := newClockedTestStore(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	machine := (&bounded{testStore: s}).least(time.Hour, func(int) { s.do("eval", oneMillisecond, 0, strings.Repeat("a", 64)) })
	bound := max(maxScript, machine)
	if rounds.Of(1) == 1 {
		bound *= besideOthers
	}
	for i, l := range boundedLimits() {
		b := &bounded{testStore: s, limit: l, key: limiter.KeyOf(fmt.Sprint(i))}
		b.fill()
		line := l.Algorithm.String()
		names, calls := b.calls()
		for _, name := range names {
			took := b.least(bound, calls[name])
			if took > bound {
				t.Errorf("%s of a %s at its bounds takes Redis %v, over %v", name, l.Algorithm, took, bound)
			}
			line += fmt.Sprintf("\t%s %d", name, took.Microseconds())
		}
		fmt.Fprintln(w, line)
	}
	w.Flush()
	t.Logf("µs of a script call, where a loop of a millisecond takes %v:\n%s", machine, table.String())
}
