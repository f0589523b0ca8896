package http1

import (
	"net/netip"
	"strings"
)

// splitTarget determines the form of the request target and its parts (RFC 9112 section
// 3.2). It decodes nothing, and rejects a target of an unknown form.
func (r *Request) splitTarget() error {
	raw := r.Target()
	switch {
	case string(r.buf[:r.method.to]) == "CONNECT":
		return ErrConnect
	case raw[0] == '/':
		r.path, r.query, r.hasQuery = strings.Cut(raw, "?")
	case raw != "*":
		return r.splitAbsolute(raw)
	case string(r.buf[:r.method.to]) != "OPTIONS":
		return ErrTarget
	default:
		r.path = raw
	}
	return nil
}

// splitAbsolute splits a target in absolute form, http://authority/path?query. Its
// authority takes precedence over Host (RFC 9112 section 3.2.2).
func (r *Request) splitAbsolute(raw string) error {
	from := schemeLength(raw)
	if from == 0 {
		return ErrTarget
	}
	end := from
	for end < len(raw) && raw[end] != '/' && raw[end] != '?' {
		end++
	}
	if r.authority = raw[from:end]; !ValidAuthority(r.authority) {
		return ErrTarget
	}
	r.path, r.query, r.hasQuery = strings.Cut(raw[end:], "?")
	if raw[end:] == "" && r.Method() == "OPTIONS" {
		r.path = "*"
	}
	return nil
}

// schemeLength returns the length of "http://" or "https://" at the beginning of raw,
// or 0.
func schemeLength(raw string) int {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(raw) > len(scheme) && equalFoldLower(raw[:len(scheme)], scheme) {
			return len(scheme)
		}
	}
	return 0
}

// ValidAuthority reports whether b is a host with an optional port and without user
// information (RFC 9110 section 4.2.4). All hosts are validated here, and the validated
// bytes are what is sent to an upstream.
func ValidAuthority(b string) bool {
	if strings.HasPrefix(b, "[") {
		return validLiteral(b)
	}
	host := 0
	for host < len(b) && (isClass(b[host], hostChar) || isEscape(b[host:])) {
		host++
	}
	return host > 0 && validPort(b[host:])
}

// validLiteral reports whether b is an IPv6 address in brackets with an optional port.
func validLiteral(b string) bool {
	literal, port, closed := strings.Cut(b[1:], "]")
	address, err := netip.ParseAddr(literal)
	return closed && err == nil && address.Is6() && address.Zone() == "" && validPort(port)
}

// isEscape reports whether s begins with a percent sign and two hexadecimal digits.
func isEscape(s string) bool {
	return len(s) >= 3 && s[0] == '%' && isClass(s[1], hexChar) && isClass(s[2], hexChar)
}

// validPort reports whether b is empty, or a colon and a port of at most 65535. The
// port may be empty.
func validPort(b string) bool {
	port := 0
	for i := 1; i < len(b); i++ {
		digit := b[i] - '0' // above 9 if it is none
		if port = 10*port + int(digit); digit > 9 || port > 65535 || i > len("65535") {
			return false
		}
	}
	return b == "" || b[0] == ':'
}
