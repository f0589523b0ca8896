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
