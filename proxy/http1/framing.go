package http1

// A FramingKind is how the end of a body is found.
type FramingKind uint8

// The kinds.
const (
	NoBody      FramingKind = iota // there is no body
	FixedLength                    // so many bytes
	Chunked                        // the last chunk ends it
	UntilClose                     // the end of the connection ends it: answers only
)

// Framing is how a body is delimited. Length is the number of bytes if Kind is
// Length. For a message without body whose Content-Length tells what another
// request would have got (HEAD, 304) it is that, and otherwise -1.
type Framing struct {
	Kind   FramingKind
	Length int64
}

// A message is what the framing of its body depends on.
type message struct {
	fields *Fields
	minor  int
	method string // what a response answers
	status int    // of a response; 0 for a request
}

// incomingFraming is the only place that decides where a message ends, for both directions
// (RFC 9112 section 6.3). What two servers could read in two ways is an error.
// The method of a request has no say in it.
func incomingFraming(m message) (Framing, error) {
	const framing = 1<<ContentLength | 1<<TransferEncoding
	if m.fields.present&framing == 0 {
		switch {
		case m.status == 0 || hasNoBody(m.method, m.status):
			return Framing{NoBody, -1}, nil
		default:
			return Framing{UntilClose, -1}, nil
		}
	}
	length, err := contentLength(m.fields)
	if err != nil {
		return Framing{}, err
	}
	chunked, err := isChunked(m.fields, m.minor)
	switch {
	case err != nil:
		return Framing{}, err
	case chunked && length >= 0:
		return Framing{}, ErrLengthAndTransferCoding
	case m.status != 0 && hasNoBody(m.method, m.status):
		if m.status < 200 || m.status == 204 {
			length = -1 // RFC 9110 section 8.6: there must be none
		}
		return Framing{NoBody, length}, nil
	case chunked:
		return Framing{Chunked, -1}, nil
	case length == 0 && m.status == 0:
		return Framing{NoBody, 0}, nil
	}
	return Framing{FixedLength, length}, nil
}

// hasNoBody reports whether a response has no body whatever its fields say.
func hasNoBody(method string, status int) bool {
	return status < 200 || status == 204 || status == 304 || method == "HEAD"
}

// contentLength is the value of Content-Length, -1 if there is none. Two lines, or
// a list, are an error even if all say the same.
func contentLength(f *Fields) (int64, error) {
	value, ok := f.Value(ContentLength)
	switch {
	case !ok:
		return -1, nil
	case f.count(ContentLength) > 1:
		return 0, ErrContentLengthRepeated
	case len(value) == 0 || len(value) > 18: // what 63 bits certainly hold
		return 0, ErrContentLength
	}
	n := int64(0)
	for i := range len(value) {
		c := value[i]
		if c < '0' || c > '9' {
			return 0, ErrContentLength
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

// isChunked reports whether the body is in chunks. No other coding, and no list of
// codings, is known here.
func isChunked(f *Fields, minor int) (bool, error) {
	value, ok := f.Value(TransferEncoding)
	switch {
	case !ok:
		return false, nil
	case minor == 0:
		return false, ErrTransferCodingHTTP10
	case f.count(TransferEncoding) > 1 || !equalFoldLower(value, "chunked"):
		return false, ErrTransferCoding
	}
	return true, nil
}

// persists reports whether the sender of a message keeps the connection open
// after it (RFC 9112 section 9.3).
func persists(f *Fields, minor int) bool {
	if f.present&(1<<Connection) == 0 {
		return minor == 1
	}
	if value, _ := f.Value(Connection); equalFoldLower(value, "keep-alive") && f.count(Connection) == 1 {
		return true // what many servers say that need not
	}
	return !f.hasToken(Connection, "close") && (minor == 1 || f.hasToken(Connection, "keep-alive"))
}

// A recipient is who a body is sent to.
type recipient struct {
	minor  int    // of the version that it speaks
	method string // of its request, if this is a response
	status int    // of the response; 0 for a request
}

// outgoingFraming is the only place that decides how a body is sent on: length is how long
// it is, -1 if unknown. What it had been framed like when it came has no influence.
func outgoingFraming(r recipient, body Framing) Framing {
	switch {
	case r.status != 0 && hasNoBody(r.method, r.status):
		if r.status < 200 || r.status == 204 {
			return Framing{NoBody, -1}
		}
		return Framing{NoBody, body.Length}
	case body.Kind == FixedLength, body.Kind == NoBody:
		return body
	case r.minor == 0:
		return Framing{UntilClose, -1}
	}
	return Framing{Chunked, -1}
}
