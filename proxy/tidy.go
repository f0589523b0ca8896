package proxy

import routing "github.com/weir-proxy/weir/proxy/route"

// tidy takes the target apart and brings the host and the path into the one spelling
// that is matched and forwarded.
func tidy(x *exchange) error {
	t, err := routing.Tidy(&routing.Sent{
		Method: x.method, Proto: x.proto, Target: x.target, Authority: x.authority, Local: x.local,
		HTTPS: x.scheme == "https" || x.trusted,
	})
	x.authority, x.target, x.rawQuery, x.host, x.path = t.Authority, t.SentPath, t.RawQuery, t.Host, t.Path
	return err
}
