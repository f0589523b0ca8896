package http1

// maxMethod is how long a method may be.
const maxMethod = 32

// A Request is the head of a request. Its strings point into the buffer of its
// connection and are valid until the exchange ends.
type Request struct {
	Fields  Fields
	Minor   int     // of its version: 1, or 0
	Framing Framing // of its body
	Close   bool    // the client wants the connection to end with this exchange

	buf       []byte
	method    span
	target    span // as it was sent
	authority span // of the target, or of Host
	path      span // of the target, query included
	query     int  // where the question mark is in path; -1 for nowhere

	stage  parseStage
	parser fieldParser
}

// A span is a part of the buffer.
type span struct{ from, to uint32 }

func (s span) in(buf []byte) string { return bufString(buf, s.from, s.to) }

// A parseStage is how far a head has been parsed.
type parseStage uint8

const (
	atStartLine parseStage = iota
	atFields
)

// Method is the method.
func (r *Request) Method() string {
	switch m := r.method.in(r.buf); m {
	case "GET": // most are, and then the string needs no buffer
		return "GET"
	case "POST":
		return "POST"
	default:
		return m
	}
}

// Target is the request target as it was sent.
func (r *Request) Target() string { return r.target.in(r.buf) }

// Host is the authority that was asked for: that of the target if it has one, or
// else of Host. It is valid, and empty only in HTTP/1.0.
func (r *Request) Host() string { return r.authority.in(r.buf) }

// Path is the path of the target as it was sent, or "*". An absolute target
// without a path asks for "/", or in OPTIONS for "*" (RFC 9112 section 3.2.4).
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

// RawQuery is what follows the question mark of the target, byte for byte. asked
// says that there is a question mark.
func (r *Request) RawQuery() (query string, asked bool) {
	if r.query < 0 {
		return "", false
	}
	return bufString(r.buf, r.path.from+uint32(r.query)+1, r.path.to), true
}

// Proto is the version as it was sent.
func (r *Request) Proto() string {
	if r.Minor == 0 {
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}

// Expects reports whether the client waits for 100 Continue before it sends the
// body.
func (r *Request) Expects() bool {
	return r.Minor == 1 && r.Framing.Kind != NoBody && r.Fields.Has(Expect)
}

// Upgrade is the protocol that the client would like to change to, "" if none
// that can be: that takes HTTP/1.1, one protocol, both fields and no body.
func (r *Request) Upgrade() string {
	to, ok := r.Fields.Value(Upgrade)
	if !ok || r.Minor == 0 || r.Framing.Kind != NoBody || !allOf(to, tokenChar) ||
		r.Fields.count(Upgrade) != 1 || !r.Fields.hasToken(Connection, "upgrade") {
		return ""
	}
	return to
}

// Parse takes a head from the beginning of buf. n is its length, 0 if buf does
// not hold all of it: Parse is then called again with more of the same bytes. Any
// error is final. Nothing is copied and nothing allocated, but for more lines
// than any request before had.
func (r *Request) Parse(buf []byte, l *Limits) (n int, err error) {
	r.buf = buf
	if r.stage == atStartLine {
		if n, err = r.startLine(buf, l); n == 0 || err != nil {
			return 0, err
		}
		r.parser.next, r.stage = n, atFields
	}
	done, err := r.parser.parse(buf, &r.Fields, fieldLimits{l.Head, l.Fields})
	if !done {
		return 0, err
	}
	if err := r.validate(); err != nil {
		return 0, err
	}
	return r.parser.next, nil
}

// Reset makes r ready for another head.
func (r *Request) Reset() {
	r.Fields.reset()
	r.Minor, r.Framing, r.Close = 0, Framing{}, false
	r.buf, r.method, r.target, r.authority, r.path, r.query = nil, span{}, span{}, span{}, span{}, 0
	r.stage, r.parser = atStartLine, fieldParser{}
}

// startLine parses the request line and returns its length, 0 if it is not whole.
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

// version parses what follows the target and returns the length of the line.
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
	n, err := lineEnd(rest, end)
	if n == 0 || err != nil {
		return 0, err
	}
	r.Minor = int(minor - '0')
	return from + n, nil
}

// validate looks at a head that is whole.
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

// checkExpect refuses what nobody here can promise. HTTP/1.0 has no expectations.
func (r *Request) checkExpect() error {
	if r.Minor == 0 || !r.Fields.Has(Expect) {
		return nil
	}
	if value, _ := r.Fields.Value(Expect); r.Fields.count(Expect) > 1 || !equalFoldLower(value, "100-continue") {
		return ErrExpectation
	}
	return nil
}

// checkHost checks Host, and takes it for the authority unless the target has one
// (RFC 9112 section 3.2).
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
		if !validAuthority(r.buf[l.value:l.valueEnd]) {
			return ErrHost
		}
		if r.authority.to == 0 {
			r.authority = span{l.value, l.valueEnd}
		}
	}
	return nil
}
