package http1

import (
	"net/netip"
)

// splitTarget determines the form of the request target and its parts (RFC 9112 section
// 3.2). It decodes nothing, and rejects a target of an unknown form.
func (r *Request) splitTarget() error {
	t := r.target
	raw := r.buf[t.from:t.to]
	switch {
	case string(r.buf[:r.method.to]) == "CONNECT":
		return ErrConnect
	case raw[0] == '/':
		r.path = t
	case string(raw) == "*":
		if string(r.buf[:r.method.to]) != "OPTIONS" {
			return ErrTarget
		}
		r.path = t
	default:
		return r.splitAbsolute(t.in(r.buf))
	}
	r.findQuery()
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
	if !validAuthority(raw[from:end]) {
		return ErrTarget
	}
	at := r.target.from
	r.authority = span{at + uint32(from), at + uint32(end)}
	r.path = span{at + uint32(end), r.target.to}
	r.findQuery()
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

func (r *Request) findQuery() {
	r.query = -1
	for i, c := range r.buf[r.path.from:r.path.to] {
		if c == '?' {
			r.query = i
			return
		}
	}
}

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
