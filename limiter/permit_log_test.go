package limiter

import (
	"testing"
	"time"
)

// The log of the README: 5 permits in 60 s, taken at 0, 10, 10 and 30 s.
func TestPermitLog_Timeline(t *testing.T) {
	const length, count = 60_000, 5
	var log permitLog
	for _, row := range []struct {
		at, cost   int64
		left, wait int64 // before the take, in ms
	}{
		{0, 1, 5, 0},
		{10_000, 2, 4, 0},
		{30_000, 1, 2, 0},
		{30_001, 2, 1, 29_999},
		{30_001, 4, 1, 39_999},
		{59_999, 5, 1, 30_001},
		{60_000, 2, 2, 0},
		{60_000, 1, 0, 10_000},
		{89_999, 1, 2, 0},
		{120_000, 5, 4, 29_999},
		{149_999, 5, 5, 0},
	} {
		log.advance(row.at, length)
		if left, wait := log.remaining(count), log.wait(row.at, length, count, row.cost); left != row.left || wait != row.wait {
			t.Fatalf("at %d for %d: %d left, wait %d; want %d and %d", row.at, row.cost, left, wait, row.left, row.wait)
		}
		if row.wait == 0 {
			log.add(row.at, [16]byte{byte(row.at)}, row.cost)
		}
	}
}

// However much is taken, a log has few entries, and what it says is out is
// what was taken.
func TestPermitLog_StaysSmall(t *testing.T) {
	for _, length := range []int64{1, 10, 64, 1000, 3_600_000} {
		var state keyState
		l := Limit{Rate: Rate{Count: MaxCount, Window: time.Duration(length) * time.Millisecond}}
		for now := range int64(2000) {
			at := now * max(1, length/500)
			state.advance(at, &l)
			state.take(at, &Claim{Limit: &l, Cost: 1}, [16]byte{byte(now), byte(now >> 8)})
			var sum int64
			for _, e := range state.entries {
				sum += int64(e.n)
			}
			if sum != state.taken || len(state.entries) > fullLog {
				t.Fatalf("length %d: %d entries with %d permits, %d taken", length, len(state.entries), sum, state.taken)
			}
		}
	}
}
