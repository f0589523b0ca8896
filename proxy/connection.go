package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
)

// errConnection reports that the Connection field names a field that must not be removed.
var errConnection = errors.New("Connection field not acceptable")

// checkConnection returns errConnection if the Connection field of the request names a field that its
// route reads: the upstream would not receive what was counted (RFC 9110 section 7.6.1). Other
// fields that are named are removed, as the RFC demands, before Weir sets its own.
func (g *generation) checkConnection(x *exchange) error {
	if f, ok := x.in.header.(*http1.Fields); ok && !f.Has(http1.Connection) { // as most; this is cheaper than a lookup by name
		return nil
	}
	return g.checkConnectionOptions(x)
}

func (g *generation) checkConnectionOptions(x *exchange) error {
	for _, line := range x.in.header.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.Trim(name, " \t")
			if name == "" || isConnectionOption(name) {
				continue
			}
			folded := key.FoldHeader(name)
			if x.route.readFields.has(folded) || g.clientFields.has(folded) {
				return fmt.Errorf("%w: it names %s, which is not a hop-by-hop field", errConnection, http.CanonicalHeaderKey(name))
			}
		}
	}
	return nil
}

// isConnectionOption reports whether name is an option that Connection may always have.
func isConnectionOption(name string) bool {
	for _, known := range []string{"keep-alive", "close", "upgrade", "te", "http2-settings"} {
		if strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}

// reservedTrailers returns a function that reports whether a trailer field may be taken for a header field
// that r reads or sets, or that is protected on all routes. Some frameworks merge trailers into the
// header, where they would bypass the limits. The function must not be called before g is complete.
func (g *generation) reservedTrailers(r *route) func(name string) bool {
	var set fieldNames
	set.add(slices.Collect(maps.Keys(r.rewrite.set))...)
	return func(name string) bool {
		folded := key.FoldHeader(name)
		return r.readFields.has(folded) || set.has(folded) || g.protectedFields.has(folded)
	}
}
