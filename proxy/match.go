package proxy

import routing "github.com/weir-proxy/weir/proxy/route"

// match sets the route of a request and the parameters of its path. A request that is refused may
// still have a route, for the log; see routing.Table.Find.
func (g *generation) match(x *exchange) (err error) {
	x.route, err = g.table.Find(x.matchable())
	return err
}

// matchable returns the data of x by which it is matched.
func (x *exchange) matchable() *routing.Request {
	x.request.Message = x
	if x.generation.readsScheme {
		x.request.Scheme = x.scheme()
	}
	return &x.request
}
