package upstream

import (
	"iter"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
)

// trailerFilter returns a filter for the trailer fields of the request that are
// forwarded. A field must be announced in Trailer (RFC 9110 section 6.5.1), must not be
// named in Connection, and must pass trailerForwardable. trailerFilter must be called
// before the fields of t are stripped.
func trailerFilter(t *Request) func(http1.Field) bool {
	announced, named := t.Fields.Values("Trailer"), t.Fields.Values("Connection")
	return func(f http1.Field) bool {
		name := http.CanonicalHeaderKey(f.Name)
		return trailerForwardable(name, t) && containsToken(announced, f.Name) && !containsToken(named, f.Name)
	}
}

// listElements iterates over the elements of a comma-separated list.
func listElements(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.Trim(name, " \t"); name != "" && !yield(name) {
				return
			}
		}
	}
}

// trailerAllowed reports whether a trailer field may have this name. Fields that
// concern framing, routing, authentication or the processing of the message are not
// allowed (RFC 9110 section 6.5.1).
func trailerAllowed(name string) bool {
	switch name {
	case "Upgrade", "Forwarded", "X-Real-Ip", "Via", "Cookie", "Set-Cookie", "Ratelimit", "Ratelimit-Policy":
		return false
	}
	return httpguts.ValidTrailerHeader(name) && !strings.HasPrefix(name, "X-Forwarded-")
}

// trailerForwardable reports whether a trailer field of the request is forwarded. name
// is in canonical form. It is not forwarded if trailerAllowed excludes it, Weir or the
// operator sets a field with this name, or a decision was based on one.
func trailerForwardable(name string, t *Request) bool {
	bare := http.CanonicalHeaderKey(hyphenated(name)) // see isSpoofed
	return trailerAllowed(bare) && !isReserved(bare, t) && t.Set[name] == nil && (t.Reserved == nil || !t.Reserved(name))
}
