package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// boxed are the algorithms whose windows share a string.
func boxed() []limiter.Algorithm {
	return []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA, limiter.SlidingLog, limiter.Cooldown}
}

// listed is a list of rates of one algorithm under one key, in a box.
func listed(a limiter.Algorithm, rates ...limiter.Rate) (claims []limiter.Claim) {
	for i, r := range rates {
		l := limitertest.LimitOf(a, "sms.phone:"+string(rune('a'+i)), r)
		claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf("phone"), Cost: 1})
	}
	return claims
}

// All windows of a list are one key, which lives as long as the longest of them; each
// keeps its count when others are added or removed, and is short again without them.
func TestBox_KeepsEachWindow(t *testing.T) {
	for _, a := range boxed()[:4] { // a cooldown has one permit at a time
		t.Run(a.String(), func(t *testing.T) {
			s := newClockedTestStore(t)
			all := listed(a, limiter.Rate{Count: 9, Window: time.Minute}, limiter.Rate{Count: 90, Window: time.Hour}, limiter.Rate{Count: 900, Window: 24 * time.Hour})
			s.allowed(all[1:2], 2)
			lone := s.do("strlen", redisstore.BoxName(all[0])).(int64)
			s.allowed(all, 3)
			s.allowed(all[:1], 1)
			for i, left := range []int64{5, 85, 897} {
				s.left(all[i:i+1], left)
			}
			key := redisstore.BoxName(all[0])
			if keys := s.do("keys", "weir:*").([]any); len(keys) != 1 || keys[0] != key {
				t.Errorf("keys %v, want %s", keys, key)
			}
			if ttl := s.do("pttl", key).(int64); ttl < 23*time.Hour.Milliseconds() || ttl > 49*time.Hour.Milliseconds() {
				t.Errorf("lives %d ms", ttl)
			}
			s.check(s.store.Reset(t.Context(), all[2:]))
			for i, left := range []int64{5, 85, 900} {
				s.left(all[i:i+1], left)
			}
			s.advance(50 * time.Hour)
			s.allowed(all[1:2], 2)
			if now := s.do("strlen", key).(int64); now > lone+4 {
				t.Errorf("%d bytes after the others are gone, %d before they came", now, lone)
			}
		})
	}
}

// However many windows a request has in a box, Redis reads one string for it, and writes
// one.
func TestBox_IsReadAndWrittenOnce(t *testing.T) {
	for _, a := range boxed()[:4] {
		t.Run(a.String(), func(t *testing.T) {
			s := newClockedTestStore(t)
			all := listed(a, limiter.Rate{Count: 9, Window: time.Minute}, limiter.Rate{Count: 90, Window: time.Hour}, limiter.Rate{Count: 900, Window: 24 * time.Hour})
			s.allowed(all, 1) // now Redis knows the script
			s.do("config", "resetstat")
			s.allowed(all, 3)
			if got, want := s.commands(), map[string]int{"evalsha": 3, "get": 3, "mget": 3, "set": 3}; !maps.Equal(got, want) { // get: the clock
				t.Errorf("three requests run %v, want %v", got, want)
			}
		})
	}
}

// commands are how often which commands ran since the statistics were reset, without
// what a client does of its own accord.
func (s *testStore) commands() map[string]int {
	s.t.Helper()
	ran := map[string]int{}
	for name, stat := range redistest.Commands(s.t, s.client) {
		if !strings.Contains(name, "|") && name != "hello" && name != "ping" {
			ran[name] = stat.Calls
		}
	}
	return ran
}

// Windows in one string decide as windows in a string each, whatever is done to them.
func TestBox_DecidesAsStringsOfTheirOwn(t *testing.T) {
	t.Parallel()
	steps := rounds.Of(120)
	for _, a := range boxed() {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			s := newClockedTestStore(t)
			w := &layouts{s: s, a: a, r: rand.New(rand.NewPCG(1, uint64(a)))}
			for range steps {
				w.step()
			}
		})
	}
}

// layouts are the same limits twice: with names that share a box, and that do not.
type layouts struct {
	s       *testStore
	a       limiter.Algorithm
	r       *rand.Rand
	permits [][2]grantedTo
	more    int64 // the rates have been edited
}

type grantedTo struct {
	claims []limiter.Claim
	permit limiter.Permit
}

