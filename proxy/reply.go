package proxy

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/respond"
)

// newRespond is the response of a route that always gives the same.
func newRespond(c *config.Respond) respond.Response {
	if c == nil {
		return respond.Response{}
	}
	var fields []respond.Field
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		fields = append(fields, respond.Field{Name: name, Value: c.Headers[name]})
	}
	return respond.Static(c.Status, c.ContentType, c.Body, fields)
}

// reply answers a request that its limits have allowed and that nobody else is
// to answer. It counts as a response of an upstream would.
func (x *exchange) reply(d downstream) {
	answer := x.route.respond
	if to := x.route.Redirect; to != nil {
		answer = respond.Redirect(to.Status, x.place(to.To))
	}
	if len(x.claims.claims) > 0 {
		x.restore(answer.Status, &x.outcome)
		answer = answer.WithQuota(x.route.quota, x.verdict())
	}
	x.outcome.result.Status = answer.Status
	d.answer(answer)
}

// place fills the request's host, path and query into to. The path begins with
// one slash only, so that it cannot become a host.
func (x *exchange) place(to string) string {
	query := ""
	if x.request.RawQuery != "" {
		query = "?" + x.request.RawQuery
	}
	return strings.NewReplacer("{host}", x.request.Host, "{path}", x.request.Path, "{query}", query).Replace(to)
}
