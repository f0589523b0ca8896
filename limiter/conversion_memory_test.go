package limiter_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

const day = 24 * time.Hour

// converting is a limit with a conversion of 50 %.
func converting(count int64, window, memory time.Duration) *limiter.Limit {
	return &limiter.Limit{
		Name: "unused:1d", Rate: limiter.Rate{Count: count, Window: window},
		Algorithm: limiter.Conversion, Noted: true, Conversion: 50, Memory: memory,
	}
}

// A memory is a few whole days, and longer than the window.
func TestLimit_Memory(t *testing.T) {
	for _, test := range []struct {
		window, memory time.Duration
		valid          bool
	}{
		{day, 0, true}, {day, 2 * day, true}, {30 * day, 31 * day, true}, {time.Hour, 2 * day, true},
		{time.Hour, day, false}, {2 * day, 2 * day, false}, {3 * day, 2 * day, false}, {time.Hour, 32 * day, false}, {time.Hour, 36 * time.Hour, false}, {time.Hour, -2 * day, false},
	} {
		if err := converting(1, test.window, test.memory).Check(); (err == nil) != test.valid || err != nil && !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("a window of %v with a memory of %v: %v", test.window, test.memory, err)
		}
	}
	other := limiter.Limit{Name: "x", Rate: limiter.Rate{Count: 1, Window: time.Hour}, Memory: 2 * day}
	if err := other.Check(); !errors.Is(err, limiter.ErrInvalidLimit) {
		t.Errorf("a memory without a conversion: %v", err)
	}
}

// A key has at most 62 buckets of permits and of subjects, and 32 days, and is forgotten when no day counts any more.
func TestMemory_ConversionIsBounded(t *testing.T) {
	h := newHand()
	m := limiter.NewMemory(limiter.MemoryOptions{Clock: h.now, MaxKeys: 1000})
	l := converting(5000, day, 31*day)
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
	for number := range 35 { // each day has fewer confirmations than the one before: all are kept
		for i := range 100 - number {
			confirm(strconv.Itoa(1000*number + i))
		}
		h.advance(day)
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
	if keys != 1 || bytes > 104+24+32*(62+62+32)*3/2 {
		t.Errorf("%d keys of %d bytes", keys, bytes)
	}
	h.advance(29 * day)
	for i := range 8 {
		take("other"+strconv.Itoa(i), "")
	}
	if keys, _ := m.Keys(); keys != 9 {
		t.Errorf("%d keys while a day counts, want 9", keys)
	}
	h.advance(3 * day)
	for i := range 8 {
		take("again"+strconv.Itoa(i), "")
	}
	if keys, _ := m.Keys(); keys > 9 {
		t.Errorf("%d keys when no day counts", keys)
	}
}
