package convert

import (
	"regexp"
	"strings"
)

// passed matches the address of a proxy_pass or grpc_pass.
var passed = regexp.MustCompile(`^(https?|grpcs?)://(unix:[^:$]+|[A-Za-z0-9_.-]+(?::[0-9]+)?|\[[0-9a-fA-F:.]+\](?::[0-9]+)?)(?::?(/[^$]*))?$`)

// pass returns the upstream of a location, and the rewrite of its path.
func (c *nginxConfig) pass(l directive) (upstream, rewrite string, notes []Note) {
	all := find(l.block, "proxy_pass", "grpc_pass")
	if len(all) == 0 {
		return c.stays(l), "", nil
	}
	d := all[0]
	m := passed.FindStringSubmatch(d.arg(0))
	if m == nil {
		return c.stays(l), "", nil
	}
	rewrite, why := nginxRewrite(l, m[3])
	if why != "" {
		notes = append(notes, Note{d.line, d.String() + " changes the path" + why, "write rewrite: {strip_prefix, add_prefix}"})
	}
	return c.upstream(d, m), rewrite, notes
}

// stays returns the upstream for what nginx goes on answering: nginx itself.
func (c *nginxConfig) stays(l directive) string {
	u := c.addUpstream("nginx", mapping{{"targets", `["http://127.0.0.1:8081"]`}})
	if len(u.notes) == 0 {
		u.note(l.line, "what is not forwarded by proxy_pass stays with nginx", "let nginx listen on this address, or write the address of the server")
	}
	return u.name
}

// nginxRewrite returns the rewrite for the path in a proxy_pass, which replaces that of the
// location, or why there is none.
func nginxRewrite(l directive, uri string) (rewrite, why string) {
	prefix := l.arg(len(l.args) - 1)
	if uri == "" || uri == prefix {
		return "", ""
	}
	if len(l.args) > 1 && l.args[0] != "^~" || !strings.HasSuffix(prefix, "/") || !strings.HasSuffix(uri, "/") || !literalPath.MatchString(uri) {
		return "", ", which is not carried over"
	}
	var fields mapping
	fields.set("strip_prefix", quoted(strings.TrimSuffix(prefix, "/")))
	fields.set("add_prefix", quoted(strings.TrimSuffix(uri, "/")))
	return fields.flow(), ""
}

// upstream returns the name of the upstream for the parts of a proxy_pass.
func (c *nginxConfig) upstream(d directive, m []string) string {
	var protocol string
	scheme := m[1]
	switch scheme {
	case "grpc":
		scheme, protocol = "http", "h2c"
	case "grpcs":
		scheme, protocol = "https", "h2"
	}
	block, known := c.upstreams[m[2]]
	if !known {
		target := scheme + "://" + m[2]
		if strings.HasPrefix(m[2], "unix:") {
			target = m[2]
		}
		fields := mapping{{"targets", texts([]string{target})}}
		fields.set("protocol", protocol)
		return c.addUpstream(strings.TrimPrefix(m[2], "unix:/"), fields).name
	}
	var targets []string
	var notes []Note
	for _, s := range find(block.block, "server") {
		target, options := mapping{{"url", text(nginxTarget(scheme, s.arg(0)))}}, s.args[min(1, len(s.args)):]
		for _, option := range options {
			name, value, _ := strings.Cut(option, "=")
			switch name {
			case "weight":
				target.set("weight", value)
			case "backup", "down":
				notes = append(notes, Note{s.line, s.String() + ": " + name + " is not carried over", "leave the target out, or give it a small weight"})
			}
		}
		targets = append(targets, target.flow())
	}
	if len(targets) == 0 {
		notes = append(notes, Note{block.line, block.String() + " names no server in this file", "write its targets"})
		targets = []string{`"http://127.0.0.1:8081"`}
	}
	fields := mapping{{"targets", "[" + strings.Join(targets, ", ") + "]"}}
	if len(targets) > 1 && len(find(block.block, "least_conn")) > 0 {
		fields.set("balance", "least_loaded")
	}
	if len(targets) > 1 && len(find(block.block, "ip_hash")) > 0 {
		fields.set("balance", `"hash:client_ip"`)
	}
	fields.set("protocol", protocol)
	u := c.addUpstream(m[2], fields)
	u.notes = notes
	return u.name
}

// nginxTarget returns the URL of a server of an upstream.
func nginxTarget(scheme, address string) string {
	if strings.HasPrefix(address, "unix:") {
		return address
	}
	return scheme + "://" + address
}

// withoutServers makes one route for a file that has only zones.
func (c *nginxConfig) withoutServers(http []directive) {
	if len(c.routes) > 0 {
		return
	}
	c.note(0, "no server of this file uses its zones", "convert the output of nginx -T, which has all files; this is one route with the rates of all zones")
	var context nginxContext
	for _, d := range find(http, "limit_req_zone") {
		for _, arg := range d.args {
			if value, ok := strings.CutPrefix(arg, "zone="); ok {
				name, _, _ := strings.Cut(value, ":")
				context.req = append(context.req, directive{name: "limit_req", args: []string{"zone=" + name}, line: d.line})
			}
		}
	}
	c.location(context, directive{name: "location", args: []string{"/"}})
}
