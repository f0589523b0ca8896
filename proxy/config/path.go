package config

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

var (
	// parameter is the name of a {parameter}.
	parameter = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// letter is one character of a path, percent-encoded or not.
	letter = regexp.MustCompile(`%[0-9A-Fa-f]{2}|(?s:.)`)
	// bare is what stands in a path without percent-encoding.
	bare = regexp.MustCompile(`^[A-Za-z0-9_.~!$&'()+,;=:@-]$`)
	// never is what no request that is let in has in its path, and what the
	// router would take for something else.
	never = regexp.MustCompile(`(?i)%(2F|5C|2A|7F|[01][0-9A-F])|[\\\x00-\x1f\x7f]|%(?:[^0-9A-F]|[0-9A-F][^0-9A-F]|[0-9A-F]?$)`)
)

// A pattern is a path as the router takes it.
type pattern struct {
	text   string   // every regexp anchored at both ends
	params []string // the names, in order; "*" is what /* stands for
	shape  string   // text without the names: equal for patterns that match alike
}

// A fault is what is wrong with a text and what to write instead; the zero
// fault is none.
type fault struct{ what, instead string }

// parsePath reads a path of segments: text, {name} and {name:regexp}, each a
// whole segment, and * as the last. The router panics on whatever is let
// through wrongly here.
func parsePath(text string) (pattern, fault) {
	var p pattern
	if !strings.HasPrefix(text, "/") {
		return p, fault{"does not begin with /", meantPath(text)}
	}
	segments, f := split(text[1:])
	if f != (fault{}) {
		return p, f
	}
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == "*" && last:
			p.params = append(p.params, s)
			p.append(s, s)
		case s == "" && last:
			p.append(s, s)
		case strings.HasPrefix(s, "{"):
			if f := p.parameter(s[1 : len(s)-1]); f != (fault{}) {
				return p, f
			}
		default:
			if f := checkSegment(s); f != (fault{}) {
				return p, f
			}
			p.append(canonicalSegment(s), canonicalSegment(s))
		}
	}
	return p, fault{}
}

