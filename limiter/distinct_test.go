package limiter_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
)

// A Memory without room for more entries lets no more values stand than it should,
// and no cooldown end earlier.
func TestDistinct_WithoutRoom(t *testing.T) {
	clock := time.UnixMilli(1_800_000_000_000)
	m := limiter.NewMemory(limiter.MemoryOptions{MaxBytes: 1, Clock: func() time.Time { return clock }})
	fan := &limiter.Limit{Name: "fan", Rate: limiter.Rate{Count: 5, Window: time.Hour}, Algorithm: limiter.Distinct}
	use := func(value string) bool {
		return take(t, m, limiter.Claim{Limit: fan, Key: limiter.KeyOf("ip"), Cost: 1, Value: limiter.KeyOf(value)}).Allowed
	}
	passed := 0
	for i := range 100 {
		if use(fmt.Sprint(i % 10)) {
			passed++
		}
		clock = clock.Add(time.Second)
	}
	if passed == 0 || passed > 5*10 {
		t.Errorf("%d of 100 uses passed; want 5 values at most", passed)
	}
	if clock = clock.Add(time.Hour); !use("new") {
		t.Error("an hour later nothing has come back")
	}
	slow := &limiter.Limit{Name: "pause", Rate: limiter.Rate{Count: 1, Window: time.Hour}, Algorithm: limiter.Cooldown, Steps: []time.Duration{time.Second, time.Minute}}
	pause := limiter.Claim{Limit: slow, Key: limiter.KeyOf("phone"), Cost: 1}
	take(t, m, pause)
	clock = clock.Add(time.Second)
	take(t, m, pause)
	if d := take(t, m, pause); d.Allowed || d.Wait != time.Minute {
		t.Errorf("%+v; want the second step", d)
	}
}

// Who takes over from a store lets through only its part of the values that were
// left, those that this process has used, and no earlier than the pause is over.
func TestNote_ValuesAndPauses(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	m := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	fan := &limiter.Limit{Name: "fan", Rate: limiter.Rate{Count: 12, Window: time.Hour}, Algorithm: limiter.Distinct}
	use := func(value string) limiter.Claim {
		return limiter.Claim{Limit: fan, Key: limiter.KeyOf("ip"), Cost: 1, Value: limiter.KeyOf(value)}
	}
	taken := func(c limiter.Claim) limiter.Decision {
		share := c.Limit.Share(4)
		c.Limit = &share
		return take(t, m, c)
	}
	passes := func(c limiter.Claim) {
		t.Helper()
		if d := taken(c); !d.Allowed {
			t.Errorf("%+v; want it allowed", d)
		}
	}
	refused := func(c limiter.Claim) {
		t.Helper()
		if d := taken(c); d.Allowed {
			t.Errorf("%+v; want it refused", d)
		}
	}
	note := func(c limiter.Claim, left int64, wait time.Duration) limiter.Permit {
		d := limiter.Decision{Allowed: wait == 0, Outcomes: []limiter.Outcome{{Allowed: wait == 0, Remaining: left, Wait: wait}}}
		d.Permit = limiter.Permit{ID: [16]byte{byte(left), 1}, At: now}
		m.Mirror([]limiter.Claim{c}, &d, 4)
		return d.Permit
	}
	p := note(use("a"), 8, 0) // a part of 2 is left to this process
	passes(use("a"))
	passes(use("b"))
	passes(use("c"))
	refused(use("d"))
	m.MirrorRefund([]limiter.Claim{use("a")}, p, 4)
	passes(use("a"))
	note(use("e"), 0, time.Minute)
	refused(use("f"))
	passes(use("a"))

	slow := &limiter.Limit{Name: "pause", Rate: limiter.Rate{Count: 1, Window: time.Hour}, Algorithm: limiter.Cooldown, Steps: []time.Duration{time.Second, time.Minute}}
	phone := func(s string) limiter.Claim { return limiter.Claim{Limit: slow, Key: limiter.KeyOf(s), Cost: 1} }
	note(phone("granted"), 0, 0)
	refused(phone("granted"))
	note(phone("refused"), 0, 20*time.Second)
	now = now.Add(20*time.Second - time.Millisecond)
	passes(phone("granted"))
	refused(phone("refused"))
	now = now.Add(time.Millisecond)
	passes(phone("refused"))
	now = now.Add(time.Minute - time.Millisecond)
	refused(phone("refused"))
}

const day = 24 * time.Hour

