package proxy

import (
	"fmt"
	"strings"
)

// A target is what a request line asks for (RFC 9112 section 3.2).
type target struct {
	scheme, authority string // of the absolute form; empty otherwise
	path, query       string // as they were sent
}

// parseTarget reads the origin form, /path?query; the absolute form,
// http://host/path?query; and *. A fragment is no part of a target: some servers
// cut there and others do not, so that one request would be two.
func parseTarget(s string) (target, error) {
	if strings.IndexByte(s, '#') >= 0 {
		return target{}, fmt.Errorf("%w: a # is not escaped", errTarget)
	}
	var t target
	if s != "" && s[0] != '/' && s != "*" {
		scheme, rest, absolute := strings.Cut(s, "://")
		if !absolute {
			return target{}, fmt.Errorf("%w: a path begins with a slash", errTarget)
		}
		t.scheme = strings.ToLower(scheme)
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		t.authority, s = rest[:end], rest[end:]
		if t.authority == "" {
			return target{}, fmt.Errorf("%w: no host", errTarget)
		}
	}
	t.path, t.query, _ = strings.Cut(s, "?")
	return t, nil
}

// aim takes the target apart. The authority of the absolute form goes before Host
// (RFC 9112 section 3.2.2). A request of HTTP/1.0 may have neither: then it is for
// the address that the client has connected to. No other may: an upstream would
// take its own name for what was asked for.
func (x *exchange) aim() error {
	t, err := parseTarget(x.target)
	if err != nil {
		return err
	}
	if t.authority != "" {
		if err := x.takes(t.scheme); err != nil {
			return err
		}
		x.authority = t.authority
		if t.path == "" {
			t.path = "/"
			if x.method == "OPTIONS" && t.query == "" {
				t.path = "*"
			}
		}
	}
	x.target, x.rawQuery = t.path, t.query
	if x.authority != "" {
		return nil
	}
	if x.proto != "HTTP/1.0" {
		return fmt.Errorf("%w: no host", errTarget)
	}
	x.authority = x.local
	return nil
}

// takes returns errTarget for a scheme that is not spoken here. https over a plain
// connection is believed of a trusted proxy, which may have ended TLS; of anybody
// else it must not be (RFC 9110 section 7.4). http over TLS asks for less than there
// is, and is served.
func (x *exchange) takes(scheme string) error {
	switch {
	case scheme == "http", scheme == "https" && (x.scheme == "https" || x.trusted):
		return nil
	case scheme == "https":
		return fmt.Errorf("%w: https is not spoken on this connection", errTarget)
	}
	return fmt.Errorf("%w: neither http nor https", errTarget)
}
