package http1

import (
	"cmp"
	"net/netip"
	"strings"
)

// maxMethod is the maximum length of a method.
const maxMethod = 32

// A Request is the head of a request. Its strings refer to the buffer of the connection
// and are valid until the exchange ends.
type Request struct {
	Fields  Fields
	Minor   int     // minor version: 1 or 0
	Framing Framing // of the body
	Close   bool    // the client does not keep the connection open after this exchange

	buf       []byte
	method    span
	target    span   // as received
	authority string // from the target, or from Host
	path      string // of the target
	query     string // what follows the question mark
	hasQuery  bool   // there is a question mark

	parser fieldParser
}

// A span is a range of the buffer.
type span struct{ from, to uint32 }

func (s span) in(buf []byte) string { return bufString(buf, s.from, s.to) }

// Method returns the method.
func (r *Request) Method() string {
	switch m := r.method.in(r.buf); m {
	case "GET": // the most frequent methods do not refer to the buffer
		return "GET"
	case "POST":
		return "POST"
	default:
		return m
	}
}

// Target returns the request target as received.
func (r *Request) Target() string { return r.target.in(r.buf) }

// Host returns the authority of the request: that of the target if it has one,
// otherwise the value of Host. It is valid. It is empty only in HTTP/1.0.
func (r *Request) Host() string { return r.authority }

// Path returns the path of the target as received, or "*". For an absolute target
// without a path it returns "/", or "*" if the method is OPTIONS (RFC 9112 section
// 3.2.4).
func (r *Request) Path() string { return cmp.Or(r.path, "/") }

// RawQuery returns the part of the target after the question mark as received. ok
// reports whether there is a question mark.
func (r *Request) RawQuery() (query string, ok bool) { return r.query, r.hasQuery }

