package upstream

import (
	"iter"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
)

// trailerFilter tells which trailer fields of the request are sent on: not those that were
// not announced, as RFC 9110 6.5.1 allows, whose names are kept for the header (see
// trailerForwardable), or that Connection has named. It is made before the fields of t are
// stripped.
func trailerFilter(t *Request) func(http1.Field) bool {
	announced, named := t.Fields.Values("Trailer"), t.Fields.Values("Connection")
	return func(f http1.Field) bool {
		name := http.CanonicalHeaderKey(f.Name)
		return trailerForwardable(name, t) && containsToken(announced, f.Name) && !containsToken(named, f.Name)
	}
}

// announcedTrailers are the trailer fields that a response announces and that may come.
func announcedTrailers(f *http1.Fields) []string {
	if !f.Has(http1.Trailer) {
		return nil
	}
	var names []string
	named := f.Values("Connection")
	for _, line := range f.Values("Trailer") {
		for name := range listElements(line) {
			if name = http.CanonicalHeaderKey(name); trailerAllowed(name) && !containsToken(named, name) {
				names = append(names, strings.Clone(name))
			}
		}
	}
	return names
}

// listElements are those of a list that is separated by commas.
func listElements(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.Trim(name, " \t"); name != "" && !yield(name) {
				return
			}
		}
	}
}

// trailerAllowed reports whether the field called name may come after a body: not if it
// says how to frame, route or judge a message, or who the client is.
func trailerAllowed(name string) bool {
	switch name {
	case "Upgrade", "Forwarded", "X-Real-Ip", "Via", "Cookie", "Set-Cookie", "Ratelimit", "Ratelimit-Policy":
		return false
	}
	return httpguts.ValidTrailerHeader(name) && !strings.HasPrefix(name, "X-Forwarded-")
}

// trailerForwardable reports whether the trailer field called name, in canonical form, is sent
// to the target: not if trailerAllowed objects, if Weir or its operator speaks for it, or
// if something was decided by it.
func trailerForwardable(name string, t *Request) bool {
	bare := http.CanonicalHeaderKey(hyphenated(name)) // see spoofed
	return trailerAllowed(bare) && !isReserved(bare, t) && t.Set[name] == nil && (t.Reserved == nil || !t.Reserved(name))
}
