package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A rateLimitFields holds the rate limit fields of a response.
type rateLimitFields struct {
	policies []int             // the policy of each outcome of the decision
	buffer   respond.Buffer    // the memory of the field values
	block    *http1.FieldBlock // refuse: the fields of the refusal, if they are rendered
}

func (r *rateLimitFields) reset() {
	r.buffer.Discard()
	*r = rateLimitFields{policies: reuse.Memory(r.policies), buffer: r.buffer}
}

// refuse returns the response to a request that a stage has refused with err.
func (g *generation) refuse(x *exchange, err error) respond.Response {
	x.Fail(err)
	if x.Steps != nil && x.Steps.By != nil && errors.Is(err, limit.ErrRefused) {
		return x.challenge()
	}
	if x.IsRefused() || errors.Is(err, limit.ErrRefused) || errors.Is(err, errNewKeys) { // the first is the cheapest
		return g.refuseByLimit(x)
	}
	texts := g.errorTexts
	if x.route != nil {
		texts = x.route.errorTexts
	}
	return texts.Replace(g.refuseError(x, err), x.id, x.origin())
}

// challenge returns the response to a request that a limit has refused with a challenge.
func (x *exchange) challenge() respond.Response {
	name, detail := x.Steps.Challenge()
	return x.route.rateLimitFields.Challenge(name, detail, respond.Refusal{Verdict: x.verdict(), Jitter: respond.Jitter(x.Decision.Wait, rand.Float64), RequestID: x.id, Origin: x.origin()})
}

// refuseByLimit returns the response to a request that a limit has refused.
func (g *generation) refuseByLimit(x *exchange) (answer respond.Response) {
	l, r := x.route.rateLimitFields, respond.Refusal{Verdict: x.verdict(), Jitter: respond.Jitter(x.Decision.Wait, rand.Float64), RequestID: x.id}
	if l.HasOrigin() {
		r.Origin = x.origin()
	}
	if x.idGiven {
		return l.TooManyRequests(r)
	}
	answer, x.rateLimitFields.block = g.refusals.TooManyRequests(l, &r)
	return answer
}

// origin returns the field Origin of the request, "" if it does not have exactly one.
func (x *exchange) origin() string {
	if lines := x.in.header.Values("Origin"); len(lines) == 1 {
		return lines[0]
	}
	return ""
}

// refuseError returns the response to a request that no limit has refused.
func (g *generation) refuseError(x *exchange, err error) respond.Response {
	if maintenance, is := errors.AsType[maintenanceError](err); is {
		return respond.UnderMaintenance(maintenance.retryAfter(), x.id)
	}
	switch {
	case errors.Is(err, errPlainHTTP):
		return g.redirectHTTPS(x)
	case errors.Is(err, http1.ErrConnect), errors.Is(err, routing.ErrTunnel):
		return respond.NotAllowed(nil, x.id) // no method is allowed for an authority target
	case errors.Is(err, limit.ErrUndecided), errors.Is(err, body.ErrFull):
		return respond.Unavailable(http.StatusServiceUnavailable, time.Second, "", x.id)
	case errors.Is(err, errDenied), errors.Is(err, limit.ErrPrice):
		return respond.Problem(http.StatusForbidden, "", x.id)
	case errors.Is(err, routing.ErrMethod):
		return respond.NotAllowed(g.table.Allowed(&x.request), x.id)
	case errors.Is(err, routing.ErrNone):
		return respond.Problem(http.StatusNotFound, "", x.id)
	case errors.Is(err, key.ErrMissing):
		return refuseKey(x, respond.KeyMissing, err)
	case errors.Is(err, errBody):
		return respond.Problem(bodyErrorStatus(err), "", x.id)
	case errors.Is(err, key.ErrNoVerificationKeys):
		return respond.Unavailable(http.StatusServiceUnavailable, time.Second, "", x.id)
	case errors.Is(err, key.ErrAmbiguous), errors.Is(err, key.ErrInvalid), errors.Is(err, key.ErrMismatch),
		errors.Is(err, routing.ErrQuery), errors.Is(err, limit.ErrCost), errors.Is(err, errIdempotencyKey):
		return refuseKey(x, respond.KeyInvalid, err)
	case errors.Is(err, routing.ErrTargetTooLong):
		return respond.Problem(http.StatusRequestURITooLong, "", x.id)
	case errors.Is(err, routing.ErrTarget), errors.Is(err, errMalformed), errors.Is(err, errConnection):
		return respond.Problem(http.StatusBadRequest, err.Error(), x.id)
	case errors.Is(err, errTooLong), errors.Is(err, key.ErrBodyTooLarge):
		return respond.Problem(http.StatusRequestEntityTooLarge, err.Error(), x.id)
	}
	if malformed, is := errors.AsType[*http1.Error](err); is {
		return respond.Problem(malformed.Status, err.Error(), x.id)
	}
	return respond.Problem(respond.StatusOf(err), "", x.id)
}

