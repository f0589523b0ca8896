package upstream

const (
	retryShare   = 0.2 // of requests may be retried
	retryReserve = 10  // more retries than that, to begin with and to save up
)

// A budget keeps retries from making an outage worse: over any long time no
// more than a fifth of the requests are retried.
type budget struct{ saved float64 }

func newBudget() budget { return budget{retryReserve} }

// deposit is called once for each request.
func (b *budget) deposit() { b.saved = min(b.saved+retryShare, retryReserve) }

// withdraw reports whether one retry can be paid for, and takes its price.
func (b *budget) withdraw() bool {
	if b.saved < 1 {
		return false
	}
	b.saved--
	return true
}
