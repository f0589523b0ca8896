package limitertest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

// RunLog is the part of Run for token buckets that nobody bans and whose permits stay
// each by itself, such as those that are shared with others.
func RunLog(t *testing.T, open func(t *testing.T) Subject) {
	seed(t)
	for name, run := range map[string]func(t *testing.T, s *suite){
		"Window": window, "Costs": costs, "WaitIsExact": waitIsExact, "Peek": peek, "RateChanges": rateChanges,
		"RefundOnce": refundOnce, "RefundAfterReturn": refundAfterReturn, "ClockSetBack": clockSetBack,
		"Random": func(t *testing.T, s *suite) {
			var seen tally
			s.check(t, func(t *rapid.T) { s.against(t, limiter.TokenBucket, &seen) })
			seen.check(t, limiter.TokenBucket)
		},
	} {
		t.Run(name, func(t *testing.T) { run(t, &suite{Subject: open(t), t: t}) })
	}
}
