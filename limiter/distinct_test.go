package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
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
