package limitertest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

// values is a limit of so many different values in 100 s.
func values(count int64) *limiter.Limit {
	l := limit("values", count, 100*time.Second)
	l.Algorithm = limiter.Distinct
	return l
}

// with is one claim of l for k with a value.
func with(l *limiter.Limit, k limiter.Key, value string) []limiter.Claim {
	return []limiter.Claim{{Limit: l, Key: k, Cost: 1, Value: limiter.KeyOf(value)}}
}

// distinct: different values are counted, each until a window after its last use.
func distinct(t *testing.T, s *scene) {
	l, k := values(2), s.key()
	use := func(v string) limiter.Decision { t.Helper(); return s.allowed(with(l, k, v), 1) }
	use("a")
	s.Advance(40 * time.Second)
	for range 3 {
		if d := use("b"); d.Outcomes[0].Remaining != 0 || d.Outcomes[0].Wait != 0 {
			t.Errorf("%+v; want nothing left, and no wait for the same value", d.Outcomes[0])
		}
	}
	s.denied(with(l, k, "c"), 60*time.Second)
	s.left(with(l, s.key(), "c"), 2)
	use("a") // stands from now on
	s.denied(with(l, k, "c"), 100*time.Second)
	s.Advance(100*time.Second - time.Millisecond)
	s.denied(with(l, k, "c"), time.Millisecond)
	s.Advance(time.Millisecond)
	s.left(with(l, k, "c"), 2)

	// What is given back is as if it had not been: the use before counts again.
	first := use("a")
	s.Advance(30 * time.Second)
	second := use("a")
	b := use("b")
	s.refund(t, with(l, k, "a"), second.Permit)
	s.refund(t, with(l, k, "a"), second.Permit)
	s.denied(with(l, k, "c"), 70*time.Second)
	s.refund(t, with(l, k, "a"), first.Permit)
	s.left(with(l, k, "c"), 1)
	c := use("c")
	s.refund(t, with(l, k, "a"), first.Permit)
	s.denied(with(l, k, "a"), 100*time.Second)
	s.refund(t, with(l, k, "b"), b.Permit)
	s.refund(t, with(l, k, "c"), c.Permit)
	s.left(with(l, k, "d"), 2)

	// Refused by another limit, a value does not stand.
	none := limit("none", 1, time.Second)
	s.allowed(one(none, k, 1), 1)
	if d := s.take(t, append(with(l, k, "d"), one(none, k, 1)...)); d.Allowed || !d.Outcomes[0].Allowed {
		t.Errorf("%+v", d)
	}
	s.left(with(l, k, "d"), 2)

	keeper := s.Store.(limiter.Keeper)
	for _, do := range []func() error{
		func() error { return keeper.Grant(t.Context(), with(l, k, "")) },
		func() error { return keeper.Reset(t.Context(), with(l, k, "")) },
	} {
		k = s.key()
		use("a")
		s.Advance(time.Second)
		use("b")
		if err := do(); err != nil {
			t.Fatal(err)
		}
		use("c")
	}
	if err := keeper.Ban(t.Context(), with(l, k, ""), time.Hour); err != nil {
		t.Fatal(err)
	}
	s.banned(with(l, k, "c"), time.Hour)

	for name, bad := range map[string]limiter.Claim{
		"cost":  {Limit: values(5), Key: k, Cost: 2},
		"count": {Limit: values(limiter.MaxDistinct + 1), Key: k, Cost: 1},
	} {
		var d limiter.Decision
		if err := s.Store.Take(t.Context(), []limiter.Claim{bad}, &d); !errors.Is(err, limiter.ErrCost) && !errors.Is(err, limiter.ErrLimit) {
			t.Errorf("bad %s: %v", name, err)
		}
	}
}

// A used is one use of a value.
type used struct {
	at     int64
	value  string
	permit limiter.Permit
	stays  bool // there were so many later uses that it is not given back any more
}

// distinctSchedules: in random schedules the store says what a plain list of uses
// says, of which the last two of each value can be given back.
func distinctSchedules(t *testing.T, s *scene) {
	rapid.Check(t, func(t *rapid.T) {
		l, k := values(rapid.Int64Range(1, 6).Draw(t, "count")), s.key()
		now := s.peek(t, with(l, k, "")).At.UnixMilli()
		var log []used
		for range min(s.steps(), 60) {
			pause := rapid.Int64Range(0, 40_000).Draw(t, "pause")
			s.Advance(time.Duration(pause) * time.Millisecond)
			now += pause
			log = slices.DeleteFunc(log, func(u used) bool { return u.at <= now-100_000 })
			if len(log) > 0 && rapid.IntRange(0, 3).Draw(t, "give back") == 0 {
				i := rapid.IntRange(0, len(log)-1).Draw(t, "which")
				s.refund(t, with(l, k, log[i].value), log[i].permit)
				if !log[i].stays {
					log = slices.Delete(log, i, i+1)
				}
				continue
			}
			v := fmt.Sprint(rapid.IntRange(0, 8).Draw(t, "value"))
			last := map[string]int64{}
			for _, u := range log {
				last[u.value] = max(last[u.value], u.at)
			}
			_, stands := last[v]
			d := s.take(t, with(l, k, v))
			if want := stands || int64(len(last)) < l.Rate.Count; d.Allowed != want {
				t.Fatalf("%s with %v standing: %+v, want allowed %v", v, last, d, want)
			}
			if d.Allowed {
				uses := 0
				for i := len(log) - 1; i >= 0; i-- {
					if log[i].value == v && !log[i].stays {
						uses++
						log[i].stays = uses > 1
					}
				}
				log = append(log, used{at: now, value: v, permit: d.Permit})
				last[v] = now
			} else {
				oldest := now
				for _, at := range last {
					oldest = min(oldest, at)
				}
				if want := time.Duration(oldest+100_000-now) * time.Millisecond; d.Wait != want {
					t.Fatalf("wait %v, want %v", d.Wait, want)
				}
			}
			if int64(len(last)) > l.Rate.Count {
				t.Fatalf("%d values in one window, the rate is %s", len(last), l.Rate)
			}
		}
	})
}