// Proto returns the version of the request.
func (r *Request) Proto() string {
	if r.Minor == 0 {
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}

// Expects reports whether the client waits for 100 Continue before it sends the body.
func (r *Request) Expects() bool {
	return r.Minor == 1 && r.Framing.Kind != NoBody && r.Fields.Has(Expect)
}

// Parse parses a head at the beginning of buf and returns its length. If the head is
// incomplete, n is 0, and Parse must be called again with the same bytes and more.
// After an error it must not be called again. It copies nothing, and allocates only if
// there are more lines than in any earlier request.
func (r *Request) Parse(buf []byte, l *Limits) (n int, err error) {
	r.buf = buf
	if r.parser.atStart() {
		if r.parser.next, err = r.startLine(buf, l); r.parser.next == 0 || err != nil {
			return 0, err
		}
	}
	done, err := r.parser.parse(buf, &r.Fields, fieldLimits{bytes: l.Head, lines: l.Fields})
	if !done {
		return 0, err
	}
	if err := r.validate(); err != nil {
		return 0, err
	}
	return r.parser.next, nil
}

// startLine parses the request line and returns its length, or 0 if it is incomplete.
func (r *Request) startLine(b []byte, l *Limits) (int, error) {
	i := 0
	for i < len(b) && classes[b[i]]&tokenChar != 0 {
		i++
	}
	switch {
	case i > maxMethod:
		return 0, ErrMethod
	case i == len(b):
		return 0, nil
	case i == 0 || b[i] != ' ':
		return 0, ErrMethod
	}
	r.method = span{0, uint32(i)}
	from := i + 1
	i = from
	for i < len(b) && classes[b[i]]&targetChar != 0 {
		i++
	}
	switch {
	case i-from > l.Target:
		return 0, ErrTargetTooLong
	case i == len(b):
		return 0, nil
	case i == from || b[i] != ' ':
		return 0, ErrTarget
	}
	r.target = span{uint32(from), uint32(i)}
	return r.version(b, i+1)
}

// version parses the part of the request line after the target. It returns the length
// of the whole line.
func (r *Request) version(b []byte, from int) (int, error) {
	const like, usual = "HTTP/1.x", "HTTP/1.1\r\n"
	rest := b[from:]
	if len(rest) >= len(usual) && string(rest[:len(usual)]) == usual {
		r.Minor = 1
		return from + len(usual), nil
	}
	switch alike := countLike(rest, like); {
	case alike == len(rest):
		return 0, nil
	case alike == len("HTTP/") && '0' <= rest[alike] && rest[alike] <= '9':
		return 0, ErrMajorVersion
	case alike < len(like), rest[alike] != '\r' && rest[alike] != '\n':
		return 0, ErrVersion
	}
	n, err := lineEnd(rest, len(like), fieldLimits{})
	if n == 0 {
		return 0, err
	}
	r.Minor = int(rest[len(like)-1] - '0')
	return from + n, nil
}

// countLike returns how many bytes at the beginning of b are like those of the pattern, in
// which "x" is the minor version, 0 or 1, and "0" any digit.
func countLike(b []byte, pattern string) int {
	for i := range min(len(b), len(pattern)) {
		alike := b[i] == pattern[i]
		switch pattern[i] {
		case 'x':
			alike = b[i] == '0' || b[i] == '1'
		case '0':
			alike = '0' <= b[i] && b[i] <= '9'
		}
		if !alike {
			return i
		}
	}
	return min(len(b), len(pattern))
}

// validate checks a complete head and determines its target, authority and framing.
func (r *Request) validate() error {
	if err := r.splitTarget(); err != nil {
		return err
	}
	if err := r.checkHost(); err != nil {
		return err
	}
	var err error
	if r.Framing, err = incomingFraming(message{fields: &r.Fields, minor: r.Minor}); err != nil {
		return err
	}
	r.Close = !persists(&r.Fields, r.Minor)
	return r.checkExpect()
}

// checkExpect rejects expectations other than 100-continue. HTTP/1.0 has no
// expectations.
func (r *Request) checkExpect() error {
	value, count := r.Fields.firstOf(Expect)
	if r.Minor == 1 && count > 0 && (count > 1 || !equalFoldLower(value, "100-continue")) {
		return ErrExpectation
	}
	return nil
}

// checkHost validates Host. It becomes the authority, unless the target has one (RFC
// 9112 section 3.2).
func (r *Request) checkHost() error {
	value, count := r.Fields.firstOf(Host)
	switch {
	case count == 0 && r.Minor == 0:
		return nil
	case count == 0:
		return ErrHostMissing
	case !ValidAuthority(value):
		return ErrHost
	case count > 1:
		return ErrHostRepeated
	case r.authority == "":
		r.authority = value
	}
	return nil
}

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
	scheme, rest, _ := strings.Cut(raw, "://")
	if !equalFoldLower(scheme, "http") && !equalFoldLower(scheme, "https") {
		return ErrTarget
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if r.authority = rest[:end]; !ValidAuthority(r.authority) {
		return ErrTarget
	}
	r.path, r.query, r.hasQuery = strings.Cut(rest[end:], "?")
	if end == len(rest) && r.Method() == "OPTIONS" {
		r.path = "*"
	}
	return nil
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
	return host > 0 && ValidPort(b[host:])
}

// validLiteral reports whether b is an IPv6 address in brackets with an optional port.
func validLiteral(b string) bool {
	literal, port, closed := strings.Cut(b[1:], "]")
	address, err := netip.ParseAddr(literal)
	return closed && err == nil && address.Is6() && address.Zone() == "" && ValidPort(port)
}

// isEscape reports whether s begins with a percent sign and two hexadecimal digits.
func isEscape(s string) bool {
	return len(s) >= 3 && s[0] == '%' && isClass(s[1], hexChar) && isClass(s[2], hexChar)
}

// ValidPort reports whether b is empty, or a colon and a port of at most 65535. The
// port may be empty.
func ValidPort(b string) bool {
	port := 0
	for i := 1; i < len(b); i++ {
		digit := b[i] - '0' // above 9 if it is none
		if port = 10*port + int(digit); digit > 9 || port > 65535 || i > len("65535") {
			return false
		}
	}
	return b == "" || b[0] == ':'
}
