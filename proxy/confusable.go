package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	routing "github.com/weir-proxy/weir/proxy/route"
)

// A fieldNames is names of header fields, under which some server could find another
// field of the request. It is immutable once compiled.
type fieldNames struct {
	folded map[string][]string // canonical names by what servers make of them
	odd    []string            // those of names that have more than letters, digits and hyphens
}

// add takes up names in canonical form.
func (f *fieldNames) add(names ...string) {
	if f.folded == nil {
		f.folded = map[string][]string{}
	}
	for _, name := range names {
		folded := key.FoldHeader(name)
		if slices.Contains(f.folded[folded], name) {
			continue
		}
		f.folded[folded] = append(f.folded[folded], name)
		if !key.IsPlainHeader(name) {
			f.odd = append(f.odd, name)
		}
	}
}

// has reports whether the loosest reader takes a name for one of f; see key.FoldHeader,
// which it has been through.
func (f *fieldNames) has(folded string) bool { return len(f.folded[folded]) > 0 }

// confused yields the names for which a field of x may be taken that is called
// otherwise. The common request, in which all names are plain, costs nothing.
func (f *fieldNames) confused(x *exchange) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, sent := range x.in.odd {
			names := f.folded[key.FoldHeader(sent)]
			if len(names) > 0 && !slices.Contains(names, sent) && !yield(names[0]) {
				return
			}
		}
		for _, name := range f.odd { // which the only plain name of the same folding may be taken for
			plain := http.CanonicalHeaderKey(strings.ReplaceAll(key.FoldHeader(name), "_", "-"))
			if len(x.in.header.Values(plain)) > 0 && !slices.Contains(f.folded[key.FoldHeader(name)], plain) && !yield(name) {
				return
			}
		}
	}
}

// protect lists the fields by whose names no other may go, whatever the route:
// those that Weir sets or believes, those that say how a body is read, and those
// that decide the route.
func (g *generation) protect(routes []*config.Route) {
	for _, name := range []string{
		"Forwarded", "X-Real-Ip", "X-Request-Id", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", g.config.ClientIP.Header,
		"Host", "Connection", "Content-Length", "Transfer-Encoding", "Content-Type", "Content-Encoding", "Authorization", "Cookie",
	} {
		g.fields.add(name)
	}
	for _, name := range g.keyFields {
		g.fields.add(name)
	}
	for _, r := range routes {
		for name := range r.Match.Headers {
			g.fields.add(http.CanonicalHeaderKey(name))
		}
	}
}

// checkConfusable learns which fields of the request may be taken for one that a key,
// a cost or an idempotency key of its route is read from: who reads that refuses it. It is
// errMalformed when a field may be taken for one of which no route allows that, and
// routing.ErrTarget when one that has decided the route is there twice.
func (g *generation) checkConfusable(x *exchange) error {
	for name := range g.fields.confused(x) {
		return fmt.Errorf("%w: some servers read another field as %s", errMalformed, name)
	}
	for _, name := range x.in.odd {
		if strings.HasPrefix(key.FoldHeader(name), "X_FORWARDED_") && !strings.HasPrefix(name, "X-Forwarded-") {
			return fmt.Errorf("%w: some servers read another field as X-Forwarded-*", errMalformed)
		}
	}
	for name := range x.route.fields.confused(x) {
		x.extracted.confused = append(x.extracted.confused, key.Origin{Source: key.Header, Name: name})
	}
	for _, name := range x.route.deciders {
		if len(x.in.header.Values(name)) > 1 {
			return fmt.Errorf("%w: %s selects the route, and is repeated", routing.ErrTarget, name)
		}
	}
	return nil
}

// Confused reports whether a field or parameter may be taken for the one at o, or
// whether a form may have it, of which no key of the route is made.
func (x *exchange) Confused(o key.Origin) bool {
	if o.Source == key.Form {
		return slices.Contains(x.route.besides, o.Name) && x.HasForm()
	}
	return slices.Contains(x.extracted.confused, o)
}

// foldQuery learns which parameters may be taken for others.
func (x *exchange) foldQuery() {
	var found []string
	for name := range x.extracted.query {
		found = x.route.names.Confused(found, name)
	}
	for _, name := range found {
		x.extracted.confused = append(x.extracted.confused, key.Origin{Source: key.Query, Name: name})
	}
}

// deciders are the fields whose values a route asks for.
func deciders(m config.Match) []string {
	var names []string
	for name, value := range m.Headers {
		if value != "*" {
			names = append(names, http.CanonicalHeaderKey(name))
		}
	}
	return names
}
