package limitertest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

// RunTokenBucket runs the part of Run for stores that only have token buckets without
// bans and without merged entries, such as limiters shared with Redisson.
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
