package convert

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An nginxDestination is where a route sends its requests.
type nginxDestination struct {
	upstream *entry  // not yet in the document; nil for a route that answers itself
	isReturn bool    // which nginx does before it counts, or looks at who asks
	fields   mapping // of the route, beside upstream
	notes    notes
}

// destination returns where the requests of a location go.
func (c *nginxConfig) destination(l *nginxLocation) nginxDestination {
	answers := slices.Concat(find(l.context.rewrites, "return"), find(l.block, "return"))
	if len(answers) > 0 {
		if fields := nginxAnswer(answers[0], l.context.hosts[0]); fields != nil {
			use(answers[0])
			return nginxDestination{fields: fields, isReturn: true}
		}
	} else if all := find(l.block, "proxy_pass"); len(all) > 0 {
		return c.pass(l, all[0])
	}
	u := &entry{name: "nginx", fields: mapping{{"targets", `["http://127.0.0.1:8081"]`}}}
	u.notes.add(l.line, "what is not forwarded by proxy_pass stays with nginx",
		"let nginx listen on this address, or write the address of the server")
	return nginxDestination{upstream: u}
}

// passed matches the address of a proxy_pass.
var passed = regexp.MustCompile(`^(https?)://(unix:[^:$]+|[A-Za-z0-9_.-]+(?::[0-9]+)?|` +
	`\[[0-9a-fA-F:.]+\](?::[0-9]+)?)(?::?(/[^$]*))?$`)

// unknownUpstream answers for an upstream that Weir cannot have.
func unknownUpstream(line int, what string) nginxDestination {
	return nginxDestination{fields: mapping{{"respond", "{status: 502}"}},
		notes: notes{{Line: line, What: what, Instead: "write upstream: URL in place of respond"}}}
}

// pass returns the upstream of a proxy_pass with what changes requests on their way to it. An
// upstream that is not known is answered for with 502.
func (c *nginxConfig) pass(l *nginxLocation, d *directive) nginxDestination {
	use(d)
	value := d.arg(0)
	for _, path := range []string{"$request_uri", "$uri$is_args$args"} { // that of the request
		value = strings.TrimSuffix(value, path)
	}
	m := passed.FindStringSubmatch(value)
	var u *entry
	if m != nil {
		u = c.upstream(l, m)
	}
	if u == nil {
		return unknownUpstream(d.line, d.String()+" goes to a server that this file does not name")
	}
	to := nginxDestination{upstream: u}
	rewrite, why := nginxRewrite(l, m[3])
	if value != d.arg(0) && m[3] != "" { // before the path of all requests
		rewrite, why = nil, ", which is not carried over"
	}
	if why != "" {
		to.notes.add(d.line, d.String()+" changes the path"+why, "write rewrite: {strip_prefix, add_prefix}")
	}
	headers, websocket, notes := c.headers(l, m)
	to.notes = append(to.notes, notes...)
	rewrite.set("headers", headers.flow())
	to.fields.set("rewrite", rewrite.flow())
	if websocket {
		to.fields.set("websocket", "true")
	}
	if size := l.context.last("client_max_body_size"); size != nil {
		if most := nginxSize(size.arg(0)); most != "" {
			use(size)
			to.fields.set("body", "{max: "+most+"}")
		}
	} else {
		c.note(0,
			"nginx refuses bodies of more than 1 MiB where client_max_body_size does not say otherwise, Weir none",
			"write body: {max: 1MiB} in routes")
	}
	return to
}

// nginxRewrite returns the fields of the rewrite for the path in a proxy_pass, which replaces that
// of the location, or why there is none.
func nginxRewrite(l *nginxLocation, uri string) (rewrite mapping, why string) {
	prefix := l.prefix
	if uri == "" || uri == prefix {
		return nil, ""
	}
	whole := strings.HasSuffix(prefix, "/") == strings.HasSuffix(uri, "/") || uri == "/"
	if l.modifier != "" && l.modifier != "^~" || !whole || !isLiteralPath(uri) {
		return nil, ", which is not carried over"
	}
	rewrite.set("strip_prefix", text(strings.TrimSuffix(prefix, "/")))
	rewrite.set("add_prefix", text(strings.TrimSuffix(uri, "/")))
	return rewrite, ""
}

