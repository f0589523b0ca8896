package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// newRespond returns the response of a route with a fixed response.
func newRespond(c *config.Respond) respond.Response {
	if c == nil {
		return respond.Response{}
	}
	return respond.Static(c.Status, c.ContentType, c.Body, newFields(c.Headers))
}

// reply responds to an allowed request of a route without an upstream. Its status counts for
// refunds like that of an upstream.
func (x *exchange) reply(d downstream) {
	answer := x.route.fixedResponse
	x.outcome.refund = x.route.onlyDecided() // it is not found here, and does not count
	if to := x.route.Redirect; to != nil {
		answer = respond.Redirect(to.Status, x.fillTemplate(to.To))
	}
	if len(x.Claims) > 0 {
		x.AddRefunds(limit.Outcome{Refunded: x.outcome.refund, Status: answer.Status})
		answer = answer.WithRateLimitFields(x.route.rateLimitFields, x.verdict())
	}
	x.outcome.result.Status = answer.Status
	if x.route.SettlesHead() {
		x.settleHead(answer.Status)
	}
	d.respond(answer)
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

// scheme returns the scheme by which the client sent the request: what a trusted proxy says in the last
// element of X-Forwarded-Proto, otherwise that of the connection. What other peers say is ignored.
func (x *exchange) scheme() string {
	if !x.client.trustedPeer {
		return x.in.scheme
	}
	lines := x.in.header.Values("X-Forwarded-Proto")
	if len(lines) == 0 {
		return x.in.scheme
	}
	last := lines[len(lines)-1]
	last = strings.Trim(last[strings.LastIndexByte(last, ',')+1:], " \t")
	for _, known := range []string{"http", "https"} {
		if strings.EqualFold(last, known) {
			return known
		}
	}
	return x.in.scheme
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
