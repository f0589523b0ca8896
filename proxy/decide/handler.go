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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
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

// A dialect is how one kind of proxy asks and what answers it understands.
type dialect struct {
	name                 config.Dialect
	method, target, host string // the fields with the request of the client
	// prefix begins the names of the fields of a response in the answer, for a peer that takes only the
	// status 403 for a refusal and copies no field by itself; empty for one that sends the answer as it is.
	prefix string
}

// dialects returns the dialects. All peers send the scheme in X-Forwarded-Proto, and the address of their
// client as the last one in X-Forwarded-For.
func dialects() []dialect {
	named := func(name config.Dialect, fields string) dialect {
		return dialect{name: name, method: fields + "-Method", target: fields + "-Uri", host: fields + "-Host"}
	}
	nginx := named(config.Nginx, "X-Original")
	nginx.prefix = "X-Weir-"
	return []dialect{
		nginx, named(config.HAProxy, "X-Original"),
		named(config.Traefik, "X-Forwarded"), named(config.Caddy, "X-Forwarded"), named(config.APISIX, "X-Forwarded"),
	}
}

const (
	schemeField = "X-Forwarded-Proto"
	clientField = "X-Forwarded-For"
)

// question reads the request of the client out of that of the peer, whose own fields it removes.
func (d *dialect) question(x *http1.Exchange) (*proxy.Question, error) {
	q := &proxy.Question{Listener: "decide/" + string(d.name), Fields: &x.Fields, Length: -1}
	q.Scheme = cmp.Or(proxy.LastScheme(x.Fields.Values(schemeField)), "http")
	for _, f := range []struct {
		name string
		to   *string
	}{{d.method, &q.Method}, {d.target, &q.Target}, {d.host, &q.Host}} {
		values := x.Fields.Values(f.name)
		if len(values) != 1 || values[0] == "" {
			return nil, fmt.Errorf("%s is there %d times; a proxy of the dialect %s sends it once", f.name,
				len(values), d.name)
		}
		*f.to = values[0]
	}
	if !http1.ValidMethod(q.Method) || q.Method == "CONNECT" {
		return nil, errors.New(d.method + " is not a method")
	}
	if err := setClient(q, x.Fields.Values(clientField)); err != nil {
		return nil, err
	}
	for _, name := range []string{d.method, d.target, d.host, schemeField, tokenField, handleField} {
		x.Fields.Del(name)
	}
	d.setBody(q, x)
	return q, nil
}

// setClient sets the client to the last address of X-Forwarded-For, which the peer has added, and leaves
// the others as the peer has received them.
func setClient(q *proxy.Question, lines []string) error {
	if len(lines) == 0 {
		return errors.New(clientField + " is missing; it ends with the address of the client")
	}
	rest, last := cutLast(lines[len(lines)-1])
	addr := proxy.ParseForwardedFor(last)
	if !addr.IsValid() {
		return errors.New(clientField + " does not end with the address of the client")
	}
	before := append([]string(nil), lines[:len(lines)-1]...)
	q.Client = addr
	q.Fields.Del(clientField)
	if rest != "" {
		before = append(before, rest)
	}
	for _, line := range before {
		q.Fields.Add(clientField, line)
	}
	return nil
}

// cutLast cuts the last element of a list.
func cutLast(list string) (rest, last string) {
	comma := strings.LastIndexByte(list, ',')
	return strings.TrimRight(list[:max(comma, 0)], " \t,"), strings.Trim(list[comma+1:], " \t")
}

// setBody sets the body, and its length. A peer that keeps it does not say how long it is: without a
// type there is none, except with POST, which some servers take for a form.
func (d *dialect) setBody(q *proxy.Question, x *http1.Exchange) {
	b := x.Body()
	switch {
	case b != nil && d.name.SendsBody():
		q.Body, q.Length = b, b.Length()
	case len(x.Fields.Values("Content-Type")) == 0 && !strings.EqualFold(q.Method, "POST"):
		q.Length = 0
	}
}

// maxBodyField is the maximum length of a body in a field: the buffers for the header of a response are small.
const maxBodyField = 2 << 10

