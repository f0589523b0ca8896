package upstream

import (
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// introduce tells the target who is asking. Of a peer that is trusted, what it
// says of those before it is kept and continued; of any other, nothing is.
// X-Real-Ip is always the client as Weir sees it.
func introduce(h, said http.Header, t *Trip) {
	peer := t.Peer.Addr().Unmap().WithZone("")
	client := t.Client.Unmap().WithZone("")
	if !client.IsValid() {
		client = peer
	}
	if client.IsValid() {
		h["X-Real-Ip"] = []string{client.String()}
	} else {
		delete(h, "X-Real-Ip")
	}

	var chain, forwarded []string
	if t.TrustedPeer {
		chain, forwarded = said["X-Forwarded-For"], said["Forwarded"]
	}
	if line := join(chain, peer); line != "" {
		h["X-Forwarded-For"] = []string{line}
	}
	h["X-Forwarded-Host"] = first(said, "X-Forwarded-Host", t.TrustedPeer, t.Host)
	h["X-Forwarded-Proto"] = first(said, "X-Forwarded-Proto", t.TrustedPeer, t.Scheme)
	if t.Forwarded {
		forwarded = append(forwarded[:len(forwarded):len(forwarded)], element(peer, t))
	}
	if len(forwarded) > 0 {
		h["Forwarded"] = forwarded
	}
}

// join appends addr to the addresses in lines.
func join(lines []string, addr netip.Addr) string {
	line := strings.Join(lines, ", ")
	switch {
	case !addr.IsValid():
		return line
	case line == "":
		return addr.String()
	}
	return line + ", " + addr.String()
}

// first is what a trusted peer says of the client's own request, or else what
// Weir knows.
func first(said http.Header, name string, trusted bool, otherwise string) []string {
	if values := said[name]; trusted && len(values) > 0 {
		return values
	}
	return []string{otherwise}
}

// element is one element of Forwarded (RFC 7239 4): the peer, and what it asked
// for. It does not say who Weir is.
func element(peer netip.Addr, t *Trip) string {
	node := "unknown"
	switch {
	case peer.Is4():
		node = peer.String()
	case peer.IsValid():
		node = `"[` + peer.String() + `]"`
	}
	return "for=" + node + ";host=" + value(t.Host) + ";proto=" + t.Scheme
}

// value is s as a token where it is one, else as a quoted string.
func value(s string) string {
	if httpguts.ValidHeaderFieldName(s) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// passed reports whether a line of Via names this process.
func passed(via []string, pseudonym string) bool {
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
