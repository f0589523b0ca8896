package upstream

import (
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
)

// forwardedFields are the values of X-Forwarded-For, Forwarded, X-Forwarded-Host and
// X-Forwarded-Proto in a request.
type forwardedFields struct{ chain, forwarded, host, proto []string }

// trustedForwarded returns the forwarded fields of a trusted peer.
func trustedForwarded(f *http1.Fields) forwardedFields {
	return forwardedFields{f.Values("X-Forwarded-For"), f.Values("Forwarded"), f.Values("X-Forwarded-Host"), f.Values("X-Forwarded-Proto")}
}

// setPeer writes X-Real-Ip, X-Forwarded-For and X-Forwarded-Proto. The values of a
// trusted peer are kept and extended; those of any other peer have been dropped.
// X-Real-Ip is always the client address that Weir has determined.
func setPeer(w *forwardedFields, t *Request, to *fieldWriter) {
	peer := t.Peer.Addr().Unmap().WithZone("")
	client := t.Client.Unmap().WithZone("")
	if !client.IsValid() {
		client = peer
	}
	if client.IsValid() {
		to.add(http1.XRealIP, client.AppendTo(to.buf[:0]))
	}
	if client == peer && len(w.chain) == 0 && client.IsValid() {
		to.add(http1.XForwardedFor, to.buf) // buf still holds the address
	} else if chain := appendChain(to.buf[:0], w.chain, peer); len(chain) > 0 {
		to.add(http1.XForwardedFor, chain)
	}
	to.addAll(http1.XForwardedProto, w.proto)
	if len(w.proto) == 0 {
		to.addString(http1.XForwardedProto, t.Scheme)
	}
}

// setHost writes X-Forwarded-Host.
func setHost(w *forwardedFields, t *Request, to *fieldWriter) {
	to.addAll(http1.XForwardedHost, w.host) // a trusted peer has seen the original request
	if len(w.host) == 0 {
		to.addString(http1.XForwardedHost, t.Host)
	}
}

// setForwarded writes the other fields that describe the client and its request:
// Forwarded and X-Request-Id.
func setForwarded(w *forwardedFields, t *Request, to *fieldWriter) {
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

// addAll adds a line for each value.
func (f *fieldWriter) addAll(name http1.Name, values []string) {
	for _, value := range values {
		f.addString(name, value)
	}
}

// appendChain appends the addresses in lines, followed by addr.
func appendChain(b []byte, lines []string, addr netip.Addr) []byte {
	for i, line := range lines {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, line...)
	}
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
		if !strings.Contains(line, pseudonym) {
			continue
		}
		for hop := range strings.SplitSeq(line, ",") {
			if words := strings.Fields(hop); len(words) > 1 && words[1] == pseudonym {
				return true
			}
		}
	}
	return false
}
