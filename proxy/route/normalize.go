package route

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// ErrTarget reports a request target that is invalid or ambiguous.
var ErrTarget = errors.New("target not acceptable")

// ErrTunnel reports a CONNECT request; tunnels are not supported.
var ErrTunnel = errors.New("CONNECT is not served")

// ErrTargetTooLong reports a target longer than maxTarget.
var ErrTargetTooLong = errors.New("target too long")

// maxTarget is the maximum length of a target in bytes; RFC 9112 section 3
// recommends at least 8000.
const maxTarget = 16 << 10

// RawTarget holds the parts of a request that its target is made of, as they were
// sent.
type RawTarget struct {
	Method        string
	Proto         string // "HTTP/1.1"
	RequestTarget string // from the request line; :path in HTTP/2
	HostField     string // Host, or :authority
	Local         string // the address that the client connected to, for requests without a host
	Scheme        string // http or https; read only if a pattern has one
	HTTPS         bool   // the connection uses TLS, or a trusted proxy reports that the client's does
}

// A Target is the parsed and normalized target of a request.
type Target struct {
	Authority string // from the absolute form, else from Host, else the local address
	SentPath  string // as it was sent, with its escapes
	RawQuery  string // as it was sent, after the question mark
	Host      string // normalized: lower case, without port
	Path      string // normalized: matched, and counted by; "*" for OPTIONS *
	Forwarded string // what upstreams receive: Path, or another spelling of it; see Table.Find
}

// Normalize parses the request target and normalizes its host and path into r.Target, so
// that no other spelling of a path bypasses a limit. The error is ErrTunnel,
// ErrTargetTooLong or ErrTarget; the Target then holds what was parsed before the
// error, for the log.
func (r *Request) Normalize() (err error) {
	r.Target = Target{Authority: r.HostField, SentPath: r.RequestTarget}
	if r.Method == "CONNECT" {
		return ErrTunnel
	}
	if len(r.RequestTarget) > maxTarget {
		return ErrTargetTooLong
	}
	if err := r.Target.parse(&r.RawTarget); err != nil {
		return err
	}
	if r.Host, err = normalizeHost(r.Authority); err != nil {
		return err
	}
	if r.SentPath == "*" && r.Method == "OPTIONS" {
		r.Path = r.SentPath
		return nil
	}
	r.Path, err = normalizePath(r.SentPath)
	return err
}

// normalizePath normalizes an escaped path for matching: escapes that servers read
// like what they stand for are decoded, the others get upper-case digits, dot
// segments are removed, and repeated slashes are merged. A path that servers read in
// different ways is an error: a backslash, a control character, an invalid escape, a
// dot segment next to an escaped slash. An escaped slash stays escaped; Find accepts
// it only if the pattern keeps it.
func normalizePath(s string) (string, error) {
	if s == "" || s[0] != '/' {
		return "", fmt.Errorf("%w: a path begins with a slash", ErrTarget)
	}
	if isNormalized(s) {
		return s, nil
	}
	spelled, err := matchedSpelling.normalize(s)
	if err != nil {
		return "", err
	}
	if strings.Contains(spelled, escapedSlash) && hidesDotSegment(spelled) {
		return "", fmt.Errorf("%w: a dot segment next to an escaped slash", ErrTarget)
	}
	return removeDotSegments(mergeSlashes(spelled)), nil
}

// spell sets the path that upstreams receive. It differs from the path that was matched in the escapes of reserved
// characters, which stay as the client wrote them (RFC 3986 section 6.2.2.2), and in repeated slashes where the
// pattern keeps them. If a server that tells the two apart could find another guarded entry by it, or another key,
// the upstream receives the path that was matched.
func (t *Table[R]) spell(q *Request) {
	if q.Forwarded = q.Path; q.SentPath == q.Path || !strings.HasPrefix(q.SentPath, "/") {
		return
	}
	path, _ := rawSpelling.normalize(q.SentPath) // Normalize has returned the error
	if !q.found.KeepsRepeats {
		path = mergeSlashes(path)
	}
	path = "/" + strings.TrimLeft(removeDotSegments(path), "/")
	again, err := normalizePath(path)
	if err == nil && again == q.Path && !t.differs(q, path) { // it differs if ".." is behind an empty segment
		q.Forwarded = path
	}
}

