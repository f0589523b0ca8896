package admin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// requireLocal returns a middleware that allows requests of programs on this machine, as far as they can
// be recognized without a token. A web page can also reach a loopback address, by resolving its own
// name to that address (DNS rebinding). Then Host has that name, and requests that change something
// have fields that only browsers send.
func (o Options) requireLocal(next http.Handler) http.Handler {
	if len(o.tokenHashes()) > 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !o.isLocalName(r.Host) {
			problem(w, http.StatusMisdirectedRequest, fmt.Sprintf("without admin.token only this machine is answered, and %q is not its name; ask 127.0.0.1, or write the name into admin.hosts, or set admin.token", r.Host))
			return
		}
		if field := browserField(r); field != "" && !isDashboard(r) && r.Method != http.MethodGet && r.Method != http.MethodHead {
			problem(w, http.StatusForbidden, "without admin.token no web page may change anything, and "+field+" says that this is one; set admin.token, or use weir or curl")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocalName reports whether host, with or without a port, is one that programs on this machine use.
// HTTP/1.0 requests may have none; browsers always send one.
func (o Options) isLocalName(host string) bool {
	if host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if addr, err := netip.ParseAddr(host); err == nil && addr.Unmap().IsLoopback() {
		return true
	}
	return host == "localhost" || slices.ContainsFunc(o.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// isDashboard reports whether r is for the dashboard, whose forms are sent by browsers. The dashboard
// recognizes its own forms by a token, which foreign pages cannot read.
func isDashboard(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/dashboard/") }

// browserField returns the name of a field that only browsers send, or "".
func browserField(r *http.Request) string {
	for name := range r.Header {
		if name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") {
			return name
		}
	}
	return ""
}
