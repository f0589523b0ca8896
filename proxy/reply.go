package proxy

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/respond"
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
	if len(x.claims.claims) > 0 {
		x.addRefunds(answer.Status, &x.outcome)
		answer = answer.WithRateLimitFields(x.route.rateLimitFields, x.verdict())
	}
	x.outcome.result.Status = answer.Status
	if x.route.settlesHead {
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
		_, port, _ = net.SplitHostPort(g.httpsAddress())
	}
	if port == "" || port == "443" {
		return ""
	}
	return ":" + port
}
