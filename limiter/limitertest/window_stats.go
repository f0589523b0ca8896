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
func (w *windowStats) check(t *testing.T, a limiter.Algorithm) {
	bound, of := 1.0, "the rate"
	switch {
	case a.MayDouble():
		bound = 2
	case a.HasBurst():
		of = "rate + burst"
	}
	t.Logf("%s: %d calls, %d granted; the fullest window holds %.2f x %s", a, w.calls, w.granted, w.worst, of)
	if w.worst > bound {
		t.Errorf("the fullest window holds %v x %s, want at most %v", w.worst, of, bound)
	}
	if bound == 1 && !a.HasBurst() && w.worst < 1 {
		t.Errorf("the fullest window holds %v x %s, want it full", w.worst, of)
	}
}
