package upstream

import (
	"cmp"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A header is the head of a request to a target that is being written.
type header interface {
	// AddFields adds all fields.
	AddFields(f *http1.Fields)
	Add(name, value string)
	// AddKnown adds a field. value is valid only until it returns.
	AddKnown(name http1.Name, value []byte)
	AddKnownString(name http1.Name, value string)
}

// writeHeader writes all fields of the request except those for the framing. It drops
// the hop-by-hop fields of the client's request before it adds any others. Otherwise a
// client could have added fields removed by naming them in Connection.
func (f *forwarding) writeHeader(to header) {
	t := f.request
	f.writer.to, f.writer.set = to, t.Set
	setPeer(&f.trusted, t, &f.writer)
	setForwarded(&f.trusted, t, &f.writer)
	t.Fields.StripHopByHop()
	f.stripSpoofed()
	to.AddFields(t.Fields)
	f.writer.addString(http1.Via, f.pool.via(t))
	f.writer.to = nil
	if f.maxForwards > 0 && t.Set["Max-Forwards"] == nil {
		to.Add("Max-Forwards", strconv.Itoa(f.maxForwards-1))
	}
	for name, values := range t.Set {
		for _, value := range values {
			to.Add(name, value)
		}
	}
}

// spoofed is the set of fields that a client must not set, because Weir sets them (see
// setPeer and setForwarded), with HTTP2-Settings, which belongs to an upgrade to
// h2c, and Proxy: CGI servers turn it into the variable HTTP_PROXY ("httpoxy",
// CVE-2016-5385).
const spoofed http1.NameSet = 1<<http1.Forwarded | 1<<http1.XForwardedFor | 1<<http1.XForwardedHost |
	1<<http1.XForwardedProto | 1<<http1.XRealIP | 1<<http1.HTTP2Settings | 1<<http1.Proxy

// stripSpoofed drops the fields of the client's request that are not forwarded: those that
// Weir or the operator sets, and those whose names servers may confuse with these.
func (f *forwarding) stripSpoofed() {
	t := f.request
	drop := spoofed
	if t.RequestID != "" {
		drop |= 1 << http1.XRequestID
	}
	if f.maxForwards > 0 {
		drop |= 1 << http1.MaxForwards
	}
	if !t.expectsContinue() {
		drop |= 1 << http1.Expect // HTTP/1.0 has no expectations (RFC 9110 section 10.1.1)
	}
	t.Fields.DropSet(drop)
	for name, values := range t.Set {
		if values != nil {
			t.Fields.Drop(name)
		}
	}
	t.Fields.DropFunc(t.spoofs)
}

// spoofs reports whether a field that is not among spoofed must not be set by the client. The
// result is true for a name that differs from one that Weir or the operator sets only in
// characters other than letters and digits, since many servers turn all of these into
// underscores. X-Forwarded-* may be set by a trusted peer.
func (r *Request) spoofs(field http1.Field) bool {
	const own = "X-Forwarded-"
	name := field.Name
	if field.ID != http1.Other {
		return false // they were dropped before
	}
	if len(name) >= len(own) && strings.EqualFold(name[:len(own)], own) {
		return !r.TrustedPeer
	}
	return http1.UnusualName(name) && isReserved(http.CanonicalHeaderKey(hyphenated(name)), r)
}

// firstValue returns the first value of a field, or "".
func firstValue(f *http1.Fields, name http1.Name) string {
	value, _ := f.Value(name)
	return value
}

// containsToken reports whether one of the lines contains this element in its list.
func containsToken(lines []string, element string) bool {
	return len(lines) > 0 && httpguts.HeaderValuesContainsToken(lines, element)
}

// via returns the element for the Via field that identifies this process.
func (p *Pool) via(t *Request) string {
	if t.Proto == "HTTP/1.1" {
		return p.via11
	}
	return strings.TrimPrefix(t.Proto, "HTTP/") + " " + p.config.Pseudonym
}

// hyphenated replaces all characters other than letters and digits with hyphens.
func hyphenated(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, name)
}

// isReserved reports whether Weir or the operator sets this field.
func isReserved(name string, t *Request) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "X-Request-Id", "Via":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || t.Set[name] != nil
}

