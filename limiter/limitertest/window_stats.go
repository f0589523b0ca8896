package limitertest

import (
	"testing"

	"github.com/weir-proxy/weir/limiter"
)

// windowStats are the statistics of all schedules of one algorithm.
type windowStats struct {
	calls, granted int
	worst          float64
}

// check checks that the fullest of all windows is within the algorithm's bound, and is
// full.
func (seen *windowStats) check(t *testing.T, a limiter.Algorithm) {
	bound, of := 1.0, "the rate"
	switch {
	case a.MayDouble():
		bound = 2
	case a.HasBurst():
		of = "rate + burst"
	}
	t.Logf("%s: %d calls, %d granted; the fullest window holds %.2f x %s", a, seen.calls, seen.granted, seen.worst, of)
	if seen.worst > bound {
		t.Errorf("the fullest window holds %v x %s, want at most %v", seen.worst, of, bound)
	}
	if bound == 1 && !a.HasBurst() && seen.worst < 1 {
		t.Errorf("the fullest window holds %v x %s, want it full", seen.worst, of)
	}
}
