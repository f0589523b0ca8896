package http1

import "net/netip"

// validAuthority reports whether b is a host with an optional port and without user
// information (RFC 9110 section 4.2.4). All hosts are validated here, and the validated
// bytes are what is sent to an upstream.
func validAuthority(b string) bool {
	if len(b) == 0 {
		return false
	}
	if b[0] == '[' {
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
	for end := range len(b) {
		if b[end] != ']' {
			continue
		}
		address, err := netip.ParseAddr(b[1:end])
		return err == nil && address.Is6() && address.Zone() == "" && validPort(b[end+1:])
	}
	return false
}

// isEscape reports whether s begins with a percent sign and two hexadecimal digits.
func isEscape(s string) bool {
	return len(s) >= 3 && s[0] == '%' && isClass(s[1], hexChar) && isClass(s[2], hexChar)
}

// validPort reports whether b is empty, or a colon and a port of at most 65535. The
// port may be empty.
func validPort(b string) bool {
	if len(b) == 0 {
		return true
	}
	if b[0] != ':' || len(b) > len(":65535") {
		return false
	}
	port := 0
	for i := 1; i < len(b); i++ {
		c := b[i]
		if c < '0' || c > '9' {
			return false
		}
		port = port*10 + int(c-'0')
	}
	return port <= 65535
}