// meantPath says what to write instead of a path in the notation of something else: a regexp, the parameters of another
// router, or a URL.
func meantPath(text string) string {
	if u, err := url.Parse(text); err == nil && form.IsHost(u.Hostname()) {
		return "write path: " + cmp.Or(u.Path, "/") + ", and host: " + u.Hostname() + " beside it"
	}
	text = strings.TrimSuffix(strings.TrimLeft(text, "~*=^ "), "$")
	text = oneSegment.ReplaceAllString(text, "{name}")
	segments := strings.Split(strings.TrimPrefix(text, "/"), "/")
	for i, s := range segments {
		m := otherParameter.FindStringSubmatch(s)
		switch {
		case i == len(segments)-1 && rest.MatchString(s):
			segments[i] = "*"
		case m != nil:
			segments[i] = "{" + m[1] + m[2] + "}"
		case strings.ContainsAny(s, `[(*+?|\`):
			segments[i] = "{name:" + s + "}"
		}
	}
	path := "/" + strings.Join(segments, "/")
	if _, f := parsePath(path); strings.HasPrefix(path, "//") || f != (fault{}) {
		return "write for example /v1/users, /v1/* or /v1/{" + "name}"
	}
	return "write " + path
}

// Paths in the notation of regexps and of other routers.
var (
	oneSegment     = regexp.MustCompile(`\(?\[\^/\][+*]\)?`)
	otherParameter = regexp.MustCompile(`^:([A-Za-z_]\w*)$|^<(?:\w+:)?([A-Za-z_]\w*)>$`)
	rest           = regexp.MustCompile(`^(\.[*+]|\(\.[*+]\)|\(\?:\.[*+]\))$`)
)

// foreignPath says what to write instead of a valid path that is probably meant in another notation, whose characters are
// matched as they are; "" for other paths.
func foreignPath(text string) string {
	foreign := func(s string) bool { return otherParameter.MatchString(s) || rest.MatchString(s) }
	if !slices.ContainsFunc(strings.Split(text[1:], "/"), foreign) && (strings.Contains(text, "{") || !oneSegment.MatchString(text)) {
		return ""
	}
	return meantPath(text)
}

// append adds a segment.
func (p *pattern) append(text, shape string) {
	p.text += "/" + text
	p.shape += "/" + shape
}

// parameter adds what stands between braces.
func (p *pattern) parameter(inside string) fault {
	name, re, constrained := strings.Cut(inside, ":")
	_, err := regexp.Compile(re)
	switch {
	case !parameter.MatchString(name):
		return fault{form.Quote(name) + " is not a valid name for a parameter", "begin with a letter, followed by letters, digits or _"}
	case slices.Contains(p.params, name):
		return fault{"has two parameters called " + name, "give one of them another name"}
	case constrained && re == "":
		return fault{"the regexp of " + name + " is empty", "write {" + name + "} for any text"}
	case strings.ContainsAny(re, " \t"):
		return fault{"the regexp of " + name + " has whitespace", "leave it out: no path has any"}
	case err != nil:
		return fault{"the regexp of " + name + " is wrong: " + strings.TrimPrefix(err.Error(), "error parsing regexp: "), "see https://golang.org/s/re2syntax"}
	}
	if p.params = append(p.params, name); !constrained {
		p.append("{"+name+"}", "{}")
		return fault{}
	}
	// Without the group, ^a|b$ would match all that begins with a.
	re = "^(?:" + re + ")$"
	p.append("{"+name+":"+re+"}", "{"+re+"}")
	return fault{}
}

// split cuts at each slash that is not inside braces. A segment that begins
// with a brace ends with the brace that closes it.
func split(s string) ([]string, fault) {
	var segments []string
	depth, begin := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '{' && depth == 0 && i != begin, c == '}' && depth == 1 && i+1 < len(s) && s[i+1] != '/':
			return nil, fault{"a parameter is next to other text", "let {" + "name} fill the whole segment between two slashes"}
		case c == '}' && depth == 0:
			return nil, fault{"a brace is closed that was not opened", "write {" + "name}"}
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == '/' && depth == 0:
			segments = append(segments, s[begin:i])
			begin = i + 1
		}
	}
	if depth != 0 {
		return nil, fault{"a brace is not closed", "write {" + "name}; in a regexp every { needs its }"}
	}
	return append(segments, s[begin:]), fault{}
}

// checkSegment says what is wrong with a segment of plain text.
func checkSegment(s string) fault {
	switch {
	case s == "":
		return fault{"has two slashes in a row", "write one: paths are matched in this form"}
	case strings.Contains(s, "*"):
		return fault{"* must be the whole last segment", "end with /*, or write {" + "name} for one segment"}
	case strings.ContainsAny(s, "?#"):
		return fault{"has a query or a fragment", "write the path only"}
	}
	if m := never.FindString(s); m != "" {
		return fault{"no request path contains " + m, "write {" + "name} for the segment, or %25 for a percent sign"}
	}
	if s := canonicalSegment(s); s == "." || s == ".." {
		return fault{"has the segment " + s, "write the resolved path: paths are matched in this form"}
	}
	return fault{}
}

// canonicalSegment writes a segment in the one spelling that requests are matched in: only
// what must be is percent-encoded, in upper case. The semicolon keeps the spelling it has,
// because servers tell the two apart.
func canonicalSegment(s string) string {
	return letter.ReplaceAllStringFunc(s, func(c string) string {
		switch text, _ := url.PathUnescape(c); {
		case bare.MatchString(text) && (text != ";" || c == text):
			return text
		case len(c) == 3 && c[0] == '%':
			return strings.ToUpper(c)
		}
		return url.PathEscape(c)
	})
}

// A FormBesideQuery is the handling of a form in the body of a request on a route that
// reads from the query.
type FormBesideQuery string

// Values of FormBesideQuery.
const (
	RefuseForm FormBesideQuery = "refuse" // 400: some servers read query parameters from it
	IgnoreForm FormBesideQuery = "ignore" // the upstream reads only the query
)

// Besides returns the query parameters of r that a form in the body must not have as well:
// all, except those that an enforced limit counts by from the form.
func (r *Route) Besides() []string {
	if r.FormBesideQuery == IgnoreForm {
		return nil
	}
	var origins, counted []key.Origin
	for _, read := range r.Reads() {
		if read.Mode != Off && read.Purpose != ForBalance {
			origins = append(origins, read.Key.Origins()...)
		}
		if read.Mode == Enforce && read.Purpose == ForKey {
			counted = append(counted, read.Key.Origins()...)
		}
	}
	var names []string
	for _, o := range origins {
		if form, ok := o.Confused(); ok && !o.Source.IsBody() && !slices.Contains(counted, form) {
			names = append(names, o.Name)
		}
	}
	return names
}

// refusesForms returns the routes that refuse forms, but have methods for which forms are
// common.
func (c *Config) refusesForms() []string {
	var names []string
	for _, r := range c.Routes {
		posted := len(r.Match.Methods) == 0 || slices.ContainsFunc([]string{"POST", "PUT", "PATCH"}, func(m string) bool { return slices.Contains(r.Match.Methods, m) })
		if posted && (len(r.Besides()) > 0 || len(r.Match.Query) > 0 && r.FormBesideQuery == RefuseForm) {
			names = append(names, r.Name)
		}
	}
	return names
}
