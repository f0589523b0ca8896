package route

import (
	"errors"
	"fmt"
	"strings"
)

// ErrTarget says that a request's target can be read in more than one way, or
// in none.
var ErrTarget = errors.New("target not acceptable")

// ErrTunnel says that a request is for a tunnel, which there is none of.
var ErrTunnel = errors.New("CONNECT is not served")

// ErrTargetTooLong says that a target is longer than any that is meant.
var ErrTargetTooLong = errors.New("target too long")

// maxTarget is how long a target may be, in bytes; RFC 9112
// section 3 wants 8000 at least.
const maxTarget = 16 << 10

// A Sent is what a request says of where it goes, as it was sent.
type Sent struct {
	Method        string
	Proto         string // "HTTP/1.1"
	RequestTarget string // of the request line; over HTTP/2 :path
	HostField     string // Host, or :authority
	Local         string // where the client has connected to, of a request without a host
	HTTPS         bool   // TLS is spoken, or a trusted proxy says that the client does
}

// A Target is where a request goes.
type Target struct {
	Authority string // that of the absolute form, or as it was sent, or the local address
	SentPath  string // as it was sent, escapes and all
	RawQuery  string // as it was sent, after the question mark
	Host      string // in lower case, without port
	Path      string // in the one spelling that is matched and forwarded; "*" for OPTIONS *
}

// Tidy makes the Target of q of what was sent: it takes the target apart and brings the
// host and the path into the one spelling that is matched and forwarded, so that no
// other spelling of a path goes round a limit. The error is ErrTunnel,
// ErrTargetTooLong or ErrTarget; the Target is then as far as Tidy came, for the log.
func (q *Request) Tidy() (err error) {
	q.Target = Target{Authority: q.HostField, SentPath: q.RequestTarget}
	if q.Method == "CONNECT" {
		return ErrTunnel
	}
	if len(q.RequestTarget) > maxTarget {
		return ErrTargetTooLong
	}
	if err := q.Target.aim(&q.Sent); err != nil {
		return err
	}
	if q.Host, err = tidyHost(q.Authority); err != nil {
		return err
	}
	if q.SentPath == "*" && q.Method == "OPTIONS" {
		q.Path = q.SentPath
		return nil
	}
	q.Path, err = tidyPath(q.SentPath)
	return err
}

// tidyPath brings an escaped path into one spelling (RFC 3986 section 6.2.2):
// what need not be escaped is not, what must be is in upper case, dot segments
// are resolved, and doubled slashes are one. A path that servers read in
// different ways has no such spelling and is an error: a backslash, a control
// character, a bad escape, a dot segment beside an escaped slash. That slash stays
// escaped; Find lets it in only where a pattern keeps it.
func tidyPath(s string) (string, error) {
	if s == "" || s[0] != '/' {
		return "", fmt.Errorf("%w: a path begins with a slash", ErrTarget)
	}
	if isTidy(s) {
		return s, nil
	}
	spelled, err := respell(s)
	if err != nil {
		return "", err
	}
	if strings.Contains(spelled, slash) && dotted(spelled) {
		return "", fmt.Errorf("%w: a dot segment beside a slash that is escaped", ErrTarget)
	}
	return resolve(spelled), nil
}

// slash is a slash that is escaped, in the one spelling.
const slash = "%2F"

// dotted reports whether a segment would be a dot segment if escaped slashes were
// none.
func dotted(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if !strings.Contains(segment, slash) {
			continue
		}
		for piece := range strings.SplitSeq(segment, slash) {
			if piece == "." || piece == ".." {
				return true
			}
		}
	}
	return false
}

// isTidy tells the usual case apart without allocating: plain characters, no
// empty or dot segments.
func isTidy(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !literal(c) && c != '/' && c != ';' {
			return false
		}
		if i > 0 && s[i-1] == '/' && (c == '/' || c == '.') {
			return false
		}
	}
	return true
}

// respell writes each byte of s in its one spelling.
func respell(s string) (string, error) {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		c, escaped := s[i], false
		if c == '%' {
			if i+2 >= len(s) || unhex(s[i+1]) > 15 || unhex(s[i+2]) > 15 {
				return "", fmt.Errorf("%w: a %% in the path is not followed by two hexadecimal digits", ErrTarget)
			}
			c, escaped = unhex(s[i+1])<<4|unhex(s[i+2]), true
			i += 2
		}
		switch {
		case c < ' ' || c == 0x7f || c == '\\':
			return "", fmt.Errorf("%w: a backslash or a control character in the path", ErrTarget)
		case literal(c), c == '/' && !escaped, c == ';' && !escaped:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String(), nil
}

// resolve drops empty segments and "." and goes up for "..", never above the
// root. A slash at the end stays.
func resolve(path string) string {
	segments := strings.Split(path[1:], "/")
	kept := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "":
		case "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, s)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// literal reports whether c stands for itself in a path segment: unreserved,
// or a delimiter that no server reads otherwise when it is not escaped. The
// semicolon is not among them: some servers cut a segment there.
func literal(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-._~!$&'()*+,=:@", c) >= 0
}

// unhex is the value of a hexadecimal digit, more than 15 for anything else.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}
