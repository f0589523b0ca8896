package proxy

import (
	"context"
	"time"
)

// maxSettling is how many requests may be settled at a time after their
// responses.
const maxSettling = 10_000

// finish ends a request whose answer has been written, but for what net/http still keeps
// of it until ServeHTTP returns. What has to be given back over a network is given back
// after that, so that no client waits for it; then the exchange ends later than its
// handler. When very many do, a request waits after all. A cooldown that the outcome ends
// is ended before the response is: what it tells the client to do next passes.
func (p *Proxy) finish(ctx context.Context, x *exchange) {
	if x.took == 0 || x.trace != nil { // else it has been measured, together with what the upstream took
		x.took = time.Since(x.began) // of a trace, the clock of the wall must not put the upstream's end behind this
	}
	x.noteAgent()
	p.lasting.observer.observe(x)
	a := p.admitter
	if x.outcome.known {
		a.resetCooldowns(ctx, &x.admission, x.extracted.keys, x.outcome.result.Status)
	}
	if a.timeout > 0 && x.outcome.known && x.owes(&x.outcome) {
		if a.settling.Add(1) <= maxSettling {
			x.keep()
			go func() {
				defer a.settling.Add(-1)
				p.end(context.Background(), x) // that of the request ends with its handler
			}()
			return
		}
		a.settling.Add(-1)
	}
	p.end(ctx, x)
}

// end settles what x took, and writes it down. Nobody may use x afterwards. A request
// that broke off in the middle, of which nobody knows what came, stays counted.
func (p *Proxy) end(ctx context.Context, x *exchange) {
	if x.outcome.known {
		p.admitter.settle(ctx, &x.admission, &x.outcome)
	}
	x.stopRenewing()
	p.endTrace(x)
	p.recorder.leave(x)
	x.generation.leave()
	x.reset()
	if !x.owned {
		p.exchanges.Put(x)
	}
}
