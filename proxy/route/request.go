package route

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/weir-proxy/weir/limiter/reuse"
)

// A Request holds the parts of an HTTP request that routing depends on: the request as it
// was sent, the normalized Target (set by Normalize), and the path parameters (set by
// Table.Find). It must not be used concurrently. Reset prepares it for the next request
// and keeps its allocations.
type Request struct {
	RawTarget
	Target
	Message Message

	found  *entry       // nil: none
	values []string     // the values of the parameters of found, in order
	tree   *chi.Context // the memory of a lookup in a prefixGroup; nil before the first
}

// A Message gives access to the header fields, the query and the body of a request.
// Only the parts that patterns have conditions on are read.
type Message interface {
	// Header returns all values of a field; name is in canonical form.
	Header(name string) []string
	// ParsedQuery returns the query parameters, or ErrQuery.
	ParsedQuery() (url.Values, error)
	// HasForm reports whether the body could be read as a form by some server.
	HasForm() bool
}

// Reset clears the request.
func (r *Request) Reset() { *r = Request{values: reuse.Memory(r.values), tree: r.tree} }

// Param returns a decoded path parameter; "" if no entry was found, or if it has no
// such parameter. The rest of the path that * matches is called "*".
func (r *Request) Param(name string) string {
	if r.found == nil {
		return ""
	}
	i := slices.Index(r.found.params, name)
	if i < 0 || i >= len(r.values) {
		return ""
	}
	text, _ := url.PathUnescape(r.values[i]) // "" if it has none
	return text
}

// Without passes the parts of the path to add, with * in place of each parameter that hides reports. A parameter fills a
// segment, and no text of another segment is taken for it.
func (r *Request) Without(hides func(name string) bool, add func(part string)) {
	rest := r.Path
	for i := 0; r.found != nil && i < len(r.found.params); i++ {
		before := len(prefixOf(r.Path, r.found.segments[i]+1)) - len(r.Path) + len(rest)
		if before <= 0 || !hides(r.found.params[i]) {
			continue
		}
		add(rest[:before])
		add("*")
		if rest = strings.TrimLeftFunc(rest[before:], func(c rune) bool { return c != '/' }); r.found.params[i] == "*" {
			rest = ""
		}
	}
	add(rest)
}

// Keep copies the method, the version, the host, the path and the path parameters, so that they stay
// valid when the buffers of the request are reused. It clears everything else.
func (r *Request) Keep() {
	r.RawTarget = RawTarget{Method: strings.Clone(r.Method), Proto: strings.Clone(r.Proto)}
	r.Target = Target{Host: strings.Clone(r.Host), Path: strings.Clone(r.Path)} // nothing is forwarded any more
	r.Message = nil
	for i, value := range r.values {
		r.values[i] = strings.Clone(value)
	}
}

// withPath calls find with another method and path, and restores r afterwards.
func (r *Request) withPath(method, path string, find func(*Request) error) error {
	wasMethod, wasPath := r.Method, r.Path
	r.Method, r.Path = method, path
	err := find(r)
	r.Method, r.Path = wasMethod, wasPath
	return err
}

// parse sets the parts of the target (RFC 9112 section 3.2): of the origin form, /path?query; the
// absolute form, http://host/path?query; or the asterisk form. A fragment is refused: some
// servers cut it off and others do not, so they would see different targets. The authority of the
// absolute form takes precedence over Host (section 3.2.2). An HTTP/1.0 request may have
// neither; its host is then the address that the client connected to. Other
// requests without a host are refused, because an upstream would assume its own
// name.
func (t *Target) parse(sent *RawTarget) error {
	s := sent.RequestTarget
	if strings.IndexByte(s, '#') >= 0 {
		return fmt.Errorf("%w: an unescaped #", ErrTarget)
	}
	absolute := s != "" && s[0] != '/' && s != "*"
	if absolute {
		scheme, rest, found := strings.Cut(s, "://")
		if !found {
			return fmt.Errorf("%w: a path begins with a slash", ErrTarget)
		}
		s = strings.TrimLeftFunc(rest, func(r rune) bool { return r != '/' && r != '?' })
		if len(s) == len(rest) {
			return fmt.Errorf("%w: no host", ErrTarget)
		}
		if err := sent.checkScheme(strings.ToLower(scheme)); err != nil {
			return err
		}
		t.Authority = rest[:len(rest)-len(s)]
	}
	t.SentPath, t.RawQuery, _ = strings.Cut(s, "?")
	switch {
	case !absolute || t.SentPath != "":
	case sent.Method == "OPTIONS" && t.RawQuery == "":
		t.SentPath = "*"
	default:
		t.SentPath = "/"
	}
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

// ErrQuery reports an ambiguous query: servers could read different parameters
// from it.
var ErrQuery = errors.New("query not acceptable")

// ParseQuery parses a raw query. It returns ErrQuery if servers could read
// different parameters from it.
func ParseQuery(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: a %% that is not a valid escape, or a semicolon", ErrQuery)
	}
	return query, nil
}

// matchesQuery reports whether the query meets the conditions of b, the branch of e. The
// result is ErrQuery if that is ambiguous: a parameter is repeated, has a confusable name,
// or may come from a form as well.
func (r *Request) matchesQuery(b *branch, e *entry) (bool, error) {
	if len(b.query) == 0 {
		return true, nil
	}
	if !e.IgnoresForms && r.Message.HasForm() {
		return false, fmt.Errorf("%w: the query selects the route, and the body is a form, in which some servers "+
			"look for the parameter too", ErrQuery)
	}
	query, err := r.Message.ParsedQuery()
	if err != nil {
		return false, err
	}
	for name := range query {
		if found := b.names.Confused(nil, name); len(found) > 0 {
			return false, fmt.Errorf("%w: some servers read another parameter as %s", ErrQuery, found[0])
		}
	}
	for _, c := range b.query {
		values := query[c.name]
		if len(values) > 1 {
			return false, fmt.Errorf("%w: a repeated parameter in a condition of a route", ErrQuery)
		}
		if !c.holds(values) {
			return false, nil
		}
	}
	return true, nil
}
