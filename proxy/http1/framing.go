package http1

// A FramingKind is the way in which the end of a body is found (RFC 9112 section 6.3).
type FramingKind uint8

// The kinds of framing.
const (
	NoBody      FramingKind = iota // the message has no body
	FixedLength                    // Content-Length
	Chunked                        // Transfer-Encoding: chunked
	UntilClose                     // the end of the connection; only for responses
)

// Framing describes how a body is delimited. Length is the number of bytes if Kind is
// FixedLength. If Kind is NoBody, it is the value of Content-Length of a response to
// HEAD or with status 304, and -1 otherwise. Both describe the body of another
// response.
type Framing struct {
	Kind   FramingKind
	Length int64
}

// A message contains what determines the framing of a received message.
type message struct {
	fields *Fields
	minor  int
	method string // of the request, if this is a response
	status int    // of a response; 0 for a request
}

// incomingFraming determines the framing of a received message (RFC 9112 section 6.3).
// It is the only place that does so, for requests and responses. Everything that two
// servers could interpret differently is an error. The method of a request has no
// influence.
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
	length, err := contentLength(m)
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
			length = -1 // must not be present (RFC 9110 section 8.6)
		}
		return Framing{NoBody, length}, nil
	case chunked:
		return Framing{Chunked, -1}, nil
	case length == 0 && m.status == 0:
		return Framing{NoBody, 0}, nil
	}
	return Framing{FixedLength, length}, nil
}

// hasNoBody reports whether a response has no body, whatever its fields are.
func hasNoBody(method string, status int) bool {
	return status < 200 || status == 204 || status == 304 || method == "HEAD"
}

// contentLength returns the value of Content-Length, or -1 if there is none. Several
// lines are an error, except in a response if their values are equal. A list is an error.
func contentLength(m message) (int64, error) {
	value, count := m.fields.firstOf(ContentLength)
	switch {
	case count == 0:
		return -1, nil
	case count > 1 && (m.status == 0 || !m.fields.allEqual(ContentLength, value)):
		return 0, ErrContentLengthRepeated
	case len(value) == 0 || len(value) > 18: // 18 digits always fit into 63 bits
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

// isChunked reports whether the transfer coding is chunked. Any other coding and any
// list of codings is an error.
func isChunked(f *Fields, minor int) (bool, error) {
	value, count := f.firstOf(TransferEncoding)
	switch {
	case count == 0:
		return false, nil
	case minor == 0:
		return false, ErrTransferCodingHTTP10
	case count > 1 || !equalFoldLower(value, "chunked"):
		return false, ErrTransferCoding
	}
	return true, nil
}

// persists reports whether the sender of a message keeps the connection open after it
// (RFC 9112 section 9.3).
func persists(f *Fields, minor int) bool {
	return f.options&optionClose == 0 && (minor == 1 || f.options&optionKeepAlive != 0)
}

// A recipient contains what determines the framing of a message to be sent.
type recipient struct {
	minor  int    // minor HTTP version of the recipient
	method string // of the recipient's request, if this is a response
	status int    // of the response; 0 for a request
}

// outgoingFraming determines the framing of a message to be sent. It is the only place
// that does so. Only the length of the body matters, not the framing with which it was
// received.
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
