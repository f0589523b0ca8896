package upstream

import (
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A header is that of a request to a target, in the making.
type header interface {
	// AddFields adds all fields.
	AddFields(f *http1.Fields)
	Add(name, value string)
	// AddKnown adds a value that is valid until it returns.
	AddKnown(name http1.Name, value []byte)
}

// writeHeader adds all that is sent to the target but for what says how the message is
// framed. Of what the client sent, it takes out what belongs to its connection
// (hop-by-hop fields) before anything is added: nothing that a client writes into
// Connection can strip what is added here.
func (f *forwarding) writeHeader(to header) {
	t := f.request
	f.writer.to, f.writer.set = to, t.Set
	setForwarded(&f.trusted, t, &f.writer)
	if !t.expectsContinue() {
		t.Fields.DropKnown(http1.Expect) // it means nothing there
	}
	t.Fields.StripHopByHop()
	t.Fields.DropFunc(f.dropsField)
	to.AddFields(t.Fields)
	f.writer.addString(http1.Via, f.via)
	f.writer.to = nil
	if f.maxForwards > 0 && t.Set["Max-Forwards"] == nil {
		to.Add("Max-Forwards", strconv.Itoa(f.maxForwards-1))
	}
	if len(t.Set) > 0 { // to begin with an empty map is not for nothing
		for name, values := range t.Set {
			for _, value := range values {
				to.Add(name, value)
			}
		}
	}
}

// dropsField reports whether a field of the request is not sent on as it came. It is
// spoofed, and quicker for what most fields are called.
func (f *forwarding) dropsField(field http1.Field) bool {
	t := f.request
	if field.ID == http1.MaxForwards && f.maxForwards > 0 {
		return true
	}
	if len(t.Set) == 0 {
		switch field.ID {
		case http1.Forwarded, http1.XForwardedFor, http1.XForwardedHost, http1.XForwardedProto, http1.XRealIP, http1.HTTP2Settings, http1.Proxy:
			return true
		case http1.XRequestID:
			return t.RequestID != ""
		case http1.Other:
			if isHyphenated(field.Name) {
				const own = "X-Forwarded-"
				return !t.TrustedPeer && len(field.Name) >= len(own) && strings.EqualFold(field.Name[:len(own)], own)
			}
		default:
			return false
		}
	}
	return isSpoofed(http.CanonicalHeaderKey(field.Name), t)
}

// firstValue is the first value of a field, or "".
func firstValue(f *http1.Fields, name http1.Name) string {
	value, _ := f.Value(name)
	return value
}

// containsToken reports whether one of the lines has this element.
func containsToken(lines []string, element string) bool {
	return len(lines) > 0 && httpguts.HeaderValuesContainsToken(lines, element)
}

// via is how this process tells of itself to targets.
func (p *Pool) via(t *Request) string {
	if t.Proto == "HTTP/1.1" {
		return p.via11
	}
	return strings.TrimPrefix(t.Proto, "HTTP/") + " " + p.pseudonym
}

// isSpoofed reports whether the client has no right to say the field called name,
// which is in canonical form: where Weir or its operator speaks for it, or where its
// name differs from theirs only by what is neither letter nor digit, since many
// servers make underscores of all that. X-Forwarded-* is a trusted peer's to say.
func isSpoofed(name string, t *Request) bool {
	switch name {
	case "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip": // see setForwarded
		return true
	case "Http2-Settings", // half of an upgrade to h2c
		"Proxy": // CGI makes a variable of it that sends clients elsewhere
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

// isHyphenated reports whether hyphenated leaves name as it is.
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

// hyphenated is name with hyphens for all that is neither letter nor digit.
func hyphenated(name string) string {
	return strings.Map(func(r rune) rune {
		if isAlphanumeric(r) {
			return r
		}
		return '-'
	}, name)
}

// isReserved reports whether Weir, or its operator, speaks for the field called name.
func isReserved(name string, t *Request) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "X-Request-Id", "Via":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || t.Set[name] != nil
}

// maxForwards is how many times a request may still be forwarded, -1 if that is
// not limited: only OPTIONS and TRACE can be (RFC 9110 7.6.2).
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
