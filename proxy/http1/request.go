package http1

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
	target    span // as received
	authority span // from the target, or from Host
	path      span // including the query
	query     int  // index of the question mark in path, or -1

	stage  parseStage
	parser fieldParser
}

// A span is a range of the buffer.
type span struct{ from, to uint32 }

func (s span) in(buf []byte) string { return bufString(buf, s.from, s.to) }

// A parseStage is the progress of parsing a head.
type parseStage uint8

const (
	atStartLine parseStage = iota
	atFields
)

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
func (r *Request) Host() string { return r.authority.in(r.buf) }

// Path returns the path of the target as received, or "*". For an absolute target
// without a path it returns "/", or "*" if the method is OPTIONS (RFC 9112 section
// 3.2.4).
func (r *Request) Path() string {
	end := r.path.to
	if r.query >= 0 {
		end = r.path.from + uint32(r.query)
	}
	switch {
	case end > r.path.from:
		return bufString(r.buf, r.path.from, end)
	case r.query < 0 && r.Method() == "OPTIONS":
		return "*"
	}
	return "/"
}

// RawQuery returns the part of the target after the question mark as received. ok
// reports whether there is a question mark.
func (r *Request) RawQuery() (query string, ok bool) {
	if r.query < 0 {
		return "", false
	}
	return bufString(r.buf, r.path.from+uint32(r.query)+1, r.path.to), true
}

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
	if r.stage == atStartLine {
		if n, err = r.startLine(buf, l); n == 0 || err != nil {
			return 0, err
		}
		r.parser.next, r.stage = n, atFields
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
	const version, usual = "HTTP/1.", "HTTP/1.1\r\n"
	rest := b[from:]
	if len(rest) >= len(usual) && string(rest[:len(usual)]) == usual {
		r.Minor = 1
		return from + len(usual), nil
	}
	for i := range min(len(rest), len(version)) {
		if rest[i] == version[i] {
			continue
		}
		if i == len("HTTP/") && rest[i] >= '0' && rest[i] <= '9' {
			return 0, ErrMajorVersion
		}
		return 0, ErrVersion
	}
	if len(rest) <= len(version) {
		return 0, nil
	}
	minor := rest[len(version)]
	if minor != '0' && minor != '1' {
		return 0, ErrVersion
	}
	end := len(version) + 1
	if end == len(rest) {
		return 0, nil
	}
	if rest[end] != '\r' && rest[end] != '\n' {
		return 0, ErrVersion
	}
	n, err := lineEnd(rest, end, fieldLimits{})
	if n == 0 || err != nil {
		return 0, err
	}
	r.Minor = int(minor - '0')
	return from + n, nil
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
	if r.Minor == 0 || !r.Fields.Has(Expect) {
		return nil
	}
	if value, count := r.Fields.firstOf(Expect); count > 1 || !equalFoldLower(value, "100-continue") {
		return ErrExpectation
	}
	return nil
}

// checkHost validates Host. It becomes the authority, unless the target has one (RFC
// 9112 section 3.2).
func (r *Request) checkHost() error {
	if r.Fields.present&(1<<Host) == 0 {
		if r.Minor == 0 {
			return nil
		}
		return ErrHostMissing
	}
	given := false
	for i := range r.Fields.lines {
		l := &r.Fields.lines[i]
		if l.id != Host {
			continue
		}
		if given {
			return ErrHostRepeated
		}
		given = true
		if !validAuthority(r.Fields.value(l)) {
			return ErrHost
		}
		if r.authority.to == 0 {
			r.authority = span{l.value, l.valueEnd}
		}
	}
	return nil
}