// refuseKey returns the response to a request whose key cannot be read: 401 if that is because of its
// bearer token.
func refuseKey(x *exchange, status int, err error) respond.Response {
	if challenge := key.Challenge(err, x.request.Host); challenge != "" {
		return respond.Unauthorized(challenge, err.Error(), x.id)
	}
	return respond.Problem(status, err.Error(), x.id)
}

// bodyErrorStatus returns the status of the response to a request whose body could not be read: the client was too slow,
// has disconnected, or sent an invalid body.
func bodyErrorStatus(err error) int {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	case errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, http1.ErrTruncated):
		return respond.ClientGone
	}
	return http.StatusBadRequest
}

// verdict returns the decision in the form of package respond.
func (x *exchange) verdict() respond.Verdict {
	return respond.Verdict{Decision: &x.Decision, Policies: x.policies(), Counts: x.counts(), Without: x.unlimited(), Buffer: &x.rateLimitFields.buffer}
}

// policies maps the outcomes of the decision to the policies of the quota.
func (x *exchange) policies() []int {
	x.rateLimitFields.policies = x.rateLimitFields.policies[:0]
	for i := range x.Claims {
		policy := x.Claims.Window(i).Number
		if x.BothSecrets && x.Claims.CurrentIndex(i) != i {
			policy = -1 // one policy for both secrets
		}
		x.rateLimitFields.policies = append(x.rateLimitFields.policies, policy)
	}
	return x.rateLimitFields.policies
}

// counts returns the counts of the rates that the descriptor of x has; see respond.Verdict.
func (x *exchange) counts() []int64 {
	if x.in.asked.Rate == nil {
		return nil
	}
	counts := make([]int64, len(x.Claims))
	for i := range x.Claims {
		if w := x.Claims.Window(i); w.IsUnit {
			counts[i] = w.Rate.Count
		}
	}
	return counts
}

// forwardErrorResponse returns the response to a request that could not be forwarded.
func forwardErrorResponse(x *exchange) respond.Response {
	switch x.outcome.result.Kind {
	case upstream.NoTarget, upstream.QueueFull:
		return respond.Unavailable(http.StatusServiceUnavailable, time.Second, "", x.id)
	case upstream.MaxForwards:
		return respond.MaxForwards(x.request.Method, x.id)
	}
	status := [upstream.QueueFull]int{
		upstream.Timeout: http.StatusGatewayTimeout, upstream.ConnectTimeout: http.StatusGatewayTimeout, upstream.BodyTimeout: http.StatusRequestTimeout,
		upstream.ClientGone: respond.ClientGone, upstream.BadRequest: http.StatusBadRequest, upstream.BodyTooLarge: http.StatusRequestEntityTooLarge,
		upstream.LoopDetected: http.StatusLoopDetected,
	}[x.outcome.result.Kind]
	return respond.Problem(cmp.Or(status, http.StatusBadGateway), "", x.id)
}

// The methods of this file implement key.Request and routing.Message, by which packages key and
// route read the exchange.

// Header returns all values of a field.
func (x *exchange) Header(name string) []string { return x.in.header.Values(name) }

// Query returns all values of a query parameter. An ambiguous query has no parameters; extract
// refuses the request before they are used.
func (x *exchange) Query(name string) []string { return x.extracted.query[name] }

// ParsedQuery returns the parameters of the query. It is parsed once.
func (x *exchange) ParsedQuery() (url.Values, error) {
	if x.extracted.query != nil {
		return x.extracted.query, nil
	}
	query, err := routing.ParseQuery(x.request.RawQuery)
	if err != nil {
		return nil, err
	}
	x.extracted.query = query
	return query, nil
}

// Param returns a parameter of the path, decoded.
func (x *exchange) Param(name string) string { return x.request.Param(name) }

// Client returns the client's network, by which limits count.
func (x *exchange) Client() netip.Prefix { return x.client.network }

// Host returns the host of the request in its canonical form.
func (x *exchange) Host() string { return x.request.Host }

// Method returns the method.
func (x *exchange) Method() string { return x.request.Method }

// Body returns the body, which is read once for all keys.
func (x *exchange) Body() (key.Body, error) {
	if x.extracted.body == nil {
		maxBytes := cmp.Or(x.route.MaxBody, body.DefaultMax)
		c := new(content)
		if x.extracted.body = c; x.in.length > maxBytes { // it is not begun, because a limit in shadow mode lets it pass
			c.err = bodyTooLarge(maxBytes)
		} else {
			c.bytes, c.err = x.in.body.readAll(maxBytes)
		}
	}
	kind := ""
	if types := x.Header("Content-Type"); len(types) > 0 {
		kind = types[0]
	}
	return key.Body{Type: kind, Bytes: x.extracted.body.bytes}, x.extracted.body.err
}

