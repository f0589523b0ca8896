package limiter_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
)

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