// claims are of some limits of one of few keys, in both layouts. The windows are minutes and
// hours of the test's clock, so that on a slow machine Redis, which expires keys by the real
// time, does not expire those that are in use.
func (w *layouts) claims() (both [2][]limiter.Claim) {
	key, order := w.r.IntN(3), w.r.Perm(4)[:1+w.r.IntN(4)]
	if w.r.IntN(2) == 0 {
		slices.Sort(order)
	}
	for _, i := range order {
		rate := []limiter.Rate{{Count: 3, Window: time.Minute}, {Count: 7, Window: 9 * time.Minute}, {Count: 200, Window: time.Hour}, {Count: 40, Window: time.Hour}}[i]
		rate.Count += w.more
		cost := 1 + w.r.Int64N(2)
		for layout, name := range []string{"l:%c", "l%c"} {
			l := limitertest.LimitOf(w.a, fmt.Sprintf(name, 'a'+i), rate)
			both[layout] = append(both[layout], limiter.Claim{Limit: l, Key: limiter.KeyOf(fmt.Sprint(layout, key)), Cost: min(cost, l.Rate.Count)})
		}
	}
	return both
}

// step does one thing in both layouts and wants the same answers.
func (w *layouts) step() {
	w.s.t.Helper()
	if w.more = int64(w.r.IntN(20) / 18); w.a == limiter.GCRA {
		w.more = 0 // what has flowed back since the last write goes by the new rate, and a box is written more often
	}
	switch n := w.r.IntN(20); {
	case n < 10:
		w.take()
	case n < 13:
		w.s.advance(time.Duration(w.r.IntN(4)) * time.Duration(w.r.IntN(180_000)) * time.Millisecond)
	case n < 14:
		w.s.advance(-time.Duration(w.r.IntN(3000)) * time.Millisecond)
	case n < 17 && len(w.permits) > 0:
		for _, p := range w.permits[w.r.IntN(len(w.permits))] {
			w.s.check(w.s.store.Refund(w.s.t.Context(), p.claims, p.permit))
		}
	default:
		both, what, ban := w.claims(), w.r.IntN(8), time.Duration(w.r.IntN(2))*18*time.Second
		for _, claims := range both {
			switch what {
			case 0:
				w.s.check(w.s.store.Reset(w.s.t.Context(), claims))
			case 1, 2:
				w.s.check(w.s.store.Ban(w.s.t.Context(), claims, ban))
			default:
				w.s.check(w.s.store.Grant(w.s.t.Context(), claims))
			}
		}
	}
	both, said := w.claims(), [2]string{}
	for layout, claims := range both {
		var d limiter.Decision
		w.s.check(w.s.store.Peek(w.s.t.Context(), claims, &d))
		said[layout] = fmt.Sprint(d.Allowed, d.Outcomes)
	}
	w.same(said)
}

// take has some requests travel together.
func (w *layouts) take() {
	w.s.t.Helper()
	var all [2][][]limiter.Claim
	for range 1 + w.r.IntN(5) {
		both := w.claims()
		if w.r.IntN(3) == 0 {
			both[0], both[1] = both[0][:1], both[1][:1]
		}
		all[0], all[1] = append(all[0], both[0]), append(all[1], both[1])
	}
	var said [2]string
	var ds [2][]limiter.Decision
	for layout := range all {
		var errs []error
		errs, ds[layout] = w.s.store.TakeInOneCall(w.s.t.Context(), all[layout])
		for i, d := range ds[layout] {
			w.s.check(errs[i])
			said[layout] += fmt.Sprint(d.Allowed, d.Wait, d.Outcomes, "\n")
		}
	}
	w.same(said)
	for i := range ds[0] {
		if ds[0][i].Allowed {
			w.permits = append(w.permits, [2]grantedTo{{all[0][i], ds[0][i].Permit}, {all[1][i], ds[1][i].Permit}})
		}
	}
}

func (w *layouts) same(said [2]string) {
	w.s.t.Helper()
	if said[0] != said[1] {
		w.s.t.Fatalf("in one string:\n%s\nin a string each:\n%s", said[0], said[1])
	}
}

// logged is a claim of a sliding log.
func logged(count int64, window time.Duration) []limiter.Claim {
	c := claim(count, window, 1)
	c[0].Limit.Algorithm = limiter.SlidingLog
	return c
}

// A sliding log is one key, which leaves by itself and is small at any rate.
func TestSlidingLog_IsOneSmallKey(t *testing.T) {
	t.Parallel()
	for _, count := range []int64{1, 10, 128, 1000, 100_000} {
		s := newClockedTestStore(t)
		c := logged(count, 100*time.Second)
		key := redisstore.BoxName(c[0])
		var bytes int64
		began := time.Now()
		for range 350 {
			s.take(c)
			s.advance(400 * time.Millisecond)
			bytes = max(bytes, s.do("memory", "usage", key, "samples", 0).(int64))
		}
		if keys := s.do("keys", "weir:*").([]any); fmt.Sprint(keys) != fmt.Sprint([]string{key}) {
			t.Errorf("keys %v, want %s", keys, key)
		}
		if ttl := s.do("pttl", key).(int64); ttl <= 90_000-time.Since(began).Milliseconds() || ttl > 101_000 { // Redis's own clock goes on
			t.Errorf("lives %d ms", ttl)
		}
		if bytes > 2048 {
			t.Errorf("rate %d: %d bytes", count, bytes)
		}
		t.Logf("rate %d: at most %d bytes", count, bytes)
	}
}

