package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// preflight reports whether the request is a CORS preflight of a browser, to which no limit
// applies. A preflight has no body, no cookie, no authorization and no field that browsers do not
// send with it, so that an upstream cannot take it for another request. It has no key of its route
// either, nor a parameter with the name of one: some upstreams ignore the method, and would process
// such a key, or one that they find there instead, without its being counted.
func (x *exchange) preflight() bool {
	return x.request.Method == http.MethodOptions && x.in.length == 0 && !x.route.CountPreflight && x.hasOnlyPreflightFields()
}

func (x *exchange) hasOnlyPreflightFields() bool {
	if len(x.in.header.Values("Origin")) != 1 || len(x.in.header.Values("Access-Control-Request-Method")) != 1 {
		return false
	}
	isOther := func(name string) bool { return !x.client.trustedPeer || !isProxyField(name) }
	return !slices.ContainsFunc(x.in.notPreflight, isOther) &&
		x.readQuery() == nil && !slices.ContainsFunc(x.route.clientKeys, x.hasValueAt) && !x.namesKey()
}

// namesKey reports whether a parameter of the query has the name of a key of the route. So does a
// query that servers read differently.
func (x *exchange) namesKey() bool {
	query, err := x.ParsedQuery()
	for name := range query {
		if x.route.keyNames.Includes(name) {
			return true
		}
	}
	return err != nil
}

// parameterNames returns the names by which a server may look in the query for what Weir reads under
// this name elsewhere: X-Phone, x_phone and phone for a field X-Phone, phone and user[phone] for
// /user/phone in JSON.
func parameterNames(name string) []string {
	nested := strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", "[")
	name = name[strings.LastIndexByte(name, '/')+1:]
	folded := strings.TrimPrefix(key.FoldHeader(name), "X_")
	return []string{name, nested, folded, "X_" + folded}
}

// hasValueAt reports whether a request without a body has a value at o, or at a place that some
// servers take for o.
func (x *exchange) hasValueAt(o key.Origin) bool {
	if slices.ContainsFunc(x.extracted.confusable, func(other key.Origin) bool { return other.Name == o.Name }) {
		return true
	}
	if _, ok := o.Confused(); ok { // some servers take a field of a form from the query too
		return len(x.Query(o.Name)) > 0
	}
	switch s := o.Source; {
	case s.IsField():
		return len(x.Header(o.Name)) > 0
	case s == key.Path:
		return x.Param(o.Name) != ""
	}
	return false
}

// isPreflightField reports whether browsers send a field with a preflight (Fetch section 4.8), or networks add it.
func isPreflightField(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Content-Length", "Dnt", "Host",
		"Keep-Alive", "Origin", "Pragma", "Priority", "Referer", "Sec-Gpc", "Te", "User-Agent":
		return true
	}
	return strings.HasPrefix(name, "Access-Control-Request-") || strings.HasPrefix(name, "Sec-Fetch-")
}

// isProxyField reports whether proxies and similar intermediaries add a field with this name.
func isProxyField(name string) bool {
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Request-Id", "X-Correlation-Id", "True-Client-Ip", "Traceparent", "Tracestate", "X-Cloud-Trace-Context", "X-Varnish":
		return true
	}
	prefixes := []string{"X-Forwarded-", "X-Envoy-", "X-B3-", "X-Amz", "X-Azure-", "Cf-", "Cdn-", "Fastly-"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
