package convert

import (
	"regexp"
	"strconv"
	"strings"
)

// locations converts the locations of a server, and what is in none of them.
func (c *nginxConfig) locations(context nginxContext, server directive) {
	whole := false
	var walk func(outer nginxContext, block []directive)
	walk = func(outer nginxContext, block []directive) {
		for _, l := range find(block, "location") {
			inner := c.enter(outer, l.block)
			whole = whole || l.arg(len(l.args)-1) == "/"
			c.location(inner, l)
			walk(inner, l.block)
		}
	}
	walk(context, server.block)
	if !whole {
		c.location(context, directive{name: "location", args: []string{"/"}, line: server.line})
	}
}

// location converts a location: a route for each host and path.
func (c *nginxConfig) location(context nginxContext, l directive) {
	if strings.HasPrefix(l.arg(0), "@") {
		return
	}
	paths, why := nginxPaths(l.args)
	if why != "" {
		limits := ""
		if len(context.req)+len(context.conn) > 0 {
			limits = ", nor are its limits"
		}
		c.note(l.line, l.String()+" is not carried over"+limits+": "+why, "write a route with its paths")
		return
	}
	upstream, rewrite, notes := c.pass(l)
	limits, lists := c.use(context)
	hosts := context.hosts
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	for _, host := range hosts {
		for i, path := range paths {
			var match, fields mapping
			match.set("host", quoted(host))
			match.set("path", text(path))
			fields.set("match", match.flow())
			fields.set("upstream", text(upstream))
			fields.set("rewrite", rewrite)
			fields.set("lists", texts(lists))
			fields.set("limits", texts(limits))
			if status := context.status(); status != "" && len(limits) > 0 {
				fields.set("reject", "{status: "+status+"}")
			}
			r := c.addRoute(routeName(host, path), fields)
			r.notes = notes
			if i > 0 || host != hosts[0] {
				r.notes = nil
			} else if len(paths) > 1 {
				r.note(l.line, l.String()+" also takes what only begins with it, as "+path+"x", "if that is meant, write a route for it")
			}
		}
	}
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

// status returns the status of refusals, "" for that of Weir, 429.
func (c nginxContext) status() string {
	status := c.reqStatus
	if len(c.req) == 0 || status == "" {
		status = c.connStatus
	}
	if n, err := strconv.Atoi(status); err != nil || n < 400 || n > 599 || n == 429 {
		return ""
	}
	return status
}

// literalPath matches a path without regular expressions, as a route can have it.
var literalPath = regexp.MustCompile(`^/(?:[A-Za-z0-9_.~@:+-]+/?)*$`)

// nginxPaths returns the paths of a location, or why Weir has none.
func nginxPaths(args []string) (paths []string, why string) {
	if len(args) == 0 {
		return nil, "it has no path"
	}
	modifier, p := "", args[len(args)-1]
	if len(args) > 1 {
		modifier = args[0]
	}
	if modifier == "~" || modifier == "~*" {
		literal := strings.TrimSuffix(strings.TrimPrefix(p, "^"), "$")
		if modifier == "~*" || !strings.HasPrefix(p, "^") || strings.ContainsAny(literal, ".+") {
			return nil, "Weir has no regular expressions for whole paths"
		}
		modifier = "^~"
		if strings.HasSuffix(p, "$") {
			modifier = "="
		}
		p = literal
	}
	switch {
	case !literalPath.MatchString(p):
		return nil, "Weir has no such path"
	case modifier == "=":
		return []string{p}, ""
	case strings.HasSuffix(p, "/"):
		return []string{p + "*"}, ""
	}
	return []string{p, p + "/*"}, ""
}
