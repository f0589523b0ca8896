package route

import (
	"fmt"
	"net/netip"
	"strconv"
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

// isPort reports whether s is a port number or empty, which RFC 3986 allows.
func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && len(s) <= len("65535")
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
