// Package decide answers other proxies, the peers, that ask over HTTP about requests which they
// forward themselves, as auth_request of nginx and forward auth of Traefik and Caddy do. Envoy asks
// by its rate limit service (envoy.go), not by ext_authz:
//
//	GET or POST /decide            in the configured dialect
//	GET or POST /decide/DIALECT    in another one
//	POST /decide/outcome           reports the status of the response, by a handle
//
// It reads the request out of the fields that the peer adds (dialect.go), has package proxy decide about
// it, and writes the answer so that the peer understands it. An allowed request whose outcome
// matters gets a handle (handler.go), which any node accepts once (dialect.go).
//
// A peer can use up anybody's limits, and names the client. So only trusted ones are
// answered: by their address, by a token or by a certificate. What a client sends in the fields of a
// dialect does not count, because peers set each of them themselves, and a field that is there twice is refused.
package decide

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/respond"
)

// The fields of Weir's own. Peers send the first, and receive the second.
const (
	tokenField  = "X-Weir-Token" // #nosec G101 -- the name of a field
	handleField = "X-Weir-Handle"
)

// A Handler answers peers. It is safe for concurrent use.
type Handler struct {
	proxy    *proxy.Proxy
	config   config.Decide
	dialects []dialect
	signer   signer
	requests *prometheus.CounterVec
	outcomes *prometheus.CounterVec
}

// New returns a Handler that has p decide.
func New(p *proxy.Proxy, c config.Decide, r prometheus.Registerer) *Handler {
	counter := metrics.Registry{Registerer: r}.Counter
	return &Handler{
		proxy: p, config: c, dialects: dialects(), signer: signer{[]byte(cmp.Or(c.Secret, rand.Text()))},
		requests: counter("decide_requests_total", "Requests that other proxies asked about, by dialect and result.", "dialect", "result"),
		outcomes: counter("decide_outcomes_total", "Outcomes that were reported for requests that other proxies asked about, by result.", "result"),
	}
}

// ServeHTTP1 answers one request of a peer.
func (h *Handler) ServeHTTP1(x *http1.Exchange) {
	began := time.Now()
	path := x.Path()
	if !h.trusts(x.Fields.Values(tokenField), x.Peer().Addr()) {
		h.requests.WithLabelValues("", "untrusted").Inc()
		send(x, respond.Problem(403, "this peer may not ask; see listen.decide.trusted, token and client_ca", ""))
		return
	}
	if path == "/decide/outcome" {
		h.serveOutcome(x)
		return
	}
	name, isDecide := strings.CutPrefix(path, "/decide")
	if name == "" {
		name = "/" + string(h.config.Dialect)
	}
	i := slices.IndexFunc(h.dialects, func(d dialect) bool { return "/"+string(d.name) == name })
	if !isDecide || i < 0 {
		send(x, respond.Problem(404, "ask at /decide or /decide/DIALECT, and report outcomes at /decide/outcome", ""))
		return
	}
	h.decide(x, &h.dialects[i], began)
}

// trusts reports whether a peer may ask that sends a token from an address. Without any configuration,
// those of this machine may.
func (h *Handler) trusts(token []string, addr netip.Addr) bool {
	c := &h.config
	if c.Token != "" && (len(token) != 1 || subtle.ConstantTimeCompare([]byte(token[0]), []byte(c.Token)) != 1) {
		return false
	}
	addr = addr.Unmap().WithZone("")
	if len(c.Trusted) > 0 {
		return slices.ContainsFunc(c.Trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	return c.Token != "" || c.ClientCA != "" || addr.IsLoopback()
}

// nobodyGivesUp is the time within which no peer gives up: an answer that took longer is only given to one that is
// still there.
const nobodyGivesUp = time.Millisecond

// decide answers a question, unless the peer has given up while it waited to be read or decided.
func (h *Handler) decide(x *http1.Exchange, d *dialect, began time.Time) {
	if x.LooksGone() {
		h.requests.WithLabelValues(string(d.name), "gone").Inc()
		x.Abort()
		return
	}
	q, err := d.question(x)
	if err != nil {
		h.requests.WithLabelValues(string(d.name), "invalid").Inc()
		_ = d.send(x, &proxy.Answer{Response: respond.Problem(400, err.Error(), "")}) // the peer may have disconnected
		return
	}
	q.Deadline, q.Hold = began.Add(h.config.Within), h.config.WithinOutcome
	h.proxy.Decide(context.Background(), q, func(a *proxy.Answer) bool {
		if time.Since(began) > nobodyGivesUp && x.LooksGone() {
			h.requests.WithLabelValues(string(d.name), "gone").Inc()
			x.Abort()
			return false
		}
		if a.Pending != nil {
			h.addHandle(a, [][]byte{a.Pending})
		}
		h.requests.WithLabelValues(string(d.name), decisionOf(a)).Inc()
		return d.send(x, a) == nil
	})
}

// addHandle adds the handle of an allowed request to the fields for the upstream, which may report its outcome too.
func (h *Handler) addHandle(a *proxy.Answer, pendings [][]byte) {
	handle := h.signer.sign(pendings, a.At.Add(h.config.WithinOutcome))
	a.Upstream = append(a.Upstream, respond.Field{Name: handleField, Value: handle})
}

// decisionOf returns the decision for metrics and metadata.
func decisionOf(a *proxy.Answer) string {
	if a.Allowed {
		return "allowed"
	}
	return "refused"
}

// send sends a response as it is.
func send(x *http1.Exchange, a respond.Response) {
	_ = new(dialect).send(x, &proxy.Answer{Response: a}) // the peer may have disconnected
}

var errForged = errors.New("this is not a handle that this listener gave")

// A signer makes and checks handles. A handle is the expiry and what the outcome needs, for each descriptor
// of a call or for the one request, with a MAC over all (HMAC-SHA256): nobody without the secret can make one, change
// one, or extend its life. It is text of the alphabet of base64url, so that it needs no escaping in a URL.
type signer struct{ secret []byte }

// sign returns a handle for pendings that is valid until then.
func (s signer) sign(pendings [][]byte, until time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(until.UnixMilli()))
	for _, p := range pendings {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return base64.RawURLEncoding.EncodeToString(s.appendMAC(b))
}

// open returns what the outcome of a handle needs, and when it expires.
func (s signer) open(handle string) (pendings [][]byte, until time.Time, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(handle)
	if err != nil || len(b) < 8+sha256.Size {
		return nil, until, errForged
	}
	signed := b[: len(b)-sha256.Size : len(b)-sha256.Size]
	if !hmac.Equal(s.appendMAC(signed), b) {
		return nil, until, errForged
	}
	for rest := signed[8:]; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return nil, until, errForged // of another version
		}
		pendings, rest = append(pendings, rest[size:size+int(n)]), rest[size+int(n):]
	}
	return pendings, time.UnixMilli(int64(binary.BigEndian.Uint64(signed))), nil
}

// appendMAC appends the MAC of b.
func (s signer) appendMAC(b []byte) []byte {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte("weir decide handle\x00"))
	mac.Write(b)
	return mac.Sum(b)
}
