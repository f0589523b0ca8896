package proxy

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/protobuf"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// reply returns the response to an allowed request of a route without an upstream. Its status counts for
// refunds like that of an upstream.
func (x *exchange) reply() respond.Response {
	answer := x.route.fixedResponse
	x.outcome.refund = x.route.onlyDecided() // it is not found here, and does not count
	if to := x.route.Redirect; to != nil {
		answer = respond.Redirect(to.Status, x.fillTemplate(to.To))
	}
	x.AddRefunds(limit.Outcome{Refunded: x.outcome.refund, Status: answer.Status})
	x.outcome.result.Status = answer.Status
	if x.route.SettlesHead() {
		x.settleHead(answer.Status)
	}
	return x.withRateLimits(answer)
}

// withRateLimits returns answer with the rate limit fields of an allowed request.
func (x *exchange) withRateLimits(answer respond.Response) respond.Response {
	if len(x.Claims) == 0 {
		return answer
	}
	return answer.WithRateLimitFields(x.route.rateLimitFields, x.verdict())
}

// fillTemplate replaces the placeholders of to by the request's host, path and query. The path begins with
// exactly one slash, so that it cannot be taken for a host.
func (x *exchange) fillTemplate(to string) string {
	query := ""
	if x.request.RawQuery != "" {
		query = "?" + x.request.RawQuery
	}
	return strings.NewReplacer("{host}", x.request.Host, "{path}", x.request.Forwarded, "{query}", query).Replace(to)
}

// errPlainHTTP reports a request without TLS that listen.redirect_https redirects.
var errPlainHTTP = errors.New("redirected to HTTPS")

// challengePrefix begins the paths at which an authority asks over plain HTTP for the proof that this
// server controls a name (RFC 8555 section 8.3). They are not redirected, so that an upstream may
// answer as well.
const challengePrefix = "/.well-known/acme-challenge/"

// requireHTTPS returns errPlainHTTP for a request that is to be sent again over HTTPS.
func (g *generation) requireHTTPS(x *exchange) error {
	if !g.config.Listen.RedirectHTTPS || x.request.Path == "*" || strings.HasPrefix(x.request.Path, challengePrefix) || x.scheme() == "https" {
		return nil
	}
	return errPlainHTTP
}

// scheme returns the scheme by which the client sent the request: what a trusted proxy says, otherwise that of the
// connection. What other peers say is ignored.
func (x *exchange) scheme() string {
	if !x.client.trustedPeer {
		return x.in.scheme
	}
	return cmp.Or(LastScheme(x.in.header.Values("X-Forwarded-Proto")), x.in.scheme)
}

// LastScheme returns http or https, the scheme in the last element of the fields X-Forwarded-Proto, where ws and wss are those
// of WebSockets; "" if it is none of them.
func LastScheme(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	last := fields[len(fields)-1]
	switch strings.ToLower(strings.Trim(last[strings.LastIndexByte(last, ',')+1:], " \t")) {
	case "http", "ws":
		return "http"
	case "https", "wss":
		return "https"
	}
	return ""
}

// usualScheme returns the scheme of requests of which none is known.
func (g *generation) usualScheme() string {
	if g.config.Listen.RedirectHTTPS {
		return "https"
	}
	return "http"
}

// redirectHTTPS returns the redirect of a request to HTTPS, with its path and query as they were sent.
// 308 keeps the method and the body.
func (g *generation) redirectHTTPS(x *exchange) respond.Response {
	target := x.request.RequestTarget
	if !strings.HasPrefix(target, "/") { // the absolute form
		target = x.request.SentPath
		if x.request.RawQuery != "" {
			target += "?" + x.request.RawQuery
		}
	}
	return respond.Redirect(http.StatusPermanentRedirect, "https://"+x.request.Host+g.httpsPort(x)+target)
}

// httpsPort returns the port of the URL for HTTPS with its colon, or "" for the usual one: the
// configured port, otherwise that of the listener, unless a proxy terminated TLS on a port of its own.
func (g *generation) httpsPort(x *exchange) string {
	port := ""
	switch {
	case g.config.Listen.HTTPSPort != 0:
		port = strconv.Itoa(g.config.Listen.HTTPSPort)
	case !x.client.trustedPeer:
		_, port, _ = net.SplitHostPort(g.shared.https())
	}
	if port == "" || port == "443" {
		return ""
	}
	return ":" + port
}

