package respond

import "time"

const (
	// jitterShare is the largest random extension of Retry-After relative to the wait, so that clients
	// that were refused together do not retry together.
	jitterShare = 0.1
	// maxJitter is the largest extension of a wait.
	maxJitter = 30 * time.Second
)

// Jitter returns the extension of a wait; luck returns a random number in [0, 1). It is in whole
// seconds like Retry-After, so that rounding up adds nothing. A wait shorter than 10 s is not extended.
func Jitter(wait time.Duration, luck func() float64) time.Duration {
	most := min(time.Duration(jitterShare*float64(wait)), maxJitter)
	if most < time.Second {
		return 0
	}
	return time.Duration(luck() * float64(most.Truncate(time.Second)+time.Second)).Truncate(time.Second)
}

// retryAfter returns the value of Retry-After in seconds.
func (l *RateLimitFields) retryAfter(r *Refusal) int64 {
	wait := r.Decision.Wait
	for i := range r.Decision.Outcomes {
		wait = max(wait, r.Decision.Outcomes[i].Wait)
	}
	return max(seconds(wait+max(r.Jitter, 0)), 1)
}
