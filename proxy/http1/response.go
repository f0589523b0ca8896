package http1

// A Response is the head of a response. Its strings refer to the buffer of the
// connection and are valid until Call.Release.
type Response struct {
	Fields  Fields
	Status  int
	Minor   int     // minor version: 1 or 0
	Framing Framing // of the body
	Close   bool    // the sender closes the connection after this response

	stage  parseStage
	parser fieldParser
}

// Parse parses the head of a response to a request with this method. It is used like
// Request.Parse.
func (r *Response) Parse(buf []byte, method string, l *Limits) (n int, err error) {
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
	r.Framing, err = incomingFraming(message{fields: &r.Fields, minor: r.Minor, method: method, status: r.Status})
	if err != nil {
		return 0, err
	}
	r.Close = r.Framing.Kind == UntilClose || !persists(&r.Fields, r.Minor)
	return r.parser.next, nil
}

// Reset prepares r for another head.
func (r *Response) Reset() {
	r.Fields.reset()
	r.Status, r.Minor, r.Framing, r.Close = 0, 0, Framing{}, false
	r.stage, r.parser = atStartLine, fieldParser{}
}

// startLine parses the status line and returns its length, or 0 if it is incomplete.
// The space before an empty reason phrase may be missing, because some servers omit it.
func (r *Response) startLine(b []byte, l *Limits) (int, error) {
	const like, usual = "HTTP/1.x 000", "HTTP/1.1 200 OK\r\n"
	if len(b) >= len(usual) && string(b[:len(usual)]) == usual {
		r.Status, r.Minor = 200, 1
		return len(usual), nil
	}
	for i := range min(len(b), len(like)) {
		c := b[i]
		switch like[i] {
		case 'x':
			if c != '0' && c != '1' {
				return 0, ErrStatusLine
			}
			r.Minor = int(c - '0')
		case '0':
			if c < '0' || c > '9' {
				return 0, ErrStatusLine
			}
		default:
			if c != like[i] {
				return 0, ErrStatusLine
			}
		}
	}
	if len(b) <= len(like) {
		return 0, nil
	}
	r.Status = int(b[9]-'0')*100 + int(b[10]-'0')*10 + int(b[11]-'0')
	if r.Status < 100 || r.Status > 599 {
		return 0, ErrStatusLine
	}
	end := len(like)
	if b[end] == ' ' {
		end += valueLength(b[end:])
	} else if b[end] != '\r' {
		return 0, ErrStatusLine
	}
	switch {
	case end > l.Head:
		return 0, ErrTooLarge
	case end == len(b):
		return 0, nil
	}
	if b[end] != '\r' && b[end] != '\n' {
		return 0, ErrStatusLine
	}
	return lineEnd(b, end)
}
