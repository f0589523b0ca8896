package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/test/await"
)

// When a Memory is full, the claims of one decision may count in one cell, also under several versions of a limit.
// However many they are, the decision ends, and no wait is longer than the horizon.
func TestMemory_SeveralClaimsInOneCell(t *testing.T) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for seed := range uint64(3000) {
			random := rand.New(rand.NewPCG(seed, 1))
			h := newHand()
			m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1, Clock: h.now})
			take(t, m, limiter.Claim{Limit: rate("x", 1, limiter.MaxWindow), Key: numbered(0), Cost: 1})
			a := limiter.Algorithm(seed % uint64(limiter.NumAlgorithms))
			version := func() *limiter.Limit {
				of := a
				if random.IntN(9) == 0 {
					of = limiter.Algorithm(random.IntN(int(limiter.NumAlgorithms)))
				}
				return limitertest.LimitOf(of, "l", limiter.Rate{Count: 1 + random.Int64N(4), Window: time.Duration(1+random.IntN(3)) * time.Minute})
			}
			l := version()
			for step := range 8 {
				h.advance(time.Duration(random.IntN(3)*random.IntN(90_000)) * time.Millisecond)
				var claims []limiter.Claim
				for i := range 1 + random.IntN(4) {
					if random.IntN(3) == 0 {
						l = version()
					}
					claims = append(claims, limiter.Claim{Limit: l, Key: numbered(1 + i), Cost: 1, Value: numbered(random.IntN(3)), Source: uint32(random.IntN(2))})
				}
				d := take(t, m, claims...)
				for i, o := range d.Outcomes {
					if o.Wait < 0 || o.Wait > claims[i].Limit.Horizon() || !o.Allowed && o.Wait == 0 || o.Remaining < 0 {
						t.Errorf("seed %d, step %d, claim %d of %v: %+v", seed, step, i, claims[i].Limit.Algorithm, o)
						return
					}
				}
				if d.Allowed != (d.Wait == 0) {
					t.Errorf("seed %d, step %d: %+v", seed, step, d)
					return
				}
			}
		}
	}()
	await.Value(t, ended, "end of the decisions")
}

// What was counted with other keys comes back to that count, and not to one that the key has of its own, or that the keys of a
// source have, since.
func TestMemory_RefundsWhereItWasCounted(t *testing.T) {
	for a := range limiter.NumAlgorithms {
		if a.HasSteps() || a.HasValues() || a.HasLeases() { // they know each permit
			continue
		}
		checked := 0
		for expiring := range 100 { // a sweep of some cells meets it or not
			h := newHand()
			m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 100, Clock: h.now})
			claim := func(key int) limiter.Claim {
				return limiter.Claim{Limit: limitertest.LimitOf(a, "l", limiter.Rate{Count: 5, Window: time.Hour}), Key: numbered(key), Cost: 1, Value: limiter.KeyOf("subject", fmt.Sprint(key))}
			}
			for i := range 100 {
				window := time.Hour
				if i == expiring || i == expiring+1 {
					window = time.Second
				}
				take(t, m, limiter.Claim{Limit: rate(window.String(), 1, window), Key: numbered(i), Cost: 1})
			}
			h.advance(time.Second)
			own := claim(100)
			var shared []limiter.Permit
			p := take(t, m, own).Permit
			for range 4 {
				if inspect(t, m, own).Overflow {
					shared = append(shared, p)
					p = take(t, m, own).Permit // at the same time, while more cells are swept
				}
			}
			if len(shared) == 0 || inspect(t, m, own).Overflow {
				continue
			}
			take(t, m, own)
			refund(t, m, own, shared[0])
			if in := inspect(t, m, own); in.Used != 2 || in.Overflow {
				t.Fatalf("%v: %+v after a refund of what was counted with others; want 2 taken", a, in)
			}
			if in := inspect(t, m, claim(101)); in.Used != int64(len(shared)-1) || !in.Overflow {
				t.Fatalf("%v: %+v after a refund; want %d taken by keys that share a count", a, in, len(shared)-1)
			}
			checked++
		}
		if checked == 0 {
			t.Errorf("%v: no key was counted with others first", a)
		}
	}
}

// The same for keys of a source that has more than its share.
func TestMemory_RefundsToTheSource(t *testing.T) {
	for a := range limiter.NumAlgorithms {
		if a.HasSteps() || a.HasValues() || a.HasLeases() {
			continue
		}
		for _, byReturn := range []bool{false, true} {
			h := newHand()
			m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 64, Clock: h.now})
			l := limitertest.LimitOf(a, "l", limiter.Rate{Count: 5, Window: time.Hour})
			l.Noted = true
			other := func(i int, source uint32, window time.Duration) limiter.Claim {
				return limiter.Claim{Limit: rate(window.String(), 1, window), Key: numbered(i), Cost: 1, Source: source}
			}
			claim := func(key int, source uint32) limiter.Claim {
				return limiter.Claim{Limit: l, Key: numbered(key), Cost: 1, Source: source, Value: limiter.KeyOf("subject", fmt.Sprint(key))}
			}
			for i := range 64 {
				take(t, m, other(i, uint32(i%8), map[bool]time.Duration{true: 2 * time.Hour, false: time.Second}[i%8 == 1]))
			}
			take(t, m, claim(100, 0)) // the memory is full
			h.advance(time.Second)
			for i := range 40 { // and now half empty, but source 1 has its share
				take(t, m, other(1000+i, 0, 2*time.Hour))
			}
			mine := claim(101, 1)
			d := take(t, m, mine)
			if in := inspect(t, m, mine); !in.Overflow || in.Used != 1 {
				t.Fatalf("%v: %+v; want it counted with the source's", a, in)
			}
			if byReturn {
				if n, err := m.Return(t.Context(), []*limiter.Limit{l}, mine.Value); n != 1 || err != nil {
					t.Errorf("%v: permits of %d decisions returned, %v", a, n, err)
				}
			} else {
				refund(t, m, mine, d.Permit)
			}
			if in := inspect(t, m, mine); in.Used != 0 {
				t.Errorf("%v: %d taken by the source's keys after a refund; want 0", a, in.Used)
			}
		}
	}
}

