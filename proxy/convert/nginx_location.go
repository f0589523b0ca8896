package convert

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/view"
)

// An nginxLocation is a location with the paths that Weir has for it.
type nginxLocation struct {
	*directive
	context  nginxContext
	modifier string
	flags    string       // of its regular expression
	prefix   string       // of its path; for a regular expression, what all paths begin with that match
	paths    []string     // none if Weir has none
	guards   []*directive // that protect it
	lost     notes        // about locations in it, and those without paths that would have come first
}

// nginxLocations returns the locations in a block. One that has protected locations refuses all requests.
func nginxLocations(outer nginxContext, block []*directive) (all []*nginxLocation) {
	for _, d := range find(block, "location") {
		l := &nginxLocation{directive: d, context: outer.enter(d.block), prefix: d.arg(len(d.args) - 1)}
		if len(d.args) > 1 {
			l.modifier = d.args[0]
		}
		l.guards = l.context.guards(d.block)
		for _, inner := range find(d.block, "location") {
			if refuses(inner.block) {
				l.lost = append(l.lost, lostNotes([]*directive{inner})...)
			}
		}
		l.readPaths()
		all = append(all, l)
	}
	for _, l := range all {
		for _, o := range all { // nginx asks expressions in l before o
			if len(l.lost) > 0 && len(o.paths) > 0 && o.isExpression() && o.isBelow(l) {
				o.refuse(l.lost)
			}
		}
	}
	return all
}

// refuse makes a location refuse all that begins with its prefix.
func (l *nginxLocation) refuse(lost notes) {
	l.lost = view.AddNew(l.lost, lost...)
	l.paths = protected(l.prefix)
}

