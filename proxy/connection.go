package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// errConnection reports that Connection names a field that is not the
// connection's.
var errConnection = errors.New("Connection not acceptable")

// ownFields are those in which Weir tells upstreams who asks and for what, and
// those that frame a message.
func ownFields() (f fieldNames) {
	f.add("Forwarded", "X-Real-Ip", "X-Request-Id", "Via", "Host", "Content-Length")
	return f
}

// addOrigin adds the fields that a key from o is read from, or read by.
func (f *fieldNames) addOrigin(o key.Origin) {
	switch o.Source {
	case key.Header:
		f.add(o.Name)
	case key.Cookie:
		f.add("Cookie")
	case key.JWT:
		f.add("Authorization")
	case key.JSON, key.Form:
		f.add("Content-Type", "Content-Encoding")
	}
}

// connection returns errConnection when the request lists, as fields of this
// connection only, one that its route reads something from: the upstream would not
// see what was counted (RFC 9110 section 7.6.1). The same goes for fields that are
// Weir's own. Any other is taken out, as it is to be.
func (g *generation) connection(x *exchange) error {
	for _, line := range x.in.header.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.Trim(name, " \t")
			if name == "" || usual(name) {
				continue
			}
			folded := key.FoldHeader(name)
			if x.route.reads.has(folded) || g.own.has(folded) || strings.HasPrefix(folded, "X_FORWARDED_") {
				return fmt.Errorf("%w: it names %s, which is not a hop-by-hop field", errConnection, http.CanonicalHeaderKey(name))
			}
		}
	}
	return nil
}

// usual reports whether Connection may always say name.
func usual(name string) bool {
	for _, known := range []string{"keep-alive", "close", "upgrade", "te", "http2-settings"} {
		if strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}

// reserved returns what reports whether a trailer field may be taken for one of the
// header that r reads or sets, or that is protected on all routes. Some frameworks
// merge trailers into the header, where nobody would count them any more. What it
// returns is used when g is complete.
func (g *generation) reserved(r *route) func(name string) bool {
	var set fieldNames
	set.add(slices.Collect(maps.Keys(r.rewrite.set))...)
	return func(name string) bool {
		folded := key.FoldHeader(name)
		return r.reads.has(folded) || set.has(folded) || g.fields.has(folded)
	}
}
