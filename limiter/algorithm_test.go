package limiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestLimit_Advice(t *testing.T) {
	for _, row := range []struct {
		algorithm    limiter.Algorithm
		count, burst int64
		want         string // a part of it; empty: nothing
	}{
		{limiter.TokenBucket, 5, 0, ""},
		{limiter.TokenBucket, 100_000, 0, "sliding_log promises the same in half of that, gcra or sliding_window"},
		{limiter.SlidingLog, 100_000, 0, ""},
		{limiter.FixedWindow, 1, 0, ""},
		{limiter.FixedWindow, 50, 0, "up to 100 pass"},
		{limiter.SlidingWindow, 50, 0, ""},
		{limiter.GCRA, 100, 0, "up to 200 pass in one window; a burst of 10"},
		{limiter.GCRA, 100, 10, ""},
		{limiter.Concurrent, 100, 0, ""},
	} {
		l := limiter.Limit{Name: "l", Rate: limiter.Rate{Count: row.count, Window: time.Hour}, Algorithm: row.algorithm, Burst: row.burst}
		got := l.Advice()
		if (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("%s of %d, burst %d: %q, want %q", row.algorithm, row.count, row.burst, got, row.want)
		}
	}
}

func TestParseAlgorithm(t *testing.T) {
	for a := limiter.TokenBucket; a <= limiter.SlidingLog; a++ {
		if got, err := limiter.ParseAlgorithm(a.String()); got != a || err != nil {
			t.Errorf("%s: %v %v", a, got, err)
		}
	}
	for _, bad := range []string{"", "leaky", "GCRA", "algorithm 8"} {
		if _, err := limiter.ParseAlgorithm(bad); err == nil || !strings.Contains(err.Error(), "write token_bucket") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Every algorithm has a name that is parsed back and a sign of its own in Redis, which
// never changes: keys would be lost. What is unknown has no traits.
func TestAlgorithm_Traits(t *testing.T) {
	signs := ""
	for a := range limiter.NumAlgorithms {
		if got, err := limiter.ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", a.String(), got, err)
		}
		signs += string(a.Sign())
	}
	if want := "012345c7"; !strings.HasPrefix(signs, want) {
		t.Errorf("signs %s, want %s", signs, want)
	}
	for i := range signs {
		if strings.Count(signs, signs[i:i+1]) > 1 {
			t.Errorf("two algorithms have the sign %c", signs[i])
		}
	}
	unknown := limiter.Algorithm(200)
	if unknown.String() != "algorithm 200" || unknown.Sign() != 0 || unknown.HasBurst() || unknown.HasLeases() || unknown.HasValues() || unknown.HasSteps() ||
		unknown.IsPacked() || unknown.IsRedisson() || unknown.MayDouble() {
		t.Errorf("%v has traits", unknown)
	}
	if _, err := limiter.ParseAlgorithm(""); err == nil {
		t.Error("an empty name is parsed")
	}
}