// locations converts the locations of a server, and what is in none of them.
func (c *nginxConfig) locations(context nginxContext, server *directive) {
	all := nginxLocations(context, server.block)
	isRest := func(l *nginxLocation) bool { return l.prefix == "/" && l.modifier != "=" && len(l.paths) > 0 }
	if !slices.ContainsFunc(all, isRest) {
		rest := &directive{name: "location", args: []string{"/"}, line: server.line}
		all = append(all, nginxLocations(context, []*directive{rest})...)
	}
	for _, l := range all {
		use(l.directive)
		isFirst := func(o *nginxLocation) bool { return o.modifier == "^~" && l.isBelow(o) }
		if l.isExpression() && slices.ContainsFunc(all, isFirst) {
			l.paths = nil // nginx does not look at it
		}
		if len(l.paths) == 0 {
			c.withoutPath(l, &all)
		}
	}
	first := map[string]*nginxLocation{} // by path
	for _, l := range all {
		for _, path := range l.paths {
			for _, path := range []string{path, strings.TrimSuffix(path, "*")} {
				if o := first[path]; o == nil || l.comesBefore(o) {
					first[path] = l
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *nginxLocation) int { return b.rank() - a.rank() })
	for _, l := range all {
		l.paths = slices.DeleteFunc(l.paths, func(path string) bool { return first[path] != l })
		if len(l.paths) > 0 {
			c.location(l)
		}
	}
}

// rank is larger for a route that is to be written before others: of two expressions that match
// the first route wins.
func (l *nginxLocation) rank() int {
	if !slices.ContainsFunc(l.paths, func(path string) bool { return strings.Contains(path, "{") }) {
		return 0
	}
	return len(l.prefix)
}

// refusing is the modifier in place of that of a protected location that has no paths.
const refusing = "refusing"

// isExpression reports whether l has a regular expression.
func (l *nginxLocation) isExpression() bool { return l.modifier == "~" || l.modifier == "~*" }

// comesBefore reports whether nginx takes l rather than o for a path of both.
func (l *nginxLocation) comesBefore(o *nginxLocation) bool {
	switch {
	case (l.modifier == "=") != (o.modifier == "="):
		return l.modifier == "="
	case (l.modifier == refusing) != (o.modifier == refusing):
		return l.modifier == refusing
	case l.isExpression() && o.isExpression():
		return false
	case l.isExpression() != o.isExpression():
		return l.isExpression() == (l.modifier != "^~" && o.modifier != "^~")
	}
	return len(l.prefix) >= len(o.prefix)
}

// withoutPath leaves out a location that has no paths. If it is protected, the locations that get
// its requests in Weir refuse theirs.
func (c *nginxConfig) withoutPath(l *nginxLocation, all *[]*nginxLocation) {
	if strings.HasPrefix(l.prefix, "@") {
		l.useAll()
		c.note(l.line, l.String()+" is not carried over: nginx comes to it by itself only",
			"write what it does in the routes that come to it")
		return
	}
	c.note(l.line, l.String()+" and all in it is not carried over: Weir has no such path; "+
		"its requests go to other routes, with their limits", "write a route with its paths")
	guards := slices.Concat(l.guards, find(l.block, "return"))
	guards = slices.DeleteFunc(guards, func(d *directive) bool { return d.name == "return" && d.status() < 400 })
	l.useAll()
	lost := slices.Concat(l.lost, lostNotes(guards))
	if len(lost) == 0 {
		return
	}
	for _, o := range *all {
		// Weir's route for an expression in any case is less specific than those around it.
		around := l.flags != "" && len(o.prefix) > 1 && l.isBelow(&nginxLocation{prefix: o.prefix, flags: l.flags})
		isLonger := func(n *nginxLocation) bool { return len(n.paths) == 0 && !n.isExpression() && n.isBelow(o) }
		isFirst := o.modifier == "=" ||
			o.modifier == "^~" && l.isExpression() && !slices.ContainsFunc(*all, isLonger)
		if len(o.paths) > 0 && !isFirst && (around || o.isBelow(l)) {
			o.refuse(lost)
		}
	}
	if l.prefix == "/" {
		return
	}
	*all = append(*all, &nginxLocation{
		directive: l.directive, context: l.context, modifier: refusing, prefix: l.prefix,
		paths: beginning(l.prefix, l.flags), lost: lost,
	})
}

// location writes the routes of a location: one for each host and path.
func (c *nginxConfig) location(l *nginxLocation) {
	to := c.destination(l)
	var limits []string
	if to.isReturn {
		l.guards = find(l.guards, "if")
	} else {
		limits = c.limitsOf(l.context)
	}
	guard := c.guard(l)
	fields, notes := c.routeFields(to, guard.answer), slices.Concat(guard.notes, to.notes)
	fields.set("lists", texts(guard.lists))
	fields.set("limits", texts(limits))
	switch status := l.context.status(); {
	case len(limits) == 0 || status == "429":
	case status != "":
		fields.set("reject", "{status: "+status+"}")
	default:
		c.note(0,
			"nginx refuses with 503 where limit_req_status and limit_conn_status do not say otherwise, Weir with 429",
			"write reject: {status: 503} where clients depend on it")
	}
	for _, host := range l.context.hosts {
		scheme := l.context.scheme
		if len(c.schemes[host]) < 2 {
			scheme = ""
		}
		for i, path := range l.paths {
			r := c.add("route", routeName(host, path), append(nginxMatch(host, scheme, path), fields...))
			r.notes = append(r.notes, guard.lost...)
			if i > 0 || host != l.context.hosts[0] {
				continue
			}
			r.notes = append(r.notes, notes...)
			if l.rank() == 0 && path+"/*" == l.paths[len(l.paths)-1] {
				r.notes.add(l.line, l.String()+" also takes what only begins with it, as "+path+"x",
					"if that is meant, write a route for it")
			}
		}
	}
}

// nginxMatch returns the match of a route.
func nginxMatch(host, scheme, path string) mapping {
	var match mapping
	match.set("host", text(host))
	match.set("scheme", scheme)
	match.set("path", text(path))
	return mapping{{"match", match.flow()}}
}

// routeName returns a name for the route of a host and path.
func routeName(host, path string) string {
	path = strings.TrimSuffix(strings.TrimSuffix(path, "*"), "/")
	if host == "" && path == "" {
		return "all"
	}
	return strings.Replace(host, "*", "any", 1) + path
}

// status returns the status of refusals, "" for that of nginx, 503.
func (c nginxContext) status() string {
	d := c.last("limit_req_status")
	if d == nil || len(c.directives["limit_req"]) == 0 {
		d = c.last("limit_conn_status")
	}
	if n, err := strconv.Atoi(d.arg(0)); err != nil || n < 400 || n > 599 {
		return ""
	}
	use(d)
	return d.arg(0)
}

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
			l.prefix = cmp.Or(l.prefix[:max(0, len(l.prefix)-1)], "/")
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

// plainExpression matches what a regular expression begins with that stands for itself.
var plainExpression = regexp.MustCompile(`^(?:[^.?*+{}()[\]$^\\]|\\[./-])*`)

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
	plain := plainExpression.FindString(expression)
	prefix, rest := strings.ReplaceAll(plain, `\`, ""), expression[len(plain):]
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
