package proxy

import routing "github.com/weir-proxy/weir/proxy/route"

// normalize parses the request target, and normalizes host and path to the form that
// is matched and forwarded.
func normalize(x *exchange) error {
	x.request.HTTPS = x.in.scheme == "https" || x.client.trustedPeer
	return x.request.Normalize()
}

// match sets the route of a request and the parameters of its path. A request that is refused may
// still have a route, for the log; see routing.Table.Find.
func (g *generation) match(x *exchange) (err error) {
	x.route, err = g.table.Find(g.matchable(x))
	return err
}

// matchable returns the data of x by which it is matched.
func (g *generation) matchable(x *exchange) *routing.Request {
	x.request.Message = x
	if g.readsScheme {
		x.request.Scheme = x.scheme()
	}
	return &x.request
}
