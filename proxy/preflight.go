package proxy

// preflight reports whether the request is a browser's question whether another
// one may be sent (CORS), which no limit of its route is asked about. It carries
// none of the fields that keys are read from. So that it cannot be anything else
// to an upstream, it has no body, each field once, and no wish to be taken for
// another method.
func (x *exchange) preflight() bool {
	if x.method != "OPTIONS" || x.length != 0 || x.route.countsPreflight {
		return false
	}
	for _, name := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		if len(x.Header(name)) > 0 {
			return false
		}
	}
	return len(x.Header("Origin")) == 1 && len(x.Header("Access-Control-Request-Method")) == 1
}
