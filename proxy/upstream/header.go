package upstream

import (
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A header is the head of a request to a target that is being written.
type header interface {
	// AddFields adds all fields.
	AddFields(f *http1.Fields)
	AddBlock(b http1.FieldBlock)
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
	lines := f.peerLines()
	if lines != nil {
		to.AddBlock(lines.block)
	} else {
		setPeer(&f.trusted, t, &f.writer)
	}
	if lines == nil || lines.host == "" {
		setHost(&f.trusted, t, &f.writer)
	}
	setForwarded(&f.trusted, t, &f.writer)
	t.Fields.StripHopByHop()
	f.stripSpoofed()
	to.AddFields(t.Fields)
	if t.Proto == "HTTP/1.1" && len(t.Set) == 0 {
		to.AddBlock(f.pool.via11Line)
	} else {
		f.writer.addString(http1.Via, f.pool.via(t))
	}
	f.writer.to = nil
	if f.maxForwards > 0 && t.Set["Max-Forwards"] == nil {
		to.Add("Max-Forwards", strconv.Itoa(f.maxForwards-1))
	}
	if len(t.Set) > 0 { // iterating over an empty map has a cost
		for name, values := range t.Set {
			for _, value := range values {
				to.Add(name, value)
			}
		}
	}
}

// stripSpoofed drops the fields of the client's request that are not forwarded. It
// drops those for which isSpoofed is true, but is faster if the operator sets no field.
func (f *forwarding) stripSpoofed() {
	const spoofed http1.NameSet = 1<<http1.Forwarded | 1<<http1.XForwardedFor | 1<<http1.XForwardedHost | 1<<http1.XForwardedProto |
		1<<http1.XRealIP | 1<<http1.HTTP2Settings | 1<<http1.Proxy
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
	if len(t.Set) == 0 {
		t.Fields.DropOther(t.spoofsOther)
		return
	}
	t.Fields.DropFunc(func(field http1.Field) bool { return isSpoofed(http.CanonicalHeaderKey(field.Name), t) })
}

// spoofsOther is isSpoofed for a field that is not well known, if the operator sets no
// field.
func (r *Request) spoofsOther(field http1.Field) bool {
	if isHyphenated(field.Name) {
		const own = "X-Forwarded-"
		return !r.TrustedPeer && len(field.Name) >= len(own) && strings.EqualFold(field.Name[:len(own)], own)
	}
	return isSpoofed(http.CanonicalHeaderKey(field.Name), r)
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
	return strings.TrimPrefix(t.Proto, "HTTP/") + " " + p.pseudonym
}

// isSpoofed reports whether the client must not set this field, because Weir or the
// operator sets it. name is in canonical form. The result is also true for a name that
// differs from such a name only in characters other than letters and digits, since many
// servers turn all of these into underscores. X-Forwarded-* may be set by a trusted
// peer.
func isSpoofed(name string, t *Request) bool {
	switch name {
	case "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip": // see setPeer, setHost and setForwarded
		return true
	case "Http2-Settings", // belongs to an upgrade to h2c
		"Proxy": // CGI servers turn it into the variable HTTP_PROXY ("httpoxy", CVE-2016-5385)
		return true
	case "X-Request-Id":
		return t.RequestID != ""
	}
	if strings.HasPrefix(name, "X-Forwarded-") {
		return !t.TrustedPeer
	}
	if t.Set[name] != nil {
		return true
	}
	if isHyphenated(name) {
		return false
	}
	return isReserved(http.CanonicalHeaderKey(hyphenated(name)), t)
}

// isHyphenated reports whether hyphenated(name) equals name.
func isHyphenated(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '-' && !isAlphanumeric(rune(c)) {
			return false
		}
	}
	return true
}

func isAlphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// hyphenated replaces all characters other than letters and digits with hyphens.
func hyphenated(name string) string {
	return strings.Map(func(r rune) rune {
		if isAlphanumeric(r) {
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
