package respond

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A limit that was not asked is one that nothing is told of: its policy is known, what
// is left of it is not.
func TestHeaders_NothingOfALimitThatWasNotAsked(t *testing.T) {
	refused := limiter.Outcome{Wait: 42 * time.Second}
	unknown := limiter.Outcome{Allowed: true, Remaining: 10, Unknown: true}
	v := Verdict{Decision: &limiter.Decision{Wait: 42 * time.Second, Outcomes: []limiter.Outcome{refused, unknown, unknown}}}
	h := http.Header{}
	a := mustQuota(t, IETF, phone(), day(), hidden()).TooManyRequests(Refusal{Verdict: v})
	a.CopyTo(h)
	if got := h["Ratelimit"]; !slices.Equal(got, []string{`"phone-1m";r=0;t=42`}) {
		t.Errorf("RateLimit %q; want only what refused", got)
	}
	if got := h.Get("RateLimit-Policy"); !strings.Contains(got, `"phone-1d"`) {
		t.Errorf("RateLimit-Policy %q; want all policies", got)
	}

	h = http.Header{}
	v.Decision.Outcomes[0], v.Decision.Outcomes[1] = unknown, limiter.Outcome{Wait: 42 * time.Second}
	mustQuota(t, XRateLimit, phone(), day(), hidden()).TooManyRequests(Refusal{Verdict: v}).CopyTo(h)
	if got := h.Get("X-RateLimit-Limit"); got != "10" {
		t.Errorf("X-RateLimit-Limit %q; want that of the limit that refused", got)
	}
}