// converting is a limit with a conversion of 50 %.
func converting(count int64, window time.Duration) *limiter.Limit {
	return limitertest.LimitOf(limiter.Conversion, "unused:1d", limiter.Rate{Count: count, Window: window})
}

// A key has at most 62 buckets of permits and of subjects, and is forgotten when none counts any more.
func TestMemory_ConversionIsBounded(t *testing.T) {
	h := newHand()
	m := limiter.NewMemory(limiter.MemoryOptions{Clock: h.now, MaxKeys: 1000})
	l := converting(5000, day)
	take := func(key, subject string) {
		t.Helper()
		var d limiter.Decision
		if err := m.Take(t.Context(), []limiter.Claim{{Limit: l, Key: limiter.KeyOf(key), Cost: 1, Value: limiter.KeyOf(subject)}}, &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	confirm := func(subject string) {
		t.Helper()
		take("CN", subject)
		if n, err := m.Return(t.Context(), []*limiter.Limit{l}, limiter.KeyOf(subject)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for i := range 62 {
		take("CN", strconv.Itoa(-i))
		if i < 60 {
			confirm("last" + strconv.Itoa(i))
		}
		h.advance(24 * time.Minute)
	}
	keys, bytes := m.Keys()
	t.Logf("%d bytes", bytes)
	if keys != 1 || bytes > 104+24+32*(62+62)*3/2 {
		t.Errorf("%d keys of %d bytes", keys, bytes)
	}
	h.advance(2 * day)
	for i := range 8 {
		take("other"+strconv.Itoa(i), "")
	}
	if keys, _ := m.Keys(); keys > 8 {
		t.Errorf("%d keys when nothing counts, want 8", keys)
	}
}

// A refusal that a store repeats is recorded once by each Memory, whoever got it first, and
// is as good as one that was made anew.
func TestMirror_RecordsARepeatedRefusalOnce(t *testing.T) {
	c := []limiter.Claim{{Limit: &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 5, Window: time.Hour}}, Key: limiter.KeyOf("k"), Cost: 1}}
	refusal := func(remaining int64, of *limiter.Refusal) *limiter.Decision {
		return &limiter.Decision{Wait: time.Minute, Outcomes: []limiter.Outcome{{Remaining: remaining, Wait: time.Minute}}, Repeats: of}
	}
	left := func(m *limiter.Memory) int64 {
		t.Helper()
		var d limiter.Decision
		if err := m.Peek(t.Context(), c, &d); err != nil {
			t.Fatal(err)
		}
		return d.Outcomes[0].Remaining
	}
	for range 2 { // a second Memory has its own record
		var one limiter.Refusal
		m, other := limiter.NewMemory(limiter.MemoryOptions{}), limiter.NewMemory(limiter.MemoryOptions{})
		m.Mirror(c, refusal(0, &one), 1)
		m.Mirror(c, refusal(3, &one), 1) // would change the record
		other.Mirror(c, refusal(0, &one), 1)
		if left(m) != 0 || left(other) != 0 {
			t.Errorf("%d and %d are left, want 0", left(m), left(other))
		}
		again := limiter.NewMemory(limiter.MemoryOptions{})
		again.Mirror(c, refusal(0, &one), 1)
		again.Mirror(c, refusal(3, new(limiter.Refusal)), 1)
		if left(again) != 3 {
			t.Errorf("%d are left after another refusal, want 3", left(again))
		}
	}
}

// What the other store has charged counts here when it decides in its place, as what it has granted does.
func TestMirrorCharge_CountsInAnOutage(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow} {
		m := limiter.NewMemory(limiter.MemoryOptions{})
		l := &limiter.Limit{Name: "tokens:1h", Rate: limiter.Rate{Count: 100, Window: time.Hour}, Algorithm: a}
		c := []limiter.Claim{{Limit: l, Key: limiter.KeyOf("ann"), Cost: 10}}
		m.Mirror(c, &limiter.Decision{Allowed: true, At: time.Now(), Outcomes: []limiter.Outcome{{Allowed: true, Remaining: 90}}}, 1)
		c[0].Cost = 50
		m.MirrorCharge(c)
		c[0].Cost = 1
		var d limiter.Decision
		if err := m.Peek(t.Context(), c, &d); err != nil || d.Outcomes[0].Remaining != 40 {
			t.Errorf("%s: %+v, %v; want 40 left", a, d, err)
		}
	}
}