// faultInterval is how often the invalid responses of one target are logged, or calls with too many descriptors.
const faultInterval = time.Minute

// badResponses counts the responses of upstreams that are not valid HTTP by the rule that they
// break, and logs them once a minute for each target.
type badResponses struct {
	log   zerolog.Logger
	total *prometheus.CounterVec

	mu     sync.Mutex // guards what follows
	logged map[string]time.Time
}

func newBadResponses(log zerolog.Logger, r prometheus.Registerer) *badResponses {
	total := metrics.Registry{Registerer: r}.Counter("upstream_bad_responses_total",
		"Responses of upstreams that are not valid HTTP, by the rule that they break.", "upstream", "target", "reason")
	return &badResponses{log: log, logged: map[string]time.Time{}, total: total}
}

// record counts the result of a forwarded request if the response broke a rule of HTTP.
func (b *badResponses) record(pool string, result *upstream.Result, now time.Time) {
	rule, is := errors.AsType[*http1.Error](result.Err)
	isOfResponse := result.Kind == upstream.BadResponse || result.Kind == upstream.ResponseTruncated
	if !is || !isOfResponse || errors.Is(rule, http1.ErrTruncated) {
		return
	}
	b.total.WithLabelValues(pool, result.Target, strings.ReplaceAll(rule.Error(), " ", "_")).Inc()
	if b.due(pool+" "+result.Target, now) {
		b.log.Warn().Str("upstream", pool).Str("target", result.Target).Str("reason", rule.Error()).Msg("upstream response refused")
	}
}

// due reports whether to log a response of target at now.
func (b *badResponses) due(target string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, ok := b.logged[target]; ok && now.Sub(last) < faultInterval {
		return false
	}
	b.logged[target] = now
	return true
}

// maxSettling is the maximum number of requests that are settled concurrently after their
// responses.
const maxSettling = 10_000

// finish ends a request whose response has been written, except for what net/http buffers until
// ServeHTTP returns. Refunds to a store over the network are made, and waited for if they were
// started before the head of the response, in a goroutine after that, so that no client waits for
// them; the exchange then outlives its handler. If there are more than maxSettling, the request
// waits for its refund.
func (p *Proxy) finish(ctx context.Context, x *exchange) {
	if x.duration == 0 || x.trace != nil { // otherwise it was measured together with the upstream's duration
		x.duration = time.Since(x.began) // in a trace the span must not end before the upstream's
	}
	x.saveUserAgent()
	x.Stripe = p.shared.stripes.Own() // another processor may have continued after a lock
	p.shared.observe(x)
	if p.admitter.Timeout > 0 && x.outcome.known && x.NeedsRefund(x.settledOutcome()) {
		if p.settling.Add(1) <= maxSettling {
			x.detach()
			go func() { // #nosec G118 -- the request's context ends with its handler
				defer p.settling.Add(-1)
				p.end(context.Background(), x)
			}()
			return
		}
		p.settling.Add(-1)
	}
	p.end(ctx, x)
}

// end settles x and writes its log line. x must not be used afterwards. A request that was aborted
// before there was an outcome stays counted.
func (p *Proxy) end(ctx context.Context, x *exchange) {
	if x.outcome.known {
		p.admitter.Settle(ctx, &x.Admission, x.settledOutcome())
	}
	p.admitter.CountSends(x.Sends)
	x.StopRenewing()
	p.metrics.CountSpending(&x.Admission)
	if x.isTraced() {
		p.endTrace(x)
	}
	p.recorder.record(x)
	p.leave(x)
}

// leave ends the use of the generation by x, and of x, unless its downstream reuses it.
func (p *Proxy) leave(x *exchange) {
	x.generation.release(x.enteredBy)
	x.reset()
	if !x.reused {
		p.exchanges.Put(x)
	}
}

// maxGRPCMessage is the maximum length in bytes of the text of a configured body that becomes grpc-message.
const maxGRPCMessage = 1 << 10

