package proxy

// tidy takes the target apart and brings the host and the path into the one spelling
// that is matched and forwarded.
func tidy(x *exchange) error {
	x.request.HTTPS = x.in.scheme == "https" || x.client.trustedPeer
	return x.request.Normalize()
}
