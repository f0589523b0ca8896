package limitertest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

// RunTokenBucket is the part of Run for token buckets that nobody bans and whose permits stay
// each by itself, such as those that are shared with others.
func RunTokenBucket(t *testing.T, open func(t *testing.T) Subject) {
	printSeed(t)
	for name, run := range map[string]func(t *testing.T, s *suite){
		"Window": window, "Costs": costs, "WaitIsExact": waitIsExact, "Peek": peek, "RateChanges": rateChanges,
		"RefundOnce": refundOnce, "RefundAfterReturn": refundAfterReturn, "ClockSetBack": clockSetBack,
		"Random": func(t *testing.T, s *suite) {
			var seen windowStats
			s.runSchedules(t, func(t *rapid.T) { s.compareWithOracle(t, limiter.TokenBucket, &seen) })
			seen.check(t, limiter.TokenBucket)
		},
	} {
		t.Run(name, func(t *testing.T) { run(t, &suite{Subject: open(t), t: t}) })
	}
}
