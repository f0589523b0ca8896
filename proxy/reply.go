package proxy

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/respond"
)

// A reply is the answer of a route that has no upstream.
type reply struct {
	static   respond.Answer
	redirect *config.Redirect // nil: the answer is static
}

// newReply makes the reply of a route, nil if it has an upstream.
func newReply(from *config.Route) *reply {
	switch {
	case from.Redirect != nil:
		return &reply{redirect: from.Redirect}
	case from.Respond != nil:
		var fields []respond.Field
		for _, name := range slices.Sorted(maps.Keys(from.Respond.Headers)) {
			fields = append(fields, respond.Field{Name: name, Value: from.Respond.Headers[name]})
		}
		return &reply{static: respond.Static(from.Respond.Status, from.Respond.ContentType, from.Respond.Body, fields)}
	}
	return nil
}

// reply answers a request that its limits have allowed and that nobody else is
// to answer. It counts as an answer of an upstream would.
func (x *exchange) reply(d downstream) {
	answer := x.route.reply.static
	if to := x.route.reply.redirect; to != nil {
		answer = respond.Redirect(to.Status, x.place(to.To))
	}
	if len(x.asks.claims) > 0 {
		x.restore(answer.Status)
		answer = answer.With(x.route.quota, x.verdict())
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
