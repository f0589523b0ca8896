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
// X-Real-Ip is always the client as Weir sees it.
func setForwarded(w *words, t *Request, add func(name, value string)) {
	peer := t.Peer.Addr().Unmap().WithZone("")
	client := t.Client.Unmap().WithZone("")
	if !client.IsValid() {
		client = peer
	}
	if client.IsValid() {
		add("X-Real-Ip", client.String())
	}

	if line := join(w.chain, peer); line != "" {
		add("X-Forwarded-For", line)
	}
	all("X-Forwarded-Host", w.host, add) // a trusted peer knows the client's own request
	if len(w.host) == 0 {
		add("X-Forwarded-Host", t.Host)
	}
	all("X-Forwarded-Proto", w.proto, add)
	if len(w.proto) == 0 {
		add("X-Forwarded-Proto", t.Scheme)
	}
	all("Forwarded", w.forwarded, add)
	if t.Forwarded {
		add("Forwarded", element(peer, t))
	}
	if t.RequestID != "" {
		add("X-Request-Id", t.RequestID)
	}
}

// all adds lines of one name.
func all(name string, values []string, add func(name, value string)) {
	for _, value := range values {
		add(name, value)
	}
}

// join appends addr to the addresses in lines.
func join(lines []string, addr netip.Addr) string {
	if len(lines) == 0 && addr.IsValid() {
		return addr.String()
	}
	line := strings.Join(lines, ", ")
	switch {
	case !addr.IsValid():
		return line
	case line == "":
		return addr.String()
	}
	return line + ", " + addr.String()
}

// element is one element of Forwarded (RFC 7239 4): the peer, and what it asked
// for. It does not say who Weir is.
func element(peer netip.Addr, t *Request) string {
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
