package proxy

import (
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
