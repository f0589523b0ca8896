package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	routing "github.com/weir-proxy/weir/proxy/route"
)

// A fieldNames is a set of names of header fields that some servers may confuse with other fields
// of a request. It is immutable once compiled.
type fieldNames struct {
	folded   map[string][]string // canonical names by their folded form, see key.FoldHeader
	notPlain []string            // names that have characters other than letters, digits and hyphens
}

// add adds names in canonical form.
func (f *fieldNames) add(names ...string) {
	if f.folded == nil && len(names) > 0 {
		f.folded = map[string][]string{}
	}
	for _, name := range names {
		folded := key.FoldHeader(name)
		if slices.Contains(f.folded[folded], name) {
			continue
		}
		f.folded[folded] = append(f.folded[folded], name)
		if !key.IsPlainHeader(name) {
			f.notPlain = append(f.notPlain, name)
		}
	}
}

// isPlain reports whether all names of f are plain.
func (f *fieldNames) isPlain() bool { return len(f.notPlain) == 0 }

// has reports whether the most lenient server would take a name for one of f. The name must have
// been folded by key.FoldHeader.
func (f *fieldNames) has(folded string) bool { return len(f.folded[folded]) > 0 }

// confusable returns an iterator over the names of f for which a server may take a field of x that
// has another name. It costs nothing for the usual request, in which all names are plain.
func (f *fieldNames) confusable(x *exchange) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, sent := range x.in.notPlain {
			names := f.folded[key.FoldHeader(sent)]
			if len(names) > 0 && !slices.Contains(names, sent) && !yield(names[0]) {
				return
			}
		}
		for _, name := range f.notPlain { // the plain name with the same folded form may be taken for name
			plain := http.CanonicalHeaderKey(strings.ReplaceAll(key.FoldHeader(name), "_", "-"))
			if len(x.in.header.Values(plain)) > 0 && !slices.Contains(f.folded[key.FoldHeader(name)], plain) && !yield(name) {
				return
			}
		}
	}
}

// errMalformed reports that a field of the request may be taken for one that is protected.
var errMalformed = errors.New("malformed request")

// protectFields sets the fields that must not be confused with others on any route: those that Weir sets
// or trusts, those that determine how a body is read, and those that select the route.
func (g *generation) protectFields(routes []*config.Route) {
	g.protectedFields.add(
		"Forwarded", "X-Real-Ip", "X-Request-Id", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", g.config.ClientIP.Header,
		"Host", "Connection", "Content-Length", "Transfer-Encoding", "Content-Type", "Content-Encoding", "Authorization", "Cookie",
	)
	g.protectedFields.add(g.keyFields...)
	g.protectedFields.add(g.planFields...)
	for _, r := range routes {
		for name := range r.Match.Headers {
			g.protectedFields.add(http.CanonicalHeaderKey(name))
		}
	}
	for _, r := range g.routes {
		r.namesPlain = g.protectedFields.isPlain() && r.keyFields.isPlain() && len(r.matchedFields) == 0
	}
}

// checkConfusable finds the fields of the request that may be taken for a field from which a key, a
// cost or an idempotency key of the route is read; reading one of those fails later. It returns
// errMalformed if a field may be taken for one that is protected on all routes, and
// routing.ErrTarget if a field that selects the route occurs twice.
func (g *generation) checkConfusable(x *exchange) error {
	if x.route.namesPlain && len(x.in.notPlain) == 0 {
		return nil // as most; the rest would find nothing
	}
	for name := range g.protectedFields.confusable(x) {
		return fmt.Errorf("%w: some servers read another field as %s", errMalformed, name)
	}
	for _, name := range x.in.notPlain {
		if strings.HasPrefix(key.FoldHeader(name), "X_FORWARDED_") && !strings.HasPrefix(name, "X-Forwarded-") {
			return fmt.Errorf("%w: some servers read another field as X-Forwarded-*", errMalformed)
		}
	}
	for name := range x.route.keyFields.confusable(x) {
		x.extracted.confusable = append(x.extracted.confusable, key.HeaderField(name))
	}
	for _, name := range x.route.matchedFields {
		if len(x.in.header.Values(name)) > 1 {
			return fmt.Errorf("%w: %s selects the route, and is repeated", routing.ErrTarget, name)
		}
	}
	return nil
}

// Confused reports whether another field or parameter may be taken for the one at o. For a form
// parameter it reports whether the request has a form that may hold the parameter although no key
// of the route is read from forms.
func (x *exchange) Confused(o key.Origin) bool {
	if o.Source == key.Form {
		return slices.Contains(x.route.noFormBeside, o.Name) && x.HasForm()
	}
	return slices.Contains(x.extracted.confusable, o)
}

// findConfusableParams finds the query parameters that may be taken for others.
func (x *exchange) findConfusableParams() {
	var found []string
	for name := range x.extracted.query {
		found = x.route.queryNames.Confused(found, name)
	}
	for _, name := range found {
		x.extracted.confusable = append(x.extracted.confusable, key.Origin{Source: key.Query, Name: name})
	}
}

// matchedFields returns the fields whose values a route matches.
func matchedFields(m config.Match) []string {
	var names []string
	for name, value := range m.Headers {
		if value != "*" {
			names = append(names, http.CanonicalHeaderKey(name))
		}
	}
	return names
}