// Most keys have one permit: it takes little room, is the same permit when others come,
// and is given back by its id.
func TestSlidingLog_OnePermitIsSmaller(t *testing.T) {
	s := newClockedTestStore(t)
	c := logged(60, time.Hour)
	d := s.allowed(c, 1)
	if bytes := s.do("memory", "usage", redisstore.BoxName(c[0]), "samples", 0).(int64); bytes > 150 {
		t.Errorf("one permit takes %d bytes, want at most 150", bytes)
	}
	s.left(c, 59)
	s.advance(time.Minute)
	s.allowed(c, 1)
	s.left(c, 58)
	for range 2 {
		s.check(s.store.Refund(t.Context(), c, d.Permit))
		s.left(c, 59)
	}
	s.advance(2 * time.Hour)
	s.allowed(c, 1)
	c[0].Cost = 60
	s.denied(c, time.Hour)
}

// Times and counts of any size are kept as they are.
func TestSlidingLog_KeepsAnySize(t *testing.T) {
	s := newClockedTestStore(t)
	c := logged(limiter.MaxCount, limiter.MaxWindow)
	var out int64
	for i, pause := range []time.Duration{0, time.Millisecond, 70 * time.Second, 5 * time.Hour, 60 * 24 * time.Hour} {
		s.advance(pause)
		for _, cost := range []int64{1, 255, 256, 100_000_000} {
			c[0].Cost = cost
			s.allowed(c, 1)
			out += cost
			s.left(c, limiter.MaxCount-out)
		}
		c[0].Cost = limiter.MaxCount
		if d := s.take(c); d.Allowed {
			t.Fatalf("step %d: %+v", i, d)
		}
	}
	gone := 60*24*time.Hour + 5*time.Hour + 70*time.Second + time.Millisecond
	c[0].Cost = limiter.MaxCount - out + 1
	s.denied(c, limiter.MaxWindow-gone)
	s.advance(limiter.MaxWindow - time.Millisecond)
	s.left(c, limiter.MaxCount-100_000_000-256-255-1)
	s.advance(time.Millisecond)
	s.left(c, limiter.MaxCount)
}

// Another algorithm of the same limit starts anew, and none writes what another reads.
func TestSlidingLog_StartsAnew(t *testing.T) {
	s := newClockedTestStore(t)
	bucket, log := claim(2, time.Minute, 1), logged(2, time.Minute)
	s.allowed(bucket, 2)
	s.allowed(log, 2)
	s.denied(bucket, time.Minute)
	s.denied(log, time.Minute)
}

func paused() []limiter.Claim {
	return []limiter.Claim{{
		Limit: &limiter.Limit{
			Name: "sms.backoff", Rate: limiter.Rate{Count: 1, Window: time.Hour}, Algorithm: limiter.Cooldown,
			Steps: []time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute},
		},
		Key: limiter.KeyOf("+8613800138000"), Cost: 1,
	}}
}

// A clock that is set back makes nobody wait longer than the pause.
func TestCooldown_ClockSetBack(t *testing.T) {
	s := newClockedTestStore(t)
	c := paused()
	s.allowed(c, 1)
	s.advance(-20 * time.Second)
	s.denied(c, time.Minute)
	s.advance(30 * time.Second)
	s.denied(c, 30*time.Second) // the refusal before has moved the permit
	s.advance(30 * time.Second)
	s.allowed(c, 1)
	s.denied(c, 2*time.Minute)
}

// However many permits in a row, their string stays as small as that of 32.
func TestCooldown_StaysSmall(t *testing.T) {
	s := newClockedTestStore(t)
	c := paused()
	var size int64
	for i := range 100 {
		s.allowed(c, 1)
		if i == 35 {
			size = s.do("strlen", redisstore.BoxName(c[0])).(int64)
		}
		s.advance(10 * time.Minute)
	}
	if got := s.do("strlen", redisstore.BoxName(c[0])).(int64); got > size+8 {
		t.Errorf("%d bytes after 100 permits, %d after 36", got, size)
	}
	s.advance(50 * time.Minute)
	s.allowed(c, 1)
	s.denied(c, time.Minute)
	if got := s.do("strlen", redisstore.BoxName(c[0])).(int64); got > 40 {
		t.Errorf("%d bytes of one permit", got)
	}
}
