package upstream

import (
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// words are what a trusted peer says of those before it.
type words struct{ chain, forwarded, host, proto []string }

// said are the words that may be passed on.
func said(f Fields, t *Request) words {
	if !t.TrustedPeer {
		return words{}
	}
	return words{f.Values("X-Forwarded-For"), f.Values("Forwarded"), f.Values("X-Forwarded-Host"), f.Values("X-Forwarded-Proto")}
}

// setForwarded tells the target who is asking. Of a peer that is trusted, what it
// says of those before it is kept and continued; of any other, nothing is.
// X-Real-Ip is always the client as Weir sees it. Values are written into space, and
// are valid until add returns; what is returned is space, which may have grown.
func setForwarded(w *words, t *Request, space []byte, add func(name string, value []byte)) []byte {
	peer := t.Peer.Addr().Unmap().WithZone("")
	client := t.Client.Unmap().WithZone("")
	if !client.IsValid() {
		client = peer
	}
	if client.IsValid() {
		space = client.AppendTo(space[:0])
		add("X-Real-Ip", space)
	}
	if space = appendChain(space[:0], w.chain, peer); len(space) > 0 {
		add("X-Forwarded-For", space)
	}
	// A trusted peer knows the client's own request.
	space = forwardedField{"X-Forwarded-Host", w.host, t.Host}.write(space, add)
	space = forwardedField{"X-Forwarded-Proto", w.proto, t.Scheme}.write(space, add)
	if len(w.forwarded) > 0 {
		space = forwardedField{name: "Forwarded", lines: w.forwarded}.write(space, add)
	}
	if t.Forwarded {
		space = appendElement(space[:0], peer, t)
		add("Forwarded", space)
	}
	if t.RequestID != "" {
		space = append(space[:0], t.RequestID...)
		add("X-Request-Id", space)
	}
	return space
}

// A forwardedField is the lines of one name, or otherwise if there are none.
type forwardedField struct {
	name      string
	lines     []string
	otherwise string
}

// write adds the lines of f, each written into space, and returns that. Space and add
// stay out of f: add would escape together with what it is given.
func (f forwardedField) write(space []byte, add func(name string, value []byte)) []byte {
	if len(f.lines) == 0 {
		space = append(space[:0], f.otherwise...)
		add(f.name, space)
	}
	for _, line := range f.lines {
		space = append(space[:0], line...)
		add(f.name, space)
	}
	return space
}

// appendChain appends the addresses in lines, and addr behind them.
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

// appendElement appends one element of Forwarded (RFC 7239 4): the peer, and what it
// asked for. It does not say who Weir is.
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
	b = append(append(b, ";host="...), value(t.Host)...)
	return append(append(b, ";proto="...), t.Scheme...)
}

// value is s as a token where it is one, else as a quoted string.
func value(s string) string {
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
