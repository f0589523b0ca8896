package route

import (
	"fmt"
	"net/netip"
	"strings"
)

// errHost says that a host can be read in more than one way, or in none.
var errHost = fmt.Errorf("%w: bad host", ErrTarget)

// maxHost is how long a host may be, in bytes: that of a name in DNS, and a port.
const maxHost = 253 + len(".:65535")

// tidyHost is authority in lower case, without port and closing dot. Only names in
// letters, digits, hyphens, dots and underscores, and addresses have a host here:
// what else RFC 3986 lets stand in one (escapes, commas, a name of a user), or a
// second port, servers cut off in one place or another, and find another host.
func tidyHost(authority string) (string, error) {
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

// plainHost is tidyHost in one pass for what most clients send: a name that is in lower case
// already, and maybe a port.
func plainHost(authority string) (host string, ok bool) {
	previous := byte('.')
	for i := range min(len(authority), maxHost) {
		c := authority[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.' && previous != '.':
			previous = c
		case c == ':' && previous != '.':
			return authority[:i], len(authority) <= maxHost && isPort(authority[i+1:])
		default:
			return "", false
		}
	}
	return authority, previous != '.' && len(authority) <= maxHost
}

// isPort reports whether s is a number of a port, or nothing, which RFC 3986 allows.
func isPort(s string) bool {
	port := 0
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' || len(s) > len("65535") {
			return false
		}
		port = port*10 + int(c-'0')
	}
	return port <= 65535
}

// isName reports whether s is labels between dots, or an address of IPv4.
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
