package admin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// local admits requests of programs on this machine, as far as they can be recognized
// without a token. A web page can reach a loopback address by resolving its own name to it
// (DNS rebinding): then Host is that name, and requests that make changes have fields that
// browsers add.
func (o Options) local(next http.Handler) http.Handler {
	if len(o.allowances()) > 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !o.named(r.Host) {
			problem(w, http.StatusMisdirectedRequest, fmt.Sprintf("without admin.token only this machine is answered, and %q is not its name; ask 127.0.0.1, or write the name into admin.hosts, or set admin.token", r.Host))
			return
		}
		if field := browser(r); field != "" && !ownPage(r) && r.Method != http.MethodGet && r.Method != http.MethodHead {
			problem(w, http.StatusForbidden, "without admin.token no web page may change anything, and "+field+" says that this is one; set admin.token, or use weir or curl")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// named reports whether host, with or without a port, is a name for this machine. It may be
// missing in HTTP/1.0, which browsers do not use.
func (o Options) named(host string) bool {
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

// ownPage reports whether r is for the dashboard, whose forms are sent by browsers. It
// recognizes its own forms by a token that other pages cannot read (CSRF token).
func ownPage(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/dashboard/") }

// browser returns a header field that only browsers send; "" if there is none.
func browser(r *http.Request) string {
	for name := range r.Header {
		if name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") {
			return name
		}
	}
	return ""
}
