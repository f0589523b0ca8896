package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-proxy/weir/limiter"
)

// A tokenHash is the hash of a token, with its operator.
type tokenHash struct {
	hash [sha256.Size]byte
	Operator
}

// tokenHashes returns those of all tokens. If there are none, programs on this machine need no
// token.
func (o Options) tokenHashes() []tokenHash {
	var all []tokenHash
	if o.Token != "" {
		all = append(all, tokenHash{sha256.Sum256([]byte(o.Token)), Operator{Name: Admin, Role: Write}})
	}
	for _, t := range o.Tokens {
		role := Read
		if t.Write {
			role = Write
		}
		all = append(all, tokenHash{sha256.Sum256([]byte(t.Text)), Operator{Name: t.Name, Role: role}})
	}
	return all
}

// Guarded reports whether a token is required.
func (o Options) Guarded() bool { return len(o.tokenHashes()) > 0 }

// Authenticate returns the result of authenticating the token that was sent with r. An empty token is
// unknown, and is not counted as a wrong one.
func (o Options) Authenticate(r *http.Request, token string) Attempt {
	if token == "" {
		return Attempt{}
	}
	return o.WrongTokens.compare(o.tokenHashes(), token, r.RemoteAddr, time.Now())
}

// SetRetryAfter sets Retry-After to the seconds that a has to wait, rounded up.
func (a Attempt) SetRetryAfter(h http.Header) {
	h.Set("Retry-After", strconv.FormatInt(int64((a.Wait+time.Second-1)/time.Second), 10))
}

// operatorOf returns the operator of a token. It takes the same time for all tokens, valid or not.
func operatorOf(all []tokenHash, token string) (o Operator, known bool) {
	got := sha256.Sum256([]byte(token))
	for _, a := range all {
		if subtle.ConstantTimeCompare(got[:], a.hash[:]) == 1 {
			o, known = a.Operator, true
		}
	}
	return o, known
}

// requireRole returns a middleware that requires a token of an operator with that role; without
// configured tokens it allows all requests. The next handler finds the operator by OperatorOf.
func (o Options) requireRole(role Role) func(http.Handler) http.Handler {
	guarded := o.Guarded()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := Operator{Name: Local, Role: Write}
			if guarded {
				token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
				if !found {
					token = ""
				}
				a := o.Authenticate(r, token)
				switch {
				case a.Wait > 0:
					a.SetRetryAfter(w.Header())
					problem(w, http.StatusTooManyRequests, "too many wrong tokens from this address; try again in "+w.Header().Get("Retry-After")+"s")
					return
				case !a.Known:
					w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
					problem(w, http.StatusUnauthorized, map[bool]string{true: "wrong", false: "no"}[found]+" admin token; set WEIR_ADMIN_TOKEN or --token to one of admin.tokens, or send it as Authorization: Bearer TOKEN")
					return
				}
				who = a.Operator
			}
			if role == Write && who.Role != Write {
				problem(w, http.StatusForbidden, "the token of "+who.Name+" may only read; use one with role: write")
				return
			}
			who.Address = r.RemoteAddr
			next.ServeHTTP(w, r.WithContext(WithOperator(r.Context(), who)))
		})
	}
}

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
	return &WrongTokens{young: map[netip.Prefix]time.Time{}, total: promauto.With(r).NewCounter(prometheus.CounterOpts{
		Name: "weir_admin_wrong_tokens_total", Help: "Wrong tokens that were sent to the admin API or the dashboard.",
	})}
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
