package route

import (
	"fmt"
	"net/netip"
	"strings"
)

// errHost reports a host that is invalid or ambiguous.
var errHost = fmt.Errorf("%w: bad host", ErrTarget)

// maxHost is the maximum length of a host in bytes: a DNS name and a port.
const maxHost = 253 + len(".:65535")

// normalizeHost returns authority in lower case, without port and trailing dot. It
// accepts names of letters, digits, hyphens, dots and underscores, and addresses.
// Everything else that RFC 3986 allows (escapes, commas, userinfo), and a second port,
// is refused, because servers parse it in different ways and would see another host.
func normalizeHost(authority string) (string, error) {
	if host, ok := plainHost(authority); ok {
		return host, nil
	}
	if len(authority) > maxHost {
		return "", fmt.Errorf("%w: a host that is too long", ErrTarget)
	}
	if strings.HasPrefix(authority, "[") {
		address, rest, closed := strings.Cut(authority[1:], "]")
		a, err := netip.ParseAddr(address)
		if err != nil || !closed || !a.Is6() || a.Zone() != "" || rest != "" && (rest[0] != ':' || !isPort(rest[1:])) {
			return "", errHost
		}
		return "[" + strings.ToLower(address) + "]", nil
	}
	host, port, _ := strings.Cut(authority, ":")
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !isName(host) || !isPort(port) {
		return "", errHost
	}
	return host, nil
}

// plainHost is normalizeHost in one pass for what most clients send: a name that is in lower case
// already, and maybe a port.
func plainHost(authority string) (host string, ok bool) {
	if len(authority) > maxHost {
		return "", false
	}
	for i := range len(authority) {
		c := authority[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case i == 0 || authority[i-1] == '.': // an empty label
			return "", false
		case c == ':':
			return authority[:i], isPort(authority[i+1:])
		case c != '.':
			return "", false
		}
	}
	return authority, authority != "" && authority[len(authority)-1] != '.'
}

// isPort reports whether s is a port number or empty, which RFC 3986 allows.
func isPort(s string) bool {
	if len(s) > len("65535") {
		return false
	}
	port := 0
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return false
		}
		port = port*10 + int(c-'0')
	}
	return port <= 65535
}

// isName reports whether s is a sequence of labels separated by dots, or an
// IPv4 address.
func isName(s string) bool {
	previous := byte('.')
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.' && previous != '.':
		default:
			return false
		}
		previous = c
	}
	return previous != '.'
}