// maxForwards returns the value of Max-Forwards, or -1 if the request may be forwarded
// without limit. Only OPTIONS and TRACE can be limited (RFC 9110 section 7.6.2).
func maxForwards(t *Request) int {
	if t.Method != http.MethodOptions && t.Method != http.MethodTrace {
		return -1
	}
	n, err := strconv.ParseUint(firstValue(t.Fields, http1.MaxForwards), 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// forwardedFields are the values of X-Forwarded-For, Forwarded, X-Forwarded-Host and
// X-Forwarded-Proto in a request.
type forwardedFields struct{ chain, forwarded, host, proto []string }

// trustedForwarded returns the forwarded fields of a trusted peer.
func trustedForwarded(t *Request) forwardedFields {
	if of := t.Fields.Values; t.TrustedPeer {
		return forwardedFields{of("X-Forwarded-For"), of("Forwarded"), of("X-Forwarded-Host"), of("X-Forwarded-Proto")}
	}
	return forwardedFields{}
}

// setPeer writes X-Real-Ip, X-Forwarded-For and X-Forwarded-Proto. The values of a
// trusted peer are kept and extended; those of any other peer have been dropped.
// X-Real-Ip is always the client address that Weir has determined.
func setPeer(w *forwardedFields, t *Request, to *fieldWriter) {
	peer := t.Peer.Addr().Unmap().WithZone("")
	client := cmp.Or(t.Client.Unmap().WithZone(""), peer)
	if client.IsValid() {
		to.add(http1.XRealIP, client.AppendTo(to.buf[:0]))
	}
	if chain := appendChain(to.buf[:0], w.chain, peer); len(chain) > 0 {
		to.add(http1.XForwardedFor, chain)
	}
	to.addAll(http1.XForwardedProto, w.proto, t.Scheme)
}

// setForwarded writes the other fields that describe the client and its request:
// X-Forwarded-Host, Forwarded and X-Request-Id.
func setForwarded(w *forwardedFields, t *Request, to *fieldWriter) {
	to.addAll(http1.XForwardedHost, w.host, t.Host) // a trusted peer has seen the original request
	to.addAll(http1.Forwarded, w.forwarded)
	if t.Forwarded {
		to.add(http1.Forwarded, appendElement(to.buf[:0], t.Peer.Addr().Unmap().WithZone(""), t))
	}
	if t.RequestID != "" {
		to.addString(http1.XRequestID, t.RequestID)
	}
}

// A fieldWriter adds fields to a header, except those that the operator sets.
type fieldWriter struct {
	buf []byte // buffer for values
	to  header
	set map[string][]string // fields that are set by the operator
}

// add adds a line. value was written into buf, which may have grown.
func (f *fieldWriter) add(name http1.Name, value []byte) {
	f.buf = value
	if !f.isSet(name) {
		f.to.AddKnown(name, value)
	}
}

func (f *fieldWriter) addString(name http1.Name, value string) {
	if !f.isSet(name) {
		f.to.AddKnownString(name, value)
	}
}

// isSet reports whether the operator sets this field.
func (f *fieldWriter) isSet(name http1.Name) bool {
	return len(f.set) > 0 && f.set[name.String()] != nil
}

// addAll adds a line for each value; without any for each of others.
func (f *fieldWriter) addAll(name http1.Name, values []string, others ...string) {
	if len(values) == 0 {
		values = others
	}
	for _, value := range values {
		f.addString(name, value)
	}
}

// appendChain appends the addresses in lines, followed by addr.
func appendChain(b []byte, lines []string, addr netip.Addr) []byte {
	b = append(b, strings.Join(lines, ", ")...)
	if !addr.IsValid() {
		return b
	}
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	return addr.AppendTo(b)
}

// appendElement appends one element of Forwarded (RFC 7239 section 4): the address of
// the peer, and the host and scheme of its request. It does not identify Weir.
func appendElement(b []byte, peer netip.Addr, t *Request) []byte {
	b = append(b, "for="...)
	switch {
	case peer.Is4():
		b = peer.AppendTo(b)
	case peer.IsValid():
		b = append(peer.AppendTo(append(b, `"[`...)), `]"`...)
	default:
		b = append(b, "unknown"...)
	}
	b = append(append(b, ";host="...), tokenOrQuoted(t.Host)...)
	return append(append(b, ";proto="...), t.Scheme...)
}

// tokenOrQuoted returns s if it is a token, otherwise s as a quoted string.
func tokenOrQuoted(s string) string {
	if httpguts.ValidHeaderFieldName(s) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// viaContains reports whether a line of Via names this process.
func viaContains(via []string, pseudonym string) bool {
	for _, line := range via {
		for hop := range strings.SplitSeq(line, ",") {
			if words := strings.Fields(hop); len(words) > 1 && words[1] == pseudonym {
				return true
			}
		}
	}
	return false
}

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

// addTrailer adds the trailer fields of a body that was read to its end, as far as keep selects them.
func addTrailer(to header, b Body, keep func(http1.Field) bool) {
	for f := range b.Trailer().All() {
		if keep(f) {
			to.Add(f.Name, f.Value)
		}
	}
}

// trailerAllowed reports whether a trailer field may have this name. Fields that
// concern framing, routing, authentication or the processing of the message are not
// allowed (RFC 9110 section 6.5.1).
func trailerAllowed(name string) bool {
	return http1.AllowedInTrailer(name) && httpguts.ValidTrailerHeader(name) && !strings.HasPrefix(name, "X-Forwarded-")
}

// trailerForwardable reports whether a trailer field of the request is forwarded. name
// is in canonical form. It is not forwarded if trailerAllowed excludes it, Weir or the
// operator sets a field with this name, or a decision was based on one.
func trailerForwardable(name string, t *Request) bool {
	bare := http.CanonicalHeaderKey(hyphenated(name)) // see spoofs
	return trailerAllowed(bare) && !isReserved(bare, t) && t.Set[name] == nil &&
		(t.Reserved == nil || !t.Reserved(name))
}
