package proxy

import (
	"net/url"

	routing "github.com/weir-proxy/weir/proxy/route"
)

// match learns the route of a request, and the parameters of its path. A request that is
// refused may have a route all the same, for the log; see routing.Table.Find.
func (g *generation) match(x *exchange) (err error) {
	x.route, err = g.table.Find(x.matchable())
	return err
}

// matchable is what of x decides its route.
func (x *exchange) matchable() *routing.Request {
	x.matched.Method, x.matched.Host, x.matched.Path, x.matched.Message = x.method, x.host, x.path, x
	return &x.matched
}

// ParsedQuery returns the parameters of the query, which is read once.
func (x *exchange) ParsedQuery() (url.Values, error) {
	if x.query != nil {
		return x.query, nil
	}
	query, err := routing.ParseQuery(x.rawQuery)
	if err != nil {
		return nil, err
	}
	x.query = query
	return query, nil
}
