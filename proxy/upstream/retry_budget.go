package upstream

const (
	retryRatio   = 0.2 // retries per request
	retryReserve = 10  // initial and maximum number of retries saved up
)

// A retryBudget prevents retries from amplifying an outage: in the long run at most a
// fifth of the requests are retried.
type retryBudget struct{ tokens float64 }

func newRetryBudget() retryBudget { return retryBudget{retryReserve} }

// deposit is called once for each request.
func (b *retryBudget) deposit() { b.tokens = min(b.tokens+retryRatio, retryReserve) }

// withdraw reports whether the budget allows one retry, and takes it from the budget.
func (b *retryBudget) withdraw() bool {
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
