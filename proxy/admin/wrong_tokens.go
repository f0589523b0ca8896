package admin

import (
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/limiter"
)

const (
	// wrongAtOnce is the number of wrong tokens that an address may send at once, and wrongInterval
	// the interval at which it may send further ones.
	wrongAtOnce   = 5
	wrongInterval = 2 * time.Second
	// maxGuessers is the maximum number of addresses that are remembered. An address is forgotten
	// only for another one that sent a wrong token later.
	maxGuessers = 4096
)

// WrongTokens counts the wrong tokens that are sent to the admin API and the dashboard of one node,
// and slows (rate limits) the addresses that send them: an address may send five at once, and then
// one every two seconds. Until its next attempt, no token of that address is compared, so that the
// answer does not depend on the token. A /64 network counts as one address in IPv6, and one behind NAT64 as its IPv4 address. Right tokens are
// not counted. It is safe for concurrent use.
type WrongTokens struct {
	total prometheus.Counter

	mu    sync.Mutex // guards what follows; never held over I/O
	since WrongTokensSummary
	// When all attempts of an address are available again. Both are generations of one map: when
	// the young one is full, or has a summary, it becomes the old one.
	young, old map[netip.Prefix]time.Time
}

// A WrongTokensSummary is what was sent in some time.
type WrongTokensSummary struct {
	Wrong     int    // tokens that were compared and were wrong
	Slowed    int    // tokens that were not compared, because their address has to wait
	Addresses int    // addresses of the wrong tokens; too high if they were more than some thousands
	Last      string // address of the last wrong token, HOST:PORT
}

// NewWrongTokens returns a WrongTokens that registers its metric.
func NewWrongTokens(r prometheus.Registerer) *WrongTokens {
	w := &WrongTokens{young: map[netip.Prefix]time.Time{}, total: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "weir_admin_wrong_tokens_total", Help: "Wrong tokens that were sent to the admin API or the dashboard.",
	})}
	r.MustRegister(w.total)
	return w
}

// An Attempt is the result of authenticating a token.
type Attempt struct {
	Operator
	Known bool          // the token is that of the operator
	Wait  time.Duration // until the next attempt of the address; the token was not compared if it is positive
}

// compare returns the operator of a token sent from an address (HOST:PORT), unless that has to wait.
// A nil w slows nobody. Tokens are compared under the lock, so that no more are compared if they
// arrive together.
func (w *WrongTokens) compare(all []tokenHash, token, address string, now time.Time) (a Attempt) {
	if w == nil {
		a.Operator, a.Known = operatorOf(all, token)
		return a
	}
	at, _ := netip.ParseAddrPort(address) // Unix domain sockets have none, and are one client
	from := limiter.Subscriber(at.Addr())
	w.mu.Lock()
	defer w.mu.Unlock()
	full, young := w.young[from]
	if !young {
		full = w.old[from]
	}
	if full.Before(now) {
		full = now
	}
	if wait := full.Sub(now) - (wrongAtOnce-1)*wrongInterval; wait > 0 {
		w.since.Slowed++
		return Attempt{Wait: wait}
	}
	if a.Operator, a.Known = operatorOf(all, token); a.Known {
		return a
	}
	w.total.Inc()
	w.since.Wrong++
	w.since.Last = address
	if !young {
		w.since.Addresses++
		if len(w.young) >= maxGuessers/2 {
			w.rotateLocked()
		}
	}
	w.young[from] = full.Add(wrongInterval)
	return a
}

// Summary returns what was sent since the last call.
func (w *WrongTokens) Summary() WrongTokensSummary {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.since
	w.since = WrongTokensSummary{}
	w.rotateLocked()
	return s
}

func (w *WrongTokens) rotateLocked() { w.young, w.old = map[netip.Prefix]time.Time{}, w.young }