// A content is a body, or the error of reading it.
type content struct {
	bytes, ensured []byte // ensured is forwarded in place of bytes, unless it is nil
	err            error
}

// errTooLong reports that the announced length of a body exceeds the maximum of its route.
var errTooLong = errors.New("body too large")

// checkBodySize refuses a request whose announced body exceeds the maximum of its route, before any
// permit is taken. A body without an announced length is measured while it is forwarded.
func (x *exchange) checkBodySize() error {
	if maxBytes := x.route.MaxBody; maxBytes > 0 && x.in.length > maxBytes {
		return fmt.Errorf("%w: at most %d bytes are allowed here", errTooLong, maxBytes)
	}
	return nil
}

// HasForm reports whether x has a body that some server parses as a form. Rack parses the body of a
// POST without Content-Type as one.
func (x *exchange) HasForm() bool {
	if x.in.length == 0 {
		return false
	}
	types := x.Header("Content-Type")
	for _, kind := range types {
		kind = strings.ToLower(kind)
		if strings.Contains(kind, "urlencoded") || strings.Contains(kind, "multipart") {
			return true
		}
	}
	return strings.EqualFold(x.request.Method, "POST") && strings.Join(types, "") == ""
}

// refusals writes the rates that refused the request, or would have in shadow mode, and reports
// whether any did refuse it.
func (l logLine) refusals(x *exchange) bool {
	if x.Shadow.Refuses() && l.has(logShadow) {
		l.Array("shadow", x.shadowRefusals())
	}
	first, refused := x.FirstRefused()
	if !refused {
		return false
	}
	l.text(logLimit, x.Claims.Window(first).Of.Name)
	l.ms(logWaitMS, x.Decision.Wait)
	l.refusal(x, x.Refusal(first))
	if x.BanBegan {
		l.flag(logBanBegan)
	}
	var also *zerolog.Array // nil if no other rate refused
	for i := first + 1; i < len(x.Decision.Outcomes) && l.has(logAlso); i++ {
		if x.alsoRefused(first, i) {
			if also == nil {
				also = zerolog.Arr()
			}
			also.Dict(x.refusalDict(x.Refusal(i)))
		}
	}
	if also != nil {
		l.Array("also", also)
	}
	if l.has(logCachedRefusal) {
		x.logCachedRefusal(l.Event)
	}
	return true
}

// logCachedRefusal writes the limits that refused the request, if the store repeated its refusal and did
// not evaluate the others: a Replay must not evaluate them either.
func (x *exchange) logCachedRefusal(e *zerolog.Event) {
	isUnknown := func(o limiter.Outcome) bool { return o.Unknown }
	if !slices.ContainsFunc(x.Decision.Outcomes, isUnknown) {
		return
	}
	var space [64]byte
	b, last := space[:0], (*limit.Limit)(nil)
	for i := range x.Decision.Outcomes {
		of := x.Claims.Window(i).Of
		if x.Decision.Outcomes[i].Allowed || of == last {
			continue
		}
		if last = of; len(b) > 0 {
			b = append(b, ' ')
		}
		b = append(b, of.Name...)
	}
	e.Bytes("cached_refusal", b)
}

// refusal writes one rate that refused: its name, the key, and whether the key is banned.
func (l logLine) refusal(x *exchange, r limit.Refusal) {
	hash, masked := x.LogKey(r.Key)
	l.text(logRate, r.Window.LogName)
	l.text(logKey, hash)
	l.given(logMasked, masked)
	if r.Banned {
		l.flag(logBanned)
	}
}

// refusalDict returns a rate that refused as an element of an array.
func (x *exchange) refusalDict(r limit.Refusal) *zerolog.Event {
	e := logLine{zerolog.Dict(), allFields}
	e.refusal(x, r)
	return e.Event
}

// alsoRefused reports whether a claim after the first refused one was refused too. A rate is
// reported once for both secrets.
func (x *exchange) alsoRefused(first, i int) bool {
	return !x.Decision.Outcomes[i].Allowed && x.Claims.Window(i) != x.Claims.Window(first) && x.Claims.CurrentIndex(i) == i
}

// shadowRefusals returns the refusals of x by limits in shadow mode.
func (x *exchange) shadowRefusals() *zerolog.Array {
	all := zerolog.Arr()
	for _, r := range x.Shadow.Refusals {
		all.Dict(x.refusalDict(r))
	}
	for _, l := range x.Shadow.Errors {
		all.Dict(zerolog.Dict().Str("limit", l.Name).Bool("unfit", true))
	}
	return all
}