// send sends an answer. It returns an error if that cannot be written.
func (d *dialect) send(x *http1.Exchange, a *proxy.Answer) error {
	status := a.Response.Status
	if d.prefix != "" && !a.Allowed {
		status = 403
	}
	head := x.Begin(status)
	if d.prefix != "" {
		head.Add(d.prefix+"Status", strconv.Itoa(a.Response.Status))
	}
	for _, f := range a.Response.Fields {
		if f.Name != "Content-Length" {
			head.Add(d.prefix+f.Name, f.Value)
		}
	}
	for _, f := range a.Upstream {
		head.Add(f.Name, f.Value)
	}
	if a.RequestID != "" {
		head.Add(d.prefix+"X-Request-Id", a.RequestID)
	}
	if d.prefix == "" {
		return x.Send(a.Response.Body)
	}
	text := strings.TrimSpace(string(a.Response.Body))
	if text != "" && len(text) <= maxBodyField && !strings.ContainsFunc(text, isControl) {
		head.Add(d.prefix+"Body", text)
	}
	return x.Send(nil)
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// maxReport is the maximum length of the body of a report.
const maxReport = 16 << 10

// A report is the status of the response to a request, whose handle the peer or the application has.
type report struct {
	Handle string `json:"handle"`
	Status int    `json:"status"`
	refund bool   // the permits are refunded, whatever the status
	cost   int64  // what the request has cost after all, or 0
	less   int64  // how much less than what was taken, or 0
}

// errReport reports that a report cannot be read.
var errReport = errors.New(`write ?handle=HANDLE&status=STATUS, or {"handle": "HANDLE", "status": STATUS} with Content-Type: application/json`)

// serveOutcome answers a report: 204 if the outcome was acted upon.
func (h *Handler) serveOutcome(x *http1.Exchange) {
	if x.Method() != "POST" {
		send(x, respond.Problem(405, "report outcomes with POST", ""))
		return
	}
	r, err := readReport(x)
	if err == nil {
		err = h.settle(context.Background(), r)
	}
	result := resultOf(err)
	h.outcomes.WithLabelValues(result.name).Inc()
	switch result.status {
	case 204:
		send(x, respond.Static(204, "", "", nil))
	case 503:
		send(x, respond.Unavailable(503, time.Second, "the store cannot be reached; report again", ""))
	default:
		send(x, respond.Problem(result.status, err.Error(), ""))
	}
}

// settle acts on a report, for each descriptor of a call. If that fails for one, r may be repeated: the others
// are not settled twice.
func (h *Handler) settle(ctx context.Context, r report) error {
	pendings, until, err := h.signer.open(r.Handle)
	if err != nil {
		return err
	}
	var failed, repeated error
	settled := false
	for _, pending := range pendings {
		err := h.proxy.Settle(ctx, proxy.OutcomeReport{Pending: pending, Status: r.Status, Refund: r.refund,
			Cost: r.cost, Less: r.less, Valid: h.config.WithinOutcome, Until: until})
		switch {
		case err == nil:
			settled = true
		case errors.Is(err, proxy.ErrSettled):
			repeated = err
		default:
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil || settled {
		return failed
	}
	return repeated
}

// A result is what became of a report.
type result struct {
	name   string // in the metrics
	status int    // of the response
}

// resultOf returns the result of settling.
func resultOf(err error) result {
	switch {
	case err == nil:
		return result{"settled", 204}
	case errors.Is(err, errReport):
		return result{"invalid", 400}
	case errors.Is(err, errForged):
		return result{"forged", 403}
	case errors.Is(err, proxy.ErrSettled):
		return result{"repeated", 409}
	case errors.Is(err, proxy.ErrLate), errors.Is(err, proxy.ErrNotPending):
		return result{"expired", 410}
	}
	return result{"failed", 503}
}

func isStatus(n int) bool { return n >= 100 && n <= 599 }

// readReport reads a report from the query or from the body.
func readReport(x *http1.Exchange) (r report, err error) {
	query, _ := x.RawQuery()
	values, err := url.ParseQuery(query)
	if err != nil {
		return r, errReport
	}
	if values.Has("handle") {
		r.Handle = values.Get("handle")
		r.Status, err = strconv.Atoi(values.Get("status"))
	} else if b := x.Body(); b != nil &&
		strings.HasPrefix(strings.Join(x.Fields.Values("Content-Type"), ","), "application/json") {
		b.Limit(maxReport)
		var text []byte
		if text, err = io.ReadAll(b); err == nil {
			err = json.Unmarshal(text, &r)
		}
	}
	if err != nil || r.Handle == "" || !isStatus(r.Status) {
		return r, errReport
	}
	return r, nil
}
