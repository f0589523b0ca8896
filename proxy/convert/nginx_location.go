package convert

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An nginxLocation is a location with the paths that Weir has for it.
type nginxLocation struct {
	*directive
	context  nginxContext
	modifier string
	flags    string       // of its regular expression
	prefix   string       // of its path; for a regular expression, what all paths begin with that match
	around   string       // the prefix of the location around it
	paths    []string     // none if Weir has none
	guards   []*directive // that protect it
	lost     []Note       // about those of locations without paths that would have come first
}

// server converts the locations of a server, if one of them has limits.
func (c *nginxConfig) server(outer nginxContext, server *directive) {
	use(server)
	context := outer.enter(server.block)
	context.scheme = nginxScheme(server)
	context.rewrites = find(server.block, "return", "if", "set")
	if !isLimited(outer, server.block) {
		c.leaveOut(context, server)
		return
	}
	context.hosts = c.hostsOf(server)
	if len(context.hosts) == 0 {
		c.leaveOut(context, server)
		return
	}
	c.locations(context, server)
}

// leaveOut leaves out a server. Requests for a protected one may reach the routes of others, so its hosts, or all if it
// has none that Weir knows, get a route that refuses.
func (c *nginxConfig) leaveOut(context nginxContext, server *directive) {
	guards := context.guards(server.block)
	for _, l := range nginxLocations(context, server.block) {
		guards = append(guards, l.guards...)
	}
	hosts := nginxHosts(server)
	if len(hosts) == 0 {
		hosts = []string{""}
	} else if hosts[0] == "" && len(guards) > 0 {
		hosts = nil // its port tells it from others, which Weir does not have
	}
	server.useAll()
	c.note(server.line, "the server that begins here is left out: it has no limits, or no host that Weir has", "write routes for it if its requests come through Weir, too")
	for _, host := range hosts {
		if len(guards) == 0 || c.schemes[host] != nil {
			continue
		}
		r := c.addRoute(routeName(host, "/*"), append(nginxMatch(host, "", "/*"), field{"respond", "{status: 403}"}))
		r.notes = lostNotes(guards, "write routes for this host, once something else checks its requests")
	}
}

// nginxLocations returns the locations in a block, those in locations too.
func nginxLocations(outer nginxContext, block []*directive) (all []*nginxLocation) {
	for _, d := range find(block, "location") {
		l := &nginxLocation{directive: d, context: outer.enter(d.block), prefix: d.arg(len(d.args) - 1), around: cmp.Or(outer.prefix, "/")}
		if len(d.args) > 1 {
			l.modifier = d.args[0]
		}
		l.guards = l.context.guards(d.block)
		l.readPaths()
		l.context.prefix = l.prefix
		all = append(append(all, l), nginxLocations(l.context, d.block)...)
	}
	return all
}

// locations converts the locations of a server, and what is in none of them.
func (c *nginxConfig) locations(context nginxContext, server *directive) {
	all := nginxLocations(context, server.block)
	if !slices.ContainsFunc(all, func(l *nginxLocation) bool { return l.prefix == "/" && l.modifier != "=" && len(l.paths) > 0 }) {
		rest := &directive{name: "location", args: []string{"/"}, line: server.line}
		all = append(all, nginxLocations(context, []*directive{rest})...)
	}
	for _, l := range all {
		use(l.directive)
		if len(l.paths) == 0 {
			c.withoutPath(l, &all)
		}
	}
	first := map[string]*nginxLocation{} // by path
	for _, l := range all {
		for _, path := range l.paths {
			if o := first[path]; o == nil || l.comesBefore(o) {
				first[path] = l
			}
		}
	}
	for _, l := range all {
		l.paths = slices.DeleteFunc(l.paths, func(path string) bool { return first[path] != l })
		if len(l.paths) > 0 {
			c.location(l)
		}
	}
}

// comesBefore reports whether nginx takes l rather than o for a path of both.
func (l *nginxLocation) comesBefore(o *nginxLocation) bool {
	if exact := l.modifier == "="; exact != (o.modifier == "=") {
		return exact
	}
	return len(l.prefix) > len(o.prefix)
}

// withoutPath leaves out a location that has no paths. If it is protected, the locations that get its requests in Weir
// refuse theirs.
func (c *nginxConfig) withoutPath(l *nginxLocation, all *[]*nginxLocation) {
	if strings.HasPrefix(l.prefix, "@") {
		l.useAll()
		c.note(l.line, l.String()+" is not carried over: nginx comes to it by itself only", "write what it does in the routes that come to it")
		return
	}
	what := " is not carried over: Weir has no such path; its requests go to other routes, with their limits"
	c.note(l.line, l.String()+what, "write a route with its paths")
	guards := slices.Concat(l.guards, find(l.block, "return"))
	guards = slices.DeleteFunc(guards, func(d *directive) bool { return d.name == "return" && d.status() < 400 })
	l.useAll()
	if len(guards) == 0 {
		return
	}
	lost := lostNotes(guards, "write a route for "+l.String()+" that refuses, and in this one upstream in place of respond")
	for _, o := range *all {
		if len(o.paths) > 0 && o.modifier != "=" && o.modifier != "^~" && o.isBelow(l) {
			o.lost = append(o.lost, lost...)
		}
	}
	if l.prefix == "/" {
		return
	}
	refused := &nginxLocation{directive: l.directive, context: l.context, prefix: l.prefix, paths: beginning(l.prefix, l.flags), lost: lost}
	*all = append(*all, refused)
}