// differs reports whether a server that decodes no escapes, or merges no slashes, could find another guarded entry
// than that of q by path, or another value of a parameter.
func (t *Table[R]) differs(q *Request, path string) bool {
	found, values := q.found, slices.Clone(q.values)
	defer func() { q.found, q.values = found, append(q.values[:0], values...) }()
	for _, method := range []string{q.Method, effectiveMethod(q.Method)} {
		other, err := t.folded.lookup(q, method, strings.ToLower(trimSlash(path)))
		if err != nil || other != nil && other != found && other.Guarded {
			return true
		}
		other, err = t.lookup(q, method, path)
		if err != nil || other != nil && other != found && other.Guarded {
			return true
		}
		for i := 0; other == found && i < len(values); i++ {
			value, err := matchedSpelling.normalize(strings.TrimLeft(q.values[i], "/")) // * may begin with slashes
			if err != nil || mergeSlashes(value) != values[i] {
				return true
			}
		}
	}
	return false
}

// escapedSlash is the normalized escape of a slash.
const escapedSlash = "%2F"

// hidesDotSegment reports whether path would have a dot segment if its escaped slashes
// were decoded.
func hidesDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		pieces := strings.Split(segment, escapedSlash)
		if len(pieces) > 1 && (slices.Contains(pieces, ".") || slices.Contains(pieces, "..")) {
			return true
		}
	}
	return false
}

// isNormalized detects the common case without allocating: no escapes, no empty
// segments, no dot segments.
func isNormalized(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', c == ';':
		case c == '/' || c == '.':
			if i > 0 && s[i-1] == '/' {
				return false
			}
		case !needsNoEscape(c):
			return false
		}
	}
	return true
}

// A spelling is a way to write the characters of a path.
type spelling uint8

const (
	matchedSpelling spelling = iota // only what needs an escape has one, with upper-case digits
	rawSpelling                     // escapes of reserved characters stay as well
)

