package proxy

// normalize parses the request target, and normalizes host and path to the form that
// is matched and forwarded.
func normalize(x *exchange) error {
	x.request.HTTPS = x.in.scheme == "https" || x.client.trustedPeer
	return x.request.Normalize()
}
