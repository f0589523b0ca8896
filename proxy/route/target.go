package route

import (
	"fmt"
	"strings"
)

// A requestTarget is a parsed request target (RFC 9112 section 3.2).
type requestTarget struct {
	scheme, authority string // set in the absolute form only
	path, query       string // as they were sent
}

// parseTarget parses the origin form, /path?query; the absolute form,
// http://host/path?query; and the asterisk form. A fragment is refused: some
// servers cut it off and others do not, so they would see different targets.
func parseTarget(s string) (requestTarget, error) {
	if strings.IndexByte(s, '#') >= 0 {
		return requestTarget{}, fmt.Errorf("%w: an unescaped #", ErrTarget)
	}
	var t requestTarget
	if s != "" && s[0] != '/' && s != "*" {
		scheme, rest, absolute := strings.Cut(s, "://")
		if !absolute {
			return requestTarget{}, fmt.Errorf("%w: a path begins with a slash", ErrTarget)
		}
		t.scheme = strings.ToLower(scheme)
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		t.authority, s = rest[:end], rest[end:]
		if t.authority == "" {
			return requestTarget{}, fmt.Errorf("%w: no host", ErrTarget)
		}
	}
	t.path, t.query, _ = strings.Cut(s, "?")
	return t, nil
}

// parsePlain parses what most clients send, in one pass: the origin form with a path that is
// normalized already. It reports false for anything else, of which it sets nothing.
func (t *Target) parsePlain(s string) bool {
	if s == "" || s[0] != '/' {
		return false
	}
	n := normalizedLen(s)
	if n == len(s) {
		t.SentPath = s
		return true
	}
	if s[n] != '?' || strings.IndexByte(s[n:], '#') >= 0 {
		return false
	}
	t.SentPath, t.RawQuery = s[:n], s[n+1:]
	return true
}

// parse sets the parts of the target. The authority of the absolute form takes
// precedence over Host (RFC 9112 section 3.2.2). An HTTP/1.0 request may have
// neither; its host is then the address that the client connected to. Other
// requests without a host are refused, because an upstream would assume its own
// name.
func (t *Target) parse(sent *RawTarget) error {
	asked, err := parseTarget(sent.RequestTarget)
	if err != nil {
		return err
	}
	if asked.authority != "" {
		if err := sent.checkScheme(asked.scheme); err != nil {
			return err
		}
		t.Authority = asked.authority
		if asked.path == "" {
			asked.path = "/"
			if sent.Method == "OPTIONS" && asked.query == "" {
				asked.path = "*"
			}
		}
	}
	t.SentPath, t.RawQuery = asked.path, asked.query
	if t.Authority != "" {
		return nil
	}
	if sent.Proto != "HTTP/1.0" {
		return fmt.Errorf("%w: no host", ErrTarget)
	}
	t.Authority = sent.Local
	return nil
}

// checkScheme returns ErrTarget for a scheme that is not served. https on a plain
// connection is accepted from a trusted proxy only, which may have terminated TLS (RFC
// 9110 section 7.4). http on a TLS connection is accepted.
func (r *RawTarget) checkScheme(scheme string) error {
	switch {
	case scheme == "http", scheme == "https" && r.HTTPS:
		return nil
	case scheme == "https":
		return fmt.Errorf("%w: https on a connection without TLS", ErrTarget)
	}
	return fmt.Errorf("%w: neither http nor https", ErrTarget)
}
