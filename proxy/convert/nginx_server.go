package convert

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// server converts the locations of a server.
func (c *nginxConfig) server(outer nginxContext, server *directive) {
	use(server)
	context := outer.enter(server.block)
	context.scheme = nginxScheme(server)
	context.rewrites = find(server.block, "return", "if")
	if context.hosts = c.hostsOf(server); len(context.hosts) == 0 {
		c.leaveOut(context, server)
		return
	}
	c.locations(context, server)
}

// leaveOut leaves out a server without a host of its own. Requests for a protected one whose names Weir does not
// have may reach the routes of others, so then those for all other hosts are refused.
func (c *nginxConfig) leaveOut(context nginxContext, server *directive) {
	guards := context.guards(server.block)
	var lost []Note
	for _, l := range nginxLocations(context, server.block) {
		guards, lost = append(guards, l.guards...), append(lost, l.lost...)
	}
	if len(find(server.block, "return")) > 0 {
		guards, lost = find(guards, "if"), nil
	}
	server.useAll()
	c.note(server.line, "the server that begins here is left out: Weir has none of its hosts, or another server has them",
		"write routes for it if its requests come through Weir, too")
	if lost = append(lost, lostNotes(guards)...); len(lost) > 0 && len(nginxHosts(server)) == 0 && c.schemes[""] == nil {
		r := c.addRoute("all", append(nginxMatch("", "", "/*"), field{"respond", "{status: 403}"}))
		r.notes = lost
	}
}

// readHosts finds the schemes of the servers by host: only where a host has two, routes differ by them.
func (c *nginxConfig) readHosts(servers []*directive) {
	for _, server := range servers {
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
	add := func(host string) {
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	names := find(server.block, "server_name")
	for _, d := range names {
		known := true
		for _, name := range d.args {
			switch name = strings.ToLower(name); {
			case name == "_" || name == "":
			case strings.HasPrefix(name, ".") && hostPattern.MatchString(name[1:]):
				add(name[1:])
				add("*" + name)
			case hostPattern.MatchString(name) && len(name) <= 253:
				add(name)
			default:
				known = false
			}
		}
		d.used = known
	}
	for _, d := range find(server.block, "listen") {
		if slices.Contains(d.args, "default_server") || slices.Contains(d.args, "default") {
			add("")
		}
	}
	if len(hosts) == 0 && !slices.ContainsFunc(names, func(d *directive) bool { return !d.used }) {
		return []string{""}
	}
	return hosts
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