// forGRPC makes a what the client of x understands. A call of gRPC that Weir refuses gets 200 without a body and the status of the
// call in the header (Trailers-Only in gRPC's PROTOCOL-HTTP2.md), with the fields of a: a client reads any other
// response as UNAVAILABLE, and may try again at once. The log and the metrics have the status of a.
func (x *exchange) forGRPC(a *respond.Response) {
	if f, ok := x.in.header.(*http1.Fields); a.Status < http.StatusBadRequest || ok && !f.Has(http1.ContentType) {
		return // as most; this is cheaper than a lookup by name
	}
	kind := grpcType(x.in.header.Values("Content-Type"))
	if kind == "" {
		return
	}
	x.rateLimitFields.block = nil // it has other fields
	fields := []respond.Field{{Name: "Content-Type", Value: kind}}
	isUnsafe := func(c byte) bool { return c < ' ' || c > '~' || c == '%' }
	if code, message := grpcCode(a.Status), grpcMessage(*a); a.Field("Grpc-Status") == "" { // it is not configured
		fields = append(fields, respond.Field{Name: "Grpc-Status", Value: strconv.FormatUint(code, 10)})
		fields = append(fields, respond.Field{Name: "Grpc-Message", Value: respond.PercentEncode(message, isUnsafe)})
		if after, err := strconv.ParseUint(a.Field("Retry-After"), 10, 32); err == nil {
			fields = append(fields, respond.Field{Name: "Grpc-Status-Details-Bin", Value: grpcDetails(code, message, after)})
		}
	}
	for _, f := range a.Fields {
		if f.Name != "Content-Type" && f.Name != "Content-Length" {
			fields = append(fields, f)
		}
	}
	*a = respond.Response{Status: http.StatusOK, Fields: fields}
}

// grpcType returns the content type of the response to a call of gRPC or gRPC-Web, "" if the request is none.
func grpcType(sent []string) string {
	if len(sent) != 1 {
		return ""
	}
	kind, _, _ := strings.Cut(sent[0], ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	name, codec, _ := strings.Cut(kind, "+")
	switch name {
	case "application/grpc", "application/grpc-web", "application/grpc-web-text":
		if strings.IndexFunc(codec, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) < 0 {
			return kind
		}
	}
	return ""
}

// grpcCode returns the code of gRPC for a status of Weir's own responses, by its meaning: a client may try again after
// UNAVAILABLE, so only what another try may change is that.
func grpcCode(status int) uint64 {
	const cancelled, unknown, invalidArgument, deadlineExceeded, permissionDenied, resourceExhausted = 1, 2, 3, 4, 7, 8
	const failedPrecondition, unimplemented, internal, unavailable, unauthenticated = 9, 12, 13, 14, 16
	switch status {
	case http.StatusUnauthorized:
		return unauthenticated
	case http.StatusForbidden:
		return permissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return unimplemented
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return deadlineExceeded
	case http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge, http.StatusTooManyRequests:
		return resourceExhausted
	case http.StatusExpectationFailed, http.StatusPreconditionFailed:
		return failedPrecondition
	case respond.ClientGone:
		return cancelled
	case http.StatusMisdirectedRequest, http.StatusBadGateway, http.StatusServiceUnavailable:
		return unavailable
	}
	switch {
	case status < http.StatusInternalServerError:
		return invalidArgument
	case status < 600:
		return internal
	}
	return unknown
}

// grpcMessage returns what a says: the detail or title of its problem, its plain text, or its status.
func grpcMessage(a respond.Response) string {
	switch kind, _, _ := strings.Cut(a.Field("Content-Type"), ";"); kind {
	case "application/problem+json":
		var problem struct{ Title, Detail string }
		if err := json.Unmarshal(a.Body, &problem); err == nil && problem.Detail != "" {
			return problem.Detail
		} else if err == nil {
			return problem.Title
		}
	case "text/plain":
		return strings.ToValidUTF8(strings.TrimSpace(string(a.Body[:min(len(a.Body), maxGRPCMessage)])), "")
	}
	return http.StatusText(a.Status)
}

// grpcDetails returns a google.rpc.Status with a google.rpc.RetryInfo, in base64.
func grpcDetails(code uint64, message string, seconds uint64) string {
	retry := protobuf.AppendMessage(nil, 1, protobuf.AppendNumber(nil, 1, seconds)) // retry_delay.seconds
	detail := protobuf.AppendMessage(protobuf.AppendText(nil, 1, "type.googleapis.com/google.rpc.RetryInfo"), 2, retry)
	status := protobuf.AppendMessage(protobuf.AppendText(protobuf.AppendNumber(nil, 1, code), 2, message), 3, detail)
	return base64.RawStdEncoding.EncodeToString(status)
}