// location writes the routes of a location: one for each host and path.
func (c *nginxConfig) location(l *nginxLocation) {
	to := c.destination(l)
	if to.upstream == nil { // nginx answers before it looks at what else protects the location
		l.guards = slices.DeleteFunc(l.guards, func(d *directive) bool { return d.name != "if" })
	}
	guard := c.guard(l, to.restore())
	fields, notes := to.fields, slices.Concat(guard.notes, to.notes)
	if guard.answer != "" {
		fields = mapping{{"respond", guard.answer}}
	} else if to.upstream != nil {
		fields = append(mapping{{"upstream", text(c.attach(to.upstream))}}, fields...)
	}
	limits, lists := c.limitsOf(l.context)
	lists = append(guard.lists, lists...)
	fields.set("lists", texts(lists))
	fields.set("limits", texts(limits))
	switch status := l.context.status(); {
	case len(limits) == 0 || status == "429":
	case status != "":
		fields.set("reject", "{status: "+status+"}")
	default:
		c.note(0, "nginx refuses with 503 where limit_req_status and limit_conn_status do not say otherwise, Weir with 429", "write reject: {status: 503} where clients depend on it")
	}
	for _, host := range l.context.hosts {
		scheme := l.context.scheme
		if len(c.schemes[host]) < 2 {
			scheme = ""
		}
		for i, path := range l.paths {
			r := c.addRoute(routeName(host, path), append(nginxMatch(host, scheme, path), fields...))
			r.notes = append(r.notes, guard.lost...)
			if i > 0 || host != l.context.hosts[0] {
				continue
			}
			r.notes = append(r.notes, notes...)
			if len(l.paths) > 1 && path == l.prefix {
				r.note(l.line, l.String()+" also takes what only begins with it, as "+path+"x", "if that is meant, write a route for it")
			}
		}
	}
}

// nginxMatch returns the match of a route.
func nginxMatch(host, scheme, path string) mapping {
	var match mapping
	match.set("host", quoted(host))
	match.set("scheme", scheme)
	match.set("path", text(path))
	return mapping{{"match", match.flow()}}
}

// quoted returns a value as YAML text; "" for none.
func quoted(value string) string {
	if value == "" {
		return ""
	}
	return text(value)
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
	if d == nil {
		return ""
	}
	if n, err := strconv.Atoi(d.arg(0)); err != nil || n < 400 || n > 599 {
		return ""
	}
	use(d)
	return d.arg(0)
}

// literalPath matches a path without regular expressions, as a route can have it.
var literalPath = regexp.MustCompile(`^/(?:[A-Za-z0-9_.~@:+-]+/?)*$`)

// readPaths finds the paths of a location. Those of a protected one have all that begins with its prefix, as in nginx;
// those of others the segments below it, which reads better.
func (l *nginxLocation) readPaths() {
	if l.modifier == "~" || l.modifier == "~*" {
		l.prefix = l.readExpression()
	} else if literalPath.MatchString(l.prefix) {
		switch {
		case l.modifier == "=":
			l.paths = []string{l.prefix}
		case len(l.guards) > 0:
			l.paths = beginning(l.prefix, "")
			if whole := strings.TrimSuffix(l.prefix, "/"); whole != l.prefix && whole != "" {
				l.paths = append(l.paths, whole) // which nginx redirects
			}
		default:
			l.paths = below(l.prefix)
		}
	}
}

// below returns the paths of a prefix of whole segments.
func below(prefix string) []string {
	if strings.HasSuffix(prefix, "/") {
		return []string{prefix + "*"}
	}
	return []string{prefix, prefix + "/*"}
}

// beginning returns the paths of all that begins with prefix. With the flag (?i) they are those of its first segment in any
// case.
func beginning(prefix, flags string) []string {
	at := strings.LastIndexByte(prefix, '/') + 1
	if end := strings.IndexByte(prefix[1:], '/') + 1; flags != "" && end > 0 {
		return []string{"/{rest:" + flags + regexp.QuoteMeta(prefix[1:end]) + "}/*"}
	} else if at == len(prefix) {
		return []string{prefix + "*"}
	}
	segment := prefix[:at] + "{rest:" + flags + regexp.QuoteMeta(prefix[at:]) + ".*}"
	return []string{segment, segment + "/*"}
}

// readExpression returns what all paths begin with that a regular expression matches. One that is a plain path has
// paths.
func (l *nginxLocation) readExpression() string {
	if l.modifier == "~*" {
		l.flags = "(?i)"
	}
	expression, anchored := strings.CutPrefix(l.prefix, "^")
	if !anchored || !strings.HasPrefix(expression, "/") || hasChoice(expression) {
		return l.around
	}
	var plain strings.Builder
	rest := expression
	for rest != "" && (strings.IndexByte(`.?*+{}()[]$^\`, rest[0]) < 0 || len(rest) > 1 && rest[0] == '\\' && strings.IndexByte(`./-`, rest[1]) >= 0) {
		rest = strings.TrimPrefix(rest, `\`)
		plain.WriteByte(rest[0])
		rest = rest[1:]
	}
	prefix := plain.String()
	if rest != "" && strings.IndexByte("?*{", rest[0]) >= 0 {
		prefix = prefix[:len(prefix)-1]
	}
	switch {
	case !literalPath.MatchString(prefix):
		return l.around
	case rest == "" && len(l.guards) > 0:
		l.paths = beginning(prefix, l.flags)
	case l.flags != "":
	case rest == "":
		l.paths = below(prefix)
	case rest == "$":
		l.paths = []string{prefix}
	}
	return prefix
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
	return strings.HasPrefix(l.prefix, o.prefix) || o.flags != "" && len(l.prefix) >= len(o.prefix) && strings.EqualFold(l.prefix[:len(o.prefix)], o.prefix)
}
