package convert

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// server converts the locations of a server, if one of them has limits.
func (c *nginxConfig) server(outer nginxContext, server *directive) {
	use(server)
	context := outer.enter(server.block)
	context.scheme = nginxScheme(server)
	context.rewrites = find(server.block, "return", "if")
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

// leaveOut leaves out a server. Requests for a protected one may reach the routes of others, so
// its hosts, or all if it has none that Weir knows, get a route that refuses.
func (c *nginxConfig) leaveOut(context nginxContext, server *directive) {
	guards := context.guards(server.block)
	for _, l := range nginxLocations(context, server.block) {
		guards = append(guards, l.guards...)
	}
	hosts := nginxHosts(server)
	if len(find(server.block, "return")) > 0 {
		guards = find(guards, "if")
	}
	if len(hosts) == 0 {
		hosts = []string{""}
	} else if hosts[0] == "" && len(guards) > 0 {
		hosts = nil // its port tells it from others, which Weir does not have
	}
	server.useAll()
	c.note(server.line, "the server that begins here is left out: it has no limits, or no host that Weir has",
		"write routes for it if its requests come through Weir, too")
	for _, host := range hosts {
		if len(guards) == 0 || c.schemes[host] != nil {
			continue
		}
		r := c.addRoute(routeName(host, "/*"), append(nginxMatch(host, "", "/*"), field{"respond", "{status: 403}"}))
		r.notes = lostNotes(guards, "write routes for this host, once something else checks its requests")
	}
}

// readHosts finds the schemes of the servers with limits, by host: only where a host has two,
// routes differ by them.
func (c *nginxConfig) readHosts(outer nginxContext, servers []*directive) {
	for _, server := range servers {
		if !isLimited(outer, server.block) {
			continue
		}
		for _, host := range nginxHosts(server) {
			if c.schemes[host] == nil {
				c.schemes[host] = map[string]bool{}
			}
			c.schemes[host][nginxScheme(server)] = true
		}
	}
}

// nginxScheme returns the scheme of the requests to a server; "" for both.
func nginxScheme(server *directive) string {
	schemes := map[string]bool{}
	for _, d := range find(server.block, "listen") {
		schemes[map[bool]string{true: "https", false: "http"}[slices.Contains(d.args, "ssl") || strings.HasSuffix(d.arg(0),
			"443")]] = true
	}
	if len(schemes) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(schemes))[0]
}

// hostPattern matches what Weir takes for a host.
var hostPattern = regexp.MustCompile(`` +
	`^(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?)*$`)

// nginxHosts returns the hosts of a server, in lower case, each once; "" is any. It marks their
// server_name, unless a name is none for Weir.
func nginxHosts(server *directive) []string {
	var hosts []string
	names := find(server.block, "server_name")
	for _, d := range names {
		known := true
		for _, name := range d.args {
			switch name = strings.ToLower(name); {
			case name == "_" || name == "":
			case strings.HasPrefix(name, ".") && hostPattern.MatchString(name[1:]):
				hosts = append(hosts, name[1:], "*"+name)
			case hostPattern.MatchString(name) && len(name) <= 253:
				hosts = append(hosts, name)
			default:
				known = false
			}
		}
		d.used = known
	}
	for _, d := range find(server.block, "listen") {
		if slices.Contains(d.args, "default_server") || slices.Contains(d.args, "default") {
			hosts = append(hosts, "")
		}
	}
	if len(hosts) == 0 && !slices.ContainsFunc(names, func(d *directive) bool { return !d.used }) {
		return []string{""}
	}
	var once []string
	for _, host := range hosts {
		if !slices.Contains(once, host) {
			once = append(once, host)
		}
	}
	return once
}

// hostsOf returns the hosts of a server that no server before it has.
func (c *nginxConfig) hostsOf(server *directive) (hosts []string) {
	all, scheme := nginxHosts(server), nginxScheme(server)
	for _, d := range find(server.block, "server_name") {
		if !d.used {
			use(d)
			c.note(d.line, d.String()+": not each name is carried over", "write a route for each host, or *.example.com")
		}
	}
	for _, host := range all {
		if id := scheme + " " + host; c.served[id] || c.served[" "+host] {
			c.note(server.line, "the server that begins here has a host of another one before it, "+cmp.Or(host,
				"any")+", which is not carried over", "write other routes for its port")
		} else {
			c.served[id] = true
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// isLimited reports whether anything in the block has limits.
func isLimited(outer nginxContext, block []*directive) bool {
	return len(outer.directives["limit_req"])+len(outer.directives["limit_conn"])+len(find(block, "limit_req",
		"limit_conn")) > 0 ||
		slices.ContainsFunc(find(block, "location"), func(l *directive) bool { return isLimited(nginxContext{}, l.block) })
}
