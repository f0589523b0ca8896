package http1

// A readYield decides whether a connection lets other goroutines run after it has sent
// a response and before it looks for the next request. Under load that request has
// arrived when the connection's turn comes again. Then it is read at once, which saves
// a read that returns nothing, and a wait. With little load a yield gains nothing; the
// longer it gains nothing, the rarer it becomes.
//
// The runtime polls sockets when no goroutine is ready, and otherwise only every 10 ms.
// Connections that never wait would delay all others by that, so that at most every
// second request is read after a yield, unless the request before waited for an upstream.
type readYield struct {
	skip     uint8 // responses until the next yield
	interval uint8 // responses between two yields that gain nothing
}

// maxYieldInterval bounds readYield.interval.
const maxYieldInterval = 63

// due reports whether to yield after this response.
func (y *readYield) due() bool {
	if y.skip > 0 {
		y.skip--
		return false
	}
	return true
}

// found is called after a yield if there was something to read.
func (y *readYield) found() { y.interval = 0 }

// foundNothing is called after a yield if there was nothing to read.
func (y *readYield) foundNothing() {
	y.interval = min(2*y.interval+1, maxYieldInterval)
	y.skip = y.interval
}

// skipNext is called if the request before the yield has not waited.
func (y *readYield) skipNext() { y.skip = max(y.skip, 1) }
