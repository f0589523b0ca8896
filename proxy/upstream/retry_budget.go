package upstream

const (
	retryRatio   = 0.2 // of requests may be retried
	retryReserve = 10  // more retries than that, to begin with and to save up
)

// A retryBudget keeps retries from making an outage worse: over any long time no
// more than a fifth of the requests are retried.
type retryBudget struct{ tokens float64 }

func newRetryBudget() retryBudget { return retryBudget{retryReserve} }

// deposit is called once for each request.
func (b *retryBudget) deposit() { b.tokens = min(b.tokens+retryRatio, retryReserve) }

// withdraw reports whether one retry can be paid for, and takes its price.
func (b *retryBudget) withdraw() bool {
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