// normalize writes the escapes of a path in the spelling s.
func (s spelling) normalize(path string) (string, error) {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(path))
	for i := 0; i < len(path); i++ {
		c, escaped := path[i], false
		if c == '%' {
			var decoded [1]byte
			if n, err := hex.Decode(decoded[:], []byte(path[i+1:min(i+3, len(path))])); n == 0 || err != nil {
				return "", fmt.Errorf("%w: a %% in the path is not followed by two hexadecimal digits", ErrTarget)
			}
			c, escaped = decoded[0], true
			i += 2
		}
		switch {
		case c < ' ' || c == 0x7f || c == '\\':
			return "", fmt.Errorf("%w: a backslash or a control character in the path", ErrTarget)
		case needsNoEscape(c) && (s == matchedSpelling || !escaped || !isReserved(c)), c == '/' &&
			!escaped, c == ';' && !escaped:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String(), nil
}

// mergeSlashes replaces repeated slashes by one.
func mergeSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// removeDotSegments removes "." and ".." (RFC 3986 section 5.2.4), never above the
// root. A trailing slash stays.
func removeDotSegments(path string) string {
	segments := strings.Split(path[1:], "/")
	kept := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".":
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

// needsNoEscape reports whether c may appear unescaped in a path segment: an
// unreserved character, or a delimiter that servers treat alike with and without
// escape. The semicolon is not one of them: some servers cut a segment there.
func needsNoEscape(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-._~", c) >= 0 || isReserved(c)
}

// isReserved reports whether c is a delimiter that needs no escape.
func isReserved(c byte) bool { return strings.IndexByte("!$&'()*+,=:@", c) >= 0 }

// lenientPath returns the path as lenient servers read it: escapes are decoded
// twice, including overlong ones; everything after a # or ? is dropped, and in each
// segment everything after a semicolon and trailing spaces and dots. It returns an
// error if the result is still ambiguous. An escaped slash stays if the pattern
// keeps it.
func lenientPath(path string) (string, error) {
	slashes := strings.Contains(path, escapedSlash)
	path = strings.ReplaceAll(path, escapedSlash, "%25252F") // escaped twice more, to survive the decoding
	for range 2 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	path = decodeOverlong(path)
	if i := strings.IndexAny(path, "#?"); i >= 0 {
		path = path[:i]
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";")
		if trimmed := strings.TrimRight(s, " ."); trimmed != "" {
			s = trimmed
		}
		segments[i] = s
	}
	path = (&url.URL{Path: strings.Join(segments, "/")}).EscapedPath()
	if slashes {
		path = strings.ReplaceAll(path, "%252F", escapedSlash)
	}
	return normalizePath(path)
}

// decodeOverlong replaces overlong encodings of slashes and dots. They are not valid
// UTF-8, but some servers decode them.
func decodeOverlong(path string) string {
	for _, is := range [...][2]string{{"\xc0\xaf", "/"}, {"\xe0\x80\xaf", "/"}, {"\xc0\xae", "."}, {"\xe0\x80\xae", "."}} {
		path = strings.ReplaceAll(path, is[0], is[1])
	}
	return path
}

// isReadAlike reports whether lenient servers read a normalized path as it is: it has no
// escape, no semicolon, and no segment that ends with a dot.
func isReadAlike(path string) bool {
	for i := range len(path) {
		switch path[i] {
		case '%', ';':
			return false
		case '.':
			if i == len(path)-1 || path[i+1] == '/' {
				return false
			}
		}
	}
	return true
}

// checkLenient returns ErrTarget if a lenient server could match the path of q to
// another entry, or read another key from it. It returns the path as such a server
// reads it.
func (t *index) checkLenient(q *Request) (read string, err error) {
	if isReadAlike(q.Path) {
		return q.Path, nil
	}
	path, found := q.Path, q.found
	var keys []string
	for _, name := range found.Keys {
		keys = append(keys, q.Param(name))
	}
	other, err := lenientPath(path)
	if err == nil && other != path {
		q.Path = other
		_ = t.find(q)
		same := q.found == found
		for i, name := range found.Keys {
			same = same && strings.Trim(q.Param(name), " ") == strings.Trim(keys[i], " ")
		}
		if q.found != nil && !same {
			err = errAnotherPath
		}
		q.Path = path
		_ = t.find(q) // restores the parameters
	}
	return other, err
}

// errAnotherPath reports a path that a lenient server could take for the path
// of another route.
var errAnotherPath = fmt.Errorf("%w: some servers read this path as another one", ErrTarget)

// errHost reports a host that is invalid or ambiguous.
var errHost = fmt.Errorf("%w: bad host", ErrTarget)

// maxHost is the maximum length of a host in bytes: a DNS name and a port.
const maxHost = 253 + len(".:65535")

// normalizeHost returns authority in lower case, without port and trailing dot. It
// accepts names of letters, digits, hyphens, dots and underscores, and addresses.
// Everything else that RFC 3986 allows (escapes, commas, userinfo), and a second port,
// is refused, because servers parse it in different ways and would see another host.
func normalizeHost(authority string) (string, error) {
	if len(authority) > maxHost {
		return "", fmt.Errorf("%w: a host that is too long", ErrTarget)
	}
	if strings.HasPrefix(authority, "[") {
		if !http1.ValidAuthority(authority) {
			return "", errHost
		}
		return strings.ToLower(authority[:strings.IndexByte(authority, ']')+1]), nil
	}
	host, _, _ := strings.Cut(authority, ":")
	port := authority[len(host):]
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !isName(host) || !http1.ValidPort(port) {
		return "", errHost
	}
	return host, nil
}

// isName reports whether s is a sequence of labels separated by dots, or an
// IPv4 address.
func isName(s string) bool {
	previous := byte('.')
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' && previous != '.') {
			return false
		}
		previous = c
	}
	return previous != '.'
}
