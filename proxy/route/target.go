package route

import (
	"fmt"
	"strings"
)

// A requested is what a request line asks for (RFC 9112 section 3.2).
type requested struct {
	scheme, authority string // of the absolute form; empty otherwise
	path, query       string // as they were sent
}

// parseTarget reads the origin form, /path?query; the absolute form,
// http://host/path?query; and *. A fragment is no part of a target: some servers
// cut there and others do not, so that one request would be two.
func parseTarget(s string) (requested, error) {
	if strings.IndexByte(s, '#') >= 0 {
		return requested{}, fmt.Errorf("%w: a # is not escaped", ErrTarget)
	}
	var t requested
	if s != "" && s[0] != '/' && s != "*" {
		scheme, rest, absolute := strings.Cut(s, "://")
		if !absolute {
			return requested{}, fmt.Errorf("%w: a path begins with a slash", ErrTarget)
		}
		t.scheme = strings.ToLower(scheme)
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		t.authority, s = rest[:end], rest[end:]
		if t.authority == "" {
			return requested{}, fmt.Errorf("%w: no host", ErrTarget)
		}
	}
	t.path, t.query, _ = strings.Cut(s, "?")
	return t, nil
}

// aim takes the target apart. The authority of the absolute form goes before Host
// (RFC 9112 section 3.2.2). A request of HTTP/1.0 may have neither: then it is for
// the address that the client has connected to. No other may: an upstream would
// take its own name for what was asked for.
func (t *Target) aim(sent *Sent) error {
	asked, err := parseTarget(sent.RequestTarget)
	if err != nil {
		return err
	}
	if asked.authority != "" {
		if err := sent.takes(asked.scheme); err != nil {
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

// takes returns ErrTarget for a scheme that is not spoken here. https over a plain
// connection is believed of a trusted proxy, which may have ended TLS; of anybody
// else it must not be (RFC 9110 section 7.4). http over TLS asks for less than there
// is, and is served.
func (sent *Sent) takes(scheme string) error {
	switch {
	case scheme == "http", scheme == "https" && sent.HTTPS:
		return nil
	case scheme == "https":
		return fmt.Errorf("%w: https is not spoken on this connection", ErrTarget)
	}
	return fmt.Errorf("%w: neither http nor https", ErrTarget)
}