// Values that others have used stand for no value in particular.
func TestMirror_UnknownValues(t *testing.T) {
	h := newHand()
	m := limiter.NewMemory(limiter.MemoryOptions{Clock: h.now})
	l := limitertest.LimitOf(limiter.Distinct, "l", limiter.Rate{Count: 5, Window: time.Hour})
	claim := func(value limiter.Key) limiter.Claim {
		return limiter.Claim{Limit: l, Key: numbered(1), Cost: 1, Value: value}
	}
	for i := range 2 { // others use 2 and then 2 more
		c := []limiter.Claim{claim(numbered(7))}
		d := limiter.Decision{Allowed: true, At: h.now(), Permit: limiter.Permit{ID: [16]byte{byte(i + 1)}, At: h.now()}, Outcomes: []limiter.Outcome{{Allowed: true, Remaining: int64(2 - 2*i)}}}
		m.Mirror(c, &d, 1)
		h.advance(time.Second)
	}
	for _, value := range []limiter.Key{{}, {15: 1}, numbered(8)} {
		if d := take(t, m, claim(value)); d.Allowed {
			t.Errorf("a new value %s passes beside five: %+v", value, d)
		}
	}
	if !take(t, m, claim(numbered(7))).Allowed {
		t.Error("the value that was used is refused")
	}
	if err := m.Grant(t.Context(), []limiter.Claim{claim(limiter.Key{})}); err != nil { // 7, which was used last
		t.Fatal(err)
	}
	if d := take(t, m, claim(limiter.Key{})); !d.Allowed || d.Outcomes[0].Remaining != 0 {
		t.Errorf("after one was given back: %+v", d)
	}
	for range 3 {
		if err := m.Grant(t.Context(), []limiter.Claim{claim(limiter.Key{})}); err != nil {
			t.Fatal(err)
		}
	}
	if in := inspect(t, m, claim(limiter.Key{})); in.Used != 2 {
		t.Errorf("%d values stand after three more were given back; want 2", in.Used)
	}
}

// A permit is known by its ID, by whatever way the caller got its time.
func TestMemory_PermitsAreKnownByTheirID(t *testing.T) {
	m := limiter.NewMemory(limiter.MemoryOptions{})
	l := limitertest.LimitOf(limiter.Conversion, "l", limiter.Rate{Count: 1, Window: time.Hour})
	c := limiter.Claim{Limit: l, Key: numbered(1), Cost: 1, Value: limiter.KeyOf("subject")}
	p := take(t, m, c).Permit
	text, err := p.At.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.At.UnmarshalText(text); err != nil {
		t.Fatal(err)
	}
	p.At = p.At.UTC()
	refund(t, m, c, p)
	if in := inspect(t, m, c); in.Used != 0 {
		t.Errorf("%d taken after a refund", in.Used)
	}
}

func inspect(t *testing.T, m *limiter.Memory, c limiter.Claim) limiter.KeyStatus {
	t.Helper()
	in, err := m.Inspect(t.Context(), []limiter.Claim{c})
	if err != nil {
		t.Fatal(err)
	}
	return in.Statuses[0]
}

func refund(t *testing.T, m *limiter.Memory, c limiter.Claim, p limiter.Permit) {
	t.Helper()
	if err := m.Refund(t.Context(), []limiter.Claim{c}, p); err != nil {
		t.Fatal(err)
	}
}

// A key may get a count of its own after it was counted with others, and then its rate once more, but not twice.
func TestMemory_OwnCountAfterASharedOne(t *testing.T) {
	h := newHand()
	m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1, Clock: h.now})
	take(t, m, limiter.Claim{Limit: rate("short", 1, time.Second), Key: numbered(0), Cost: 1})
	mine := limiter.Claim{Limit: rate("long", 1, time.Hour), Key: numbered(1), Cost: 1}
	take(t, m, mine) // with others, because the memory is full
	h.advance(time.Second)
	allowed := 0
	for range 5 {
		var d limiter.Decision
		if err := m.Take(t.Context(), []limiter.Claim{mine}, &d); err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
	}
	if in := inspect(t, m, mine); allowed > 1 || in.Used > 1 {
		t.Errorf("%d more were allowed, %+v; want at most the rate once more", allowed, in)
	}
}
