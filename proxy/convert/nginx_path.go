package convert

import (
	"regexp"
	"slices"
	"strings"
)

// literalPath matches a path without regular expressions, as a route can have it.
var literalPath = regexp.MustCompile(`^/(?:[A-Za-z0-9_.~@:+-]+/?)*$`)

// isLiteralPath reports whether a route can have a path as it is.
func isLiteralPath(path string) bool {
	isDots := func(segment string) bool { return segment == "." || segment == ".." }
	return literalPath.MatchString(path) && !slices.ContainsFunc(strings.Split(path, "/"), isDots)
}

// readPaths finds the paths of a location. Those of a protected one have all that begins with its
// prefix, as in nginx; those of others the segments below it, which reads better.
func (l *nginxLocation) readPaths() {
	switch {
	case l.isExpression():
		l.prefix = l.readExpression()
	case strings.HasPrefix(l.prefix, "@"):
	case !isLiteralPath(l.prefix):
		for l.prefix = strings.TrimRight(l.prefix, "/"); !isLiteralPath(l.prefix); {
			if l.prefix = l.prefix[:max(0, len(l.prefix)-1)]; l.prefix == "" {
				l.prefix = "/"
			}
		}
	case l.modifier == "=":
		l.paths = []string{l.prefix}
	case len(l.guards)+len(l.lost) > 0:
		l.paths = protected(l.prefix)
	default:
		l.paths = below(l.prefix)
	}
}

// below returns the paths of a prefix of whole segments. Weir answers 400 for a path that an
// upstream may take for one of two routes with limits, with and without a slash at its end: so
// there is a route for each.
func below(prefix string) []string {
	if strings.HasSuffix(prefix, "/") {
		return []string{prefix + "*"}
	}
	return []string{prefix, prefix + "/", prefix + "/*"}
}

// beginning returns the paths of all that begins with prefix. With the flag (?i) they are those of
// its first segment in any case.
func beginning(prefix, flags string) []string {
	at := strings.LastIndexByte(prefix, '/') + 1
	if end := strings.IndexByte(prefix[1:], '/') + 1; flags != "" && end > 0 {
		return []string{"/{rest:" + flags + regexp.QuoteMeta(prefix[1:end]) + "}/*"}
	} else if at == len(prefix) {
		return []string{prefix + "*"}
	}
	segment := prefix[:at] + "{rest:" + flags + regexp.QuoteMeta(prefix[at:])
	if flags != "" {
		return []string{segment + ".*}", segment + ".*}/*"}
	}
	return append(below(prefix), segment+".+}", segment+".+}/*")
}

// readExpression returns what all paths begin with that a regular expression matches. One that is
// a plain path has paths.
func (l *nginxLocation) readExpression() string {
	if l.modifier == "~*" {
		l.flags = "(?i)"
	}
	expression, anchored := strings.CutPrefix(l.prefix, "^")
	if !anchored || !strings.HasPrefix(expression, "/") || hasChoice(expression) {
		return "/"
	}
	var plain strings.Builder
	rest := expression
	for rest != "" && (strings.IndexByte(`.?*+{}()[]$^\`, rest[0]) < 0 || len(rest) > 1 && rest[0] == '\\' &&
		strings.IndexByte(`./-`, rest[1]) >= 0) {
		rest = strings.TrimPrefix(rest, `\`)
		plain.WriteByte(rest[0])
		rest = rest[1:]
	}
	prefix := plain.String()
	if rest != "" && strings.IndexByte("?*{", rest[0]) >= 0 {
		prefix = prefix[:len(prefix)-1]
	}
	switch {
	case !isLiteralPath(prefix):
		return "/"
	case l.flags != "":
	case rest == "$":
		l.paths = []string{prefix}
	case rest == "" && len(l.guards)+len(l.lost) == 0: // nginx takes a protected one before locations below it
		l.paths = below(prefix)
	}
	return prefix
}

// protected returns the paths of all that begins with prefix, and that of the prefix without its
// slash, which nginx redirects.
func protected(prefix string) []string {
	paths := beginning(prefix, "")
	if whole := strings.TrimSuffix(prefix, "/"); whole != prefix && whole != "" {
		return append(paths, whole, prefix)
	}
	return paths
}

// hasChoice reports whether a regular expression is one of several as a whole.
func hasChoice(expression string) bool {
	depth := 0
	for i := 0; i < len(expression); i++ {
		switch expression[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth == 0 {
				return true
			}
		}
	}
	return false
}

// isBelow reports whether all paths of a location begin with the prefix of o.
func (l *nginxLocation) isBelow(o *nginxLocation) bool {
	return strings.HasPrefix(l.prefix, o.prefix) || o.flags != "" && len(l.prefix) >= len(o.prefix) &&
		strings.EqualFold(l.prefix[:len(o.prefix)], o.prefix)
}
