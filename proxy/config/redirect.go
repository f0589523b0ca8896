package config

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A Redirect redirects clients.
type Redirect struct {
	// To is a URL or a path with the placeholders {host}, {path} and {query}.
	To     string
	Status int // 301, 302, 303, 307 or 308
}

func (r *routes) redirect(f *redirectForm) *Redirect {
	if f == nil {
		return nil
	}
	if statuses := []int{301, 302, 303, 307, 308, 0}; !slices.Contains(statuses, f.Status) {
		r.Wrong(&f.Status, "is not the status of a redirect", "write 301, 302, 303, 307 or 308")
	}
	places := strings.NewReplacer("{host}", "h.example", "{path}", "/p", "{query}", "?q")
	for _, m := range words.FindAllString(f.To, -1) {
		if places.Replace(m) == m {
			r.Wrong(&f.To, form.Quote(m)+" is not a placeholder", "write {host}, {path} or {query}")
			return nil
		}
	}
	to, err := url.Parse(places.Replace(f.To))
	switch {
	case f.To == "":
		return nil // already reported
	case err != nil,
		to.Scheme != "" && ((to.Scheme != "http" && to.Scheme != "https") || to.Host == ""),
		to.Scheme == "" && (to.Host != "" || !strings.HasPrefix(to.Path, "/")),
		strings.ContainsAny(f.To, " \\\"<>"):
		r.Wrong(&f.To, form.Quote(f.To)+" is not a URL or a path", "write for example https://www.example.com{path}{query}, or a path such as /new")
	}
	return &Redirect{To: f.To, Status: f.Status}
}

// warnLoops warns of redirects that lead back to their own route, which clients follow until they give
// up, as far as the file tells.
func (r *routes) warnLoops(forms []*routeForm, made []*Route) {
	forms = slices.DeleteFunc(slices.Clone(forms), func(f *routeForm) bool { return f == nil })
	for i, route := range made {
		if route.Redirect != nil && r.leadsBack(route) {
			r.Warn(&forms[i].Redirect.To, "leads back to this route, for ever", "write another path or host; for http to https write listen: {redirect_https: true}, or match: {scheme: http}")
		}
		if route.Match.Scheme == "http" && r.served.RedirectHTTPS {
			r.Warn(&forms[i].Match.Scheme, "this route never matches: listen.redirect_https comes first", "leave one of them out")
		}
	}
}

// leadsBack reports whether a client that follows the redirect of a route surely comes to this route
// again.
func (r *routes) leadsBack(route *Route) bool {
	m, to := route.Match, splitRedirect(route.Redirect.To)
	getOnly := route.Redirect.Status <= 303 && len(m.Methods) > 0 && !slices.Contains(m.Methods, "GET") // clients then send GET
	lacksQuery := len(m.Query) > 0 && !strings.Contains(to.query, "{query}")
	return !getOnly && !lacksQuery && r.servesScheme(to, m) && hasHost(to.host, m.Host) && hasPath(to.path, m)
}

// A redirectTarget is the target of a redirect, with its placeholders.
type redirectTarget struct{ scheme, host, path, query string }

// splitRedirect splits a target. One without a host stays at that of the request.
func splitRedirect(to string) redirectTarget {
	t := redirectTarget{host: "{host}"}
	to, _, _ = strings.Cut(to, "#")
	if scheme, rest, absolute := strings.Cut(to, "://"); absolute {
		end := strings.IndexAny(rest, "/?")
		if begin := strings.Index(rest, "{path}"); begin >= 0 && (end < 0 || begin < end) {
			end = begin
		}
		if end < 0 {
			end = len(rest)
		}
		t.scheme, t.host, to = scheme, rest[:end], rest[end:]
	}
	t.path, t.query, _ = strings.Cut(strings.Replace(to, "{query}", "?{query}", 1), "?")
	return t
}

// servesScheme reports whether requests to a target reach a route by their scheme.
func (r *routes) servesScheme(to redirectTarget, m Match) bool {
	listener := map[string]string{"http": r.served.HTTP, "https": r.served.HTTPS}
	return to.scheme == "" || listenAddress(listener[to.scheme]) != "" && (m.Scheme == "" || m.Scheme == to.scheme)
}

// hasHost reports whether the host of a target surely matches that of a route.
func hasHost(host, of string) bool {
	if host == "{host}" {
		return true
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return false // it is unknown who listens on that port
	}
	return of != "" && strings.EqualFold(host, of)
}

// hasPath reports whether the path of a target surely matches that of a route.
func hasPath(path string, m Match) bool {
	return path == "{path}" || len(m.Params) == 0 && path == m.Path
}