// upstream returns the upstream for the parts of a proxy_pass; nil if no server is known.
func (c *nginxConfig) upstream(l *nginxLocation, m []string) *entry {
	scheme, u := m[1], &entry{name: strings.TrimPrefix(m[2], "unix:/")}
	if block := c.upstreams[m[2]]; block != nil {
		use(block)
		u = nginxServers(block, scheme)
	} else if target := nginxTarget(scheme, m[2]); target != "" {
		u.fields = mapping{{"targets", texts([]string{target})}}
	}
	if len(u.fields) == 0 {
		return nil
	}
	u.fields.set("timeouts",
		timeouts(l.context.duration("proxy_connect_timeout"), l.context.duration("proxy_read_timeout")))
	if d := l.context.last("proxy_read_timeout"); d == nil {
		c.note(0, "nginx waits 60 s for a response where proxy_read_timeout does not say otherwise, Weir 30 s",
			"write timeouts: {response: 60s} in upstreams")
	}
	if scheme == "https" {
		c.note(0, "Weir verifies the certificates of upstreams, nginx those with proxy_ssl_verify",
			"write tls: {ca, server_name} in upstreams whose certificate is not one of a public authority")
	}
	return u
}

// timeouts returns the timeouts of an upstream; 0 is none.
func timeouts(connect, read time.Duration) string {
	var fields mapping
	fields.setDuration("connect", connect)
	fields.setDuration("response", read)
	fields.setDuration("idle", read)
	return fields.flow()
}

// nginxWeight matches the weight of a server that Weir can have.
var nginxWeight = regexp.MustCompile(`^weight=([1-9][0-9]{0,2}|1000)$`)

// nginxServers returns the upstream of a block; without fields if it has no server that Weir can
// have.
func nginxServers(block *directive, scheme string) *entry {
	u := &entry{name: block.arg(0)}
	var urls, targets []string
	for _, s := range find(block.block, "server") {
		use(s)
		url := nginxTarget(scheme, s.arg(0))
		target := mapping{{"url", text(url)}}
		var rest []string
		for _, option := range s.args[min(1, len(s.args)):] {
			if m := nginxWeight.FindStringSubmatch(option); m != nil && len(target) == 1 {
				target.set("weight", m[1])
			} else {
				rest = append(rest, option)
			}
		}
		switch {
		case url == "" || slices.Contains(urls, url):
			u.notes.add(s.line, s.String()+" is not carried over", "write it as a target with http://HOST:PORT, once")
			continue
		case slices.Contains(rest, "down"):
			u.notes.add(s.line, s.String()+" is left out", "write it as a target when it is back")
			continue
		case len(rest) > 0:
			u.notes.add(s.line, s.String()+": not carried over: "+strings.Join(rest, ", "),
				"write health: {after, rest} and max_connections, and give backup servers a small weight, or leave "+
					"them out")
		}
		urls, targets = append(urls, url), append(targets, target.flow())
	}
	if len(targets) == 0 {
		return &entry{}
	}
	u.fields = mapping{{"targets", "[" + strings.Join(targets, ", ") + "]"}}
	if balance := find(block.block, "least_conn", "ip_hash"); len(targets) > 1 && len(balance) > 0 {
		use(balance...)
		u.fields.set("balance", map[string]string{"least_conn": "least_loaded",
			"ip_hash": `"hash:client_ip"`}[balance[0].name])
	}
	return u
}

// nginxTarget returns the URL of a server; "" if it is none for Weir.
func nginxTarget(scheme, address string) string {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !socketPath.MatchString(path) {
			return ""
		}
		return address
	}
	host, port := address, ""
	if m := hostAndPort.FindStringSubmatch(address); m != nil {
		host, port = m[1], m[2]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if port != "" && (err != nil || n == 0) {
		return ""
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && !hostPattern.MatchString(host) ||
		strings.HasPrefix(host, "*") {
		return ""
	}
	return scheme + "://" + address
}

var (
	hostAndPort = regexp.MustCompile(`^(.*):([0-9]+)$`)
	socketPath  = regexp.MustCompile(`^/[A-Za-z0-9_./-]{0,105}[A-Za-z0-9_.-]$`)
)
