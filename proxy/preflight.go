package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// preflight reports whether the request is a browser's question whether another
// one may be sent (CORS), which no limit of its route is asked about. So that it
// cannot be anything else to an upstream, it has no body, no cookie, no
// authorization and no field that a browser does not send with that question. And
// no key of its route stands in it: some upstreams do not look at the method at all,
// and would act on that key as often as it is asked for.
func (x *exchange) preflight() bool {
	if x.request.Method != http.MethodOptions || x.in.length != 0 || x.route.CountPreflight {
		return false
	}
	if len(x.in.header.Values("Origin")) != 1 || len(x.in.header.Values("Access-Control-Request-Method")) != 1 {
		return false
	}
	for _, name := range x.in.unasked {
		if !x.client.trustedPeer || !addedByProxies(name) {
			return false
		}
	}
	return x.readQuery() == nil && !slices.ContainsFunc(x.route.written, x.carries)
}

// carries reports whether something stands at o in a request without a body, or
// where some servers take it for o.
func (x *exchange) carries(o key.Origin) bool {
	if slices.ContainsFunc(x.extracted.confused, func(other key.Origin) bool { return other.Name == o.Name }) {
		return true
	}
	switch o.Source {
	case key.Header:
		return len(x.Header(o.Name)) > 0
	case key.Query, key.Form: // some servers take a field of a form from the query too
		return len(x.Query(o.Name)) > 0
	case key.Path:
		return x.Param(o.Name) != ""
	}
	return false
}

// unasked are the fields of h that browsers do not send with a preflight (Fetch
// section 4.8 and what networks add); nil for any other method than OPTIONS, which
// is never asked about.
func unasked(method string, h map[string][]string) []string {
	if method != http.MethodOptions {
		return nil
	}
	var names []string
	for name := range h {
		if !browsersSend(name) {
			names = append(names, name)
		}
	}
	return names
}

func browsersSend(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Content-Length", "Dnt", "Host",
		"Keep-Alive", "Origin", "Pragma", "Priority", "Referer", "Sec-Gpc", "Te", "User-Agent":
		return true
	}
	return strings.HasPrefix(name, "Access-Control-Request-") || strings.HasPrefix(name, "Sec-Fetch-")
}

// addedByProxies reports whether proxies and their like add a field called name to
// whatever they pass on.
func addedByProxies(name string) bool {
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Request-Id", "X-Correlation-Id", "True-Client-Ip", "Traceparent", "Tracestate", "X-Cloud-Trace-Context", "X-Varnish":
		return true
	}
	for _, prefix := range []string{"X-Forwarded-", "X-Envoy-", "X-B3-", "X-Amz", "X-Azure-", "Cf-", "Cdn-", "Fastly-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
