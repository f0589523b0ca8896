package proxy

// tidy parses the request target and normalizes the host and the path to the form that is matched
// and forwarded.
func tidy(x *exchange) error {
	x.request.HTTPS = x.in.scheme == "https" || x.client.trustedPeer
	return x.request.Normalize()
}
