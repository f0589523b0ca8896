package convert

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An nginxConfig is what is read of the configuration of nginx.
type nginxConfig struct {
	*document
	zones     map[string]nginxZone // by kind and name: "limit_req one"
	upstreams map[string]directive
	variables map[string]directive // map, geo and split_clients, by the variable that they set
	limits    map[string]*entry    // by how they are used
}

// An nginxZone is where nginx counts: limit_req_zone or limit_conn_zone.
type nginxZone struct {
	directive
	name  string
	count int64         // requests within window; 0 for connections
	per   time.Duration // the window
	key   string        // as YAML; empty if it cannot be carried over
	lists []string      // of addresses that are not counted
}

// An nginxContext is what inner blocks inherit.
type nginxContext struct {
	hosts                 []string // none: all
	req, conn             []directive
	reqStatus, connStatus string
	reqDryRun, connDryRun bool
}

// convertNginx converts a configuration of nginx, also the output of nginx -T, or a file that
// is included in http or server.
func convertNginx(d *document, data []byte) error {
	root, err := parseNginx(d, data)
	if err != nil {
		return err
	}
	if len(root) == 0 {
		return d.wrong(0, "has no directives", expectedNginx)
	}
	http := root
	for _, block := range find(root, "http") {
		http = append(http, block.block...)
	}
	c := &nginxConfig{document: d, zones: map[string]nginxZone{}, upstreams: map[string]directive{}, variables: map[string]directive{}, limits: map[string]*entry{}}
	c.readVariables(http)
	c.readZones(http)
	if len(c.zones) == 0 {
		return d.wrong(0, "has no limit_req_zone and no limit_conn_zone", "expected the file that has them, or the output of nginx -T, which has all files")
	}
	c.note(0, "nginx counts in each host by itself", "with store: redis all Weirs have one count, so a rate for N hosts may have to be N times as high")
	c.readClientIP(http)
	context := c.enter(nginxContext{}, http)
	for _, server := range find(http, "server") {
		c.server(context, server)
	}
	if locations := find(http, "location"); len(locations) > 0 {
		c.locations(context, directive{name: "server", block: locations, line: locations[0].line})
	}
	c.withoutServers(http)
	if len(find(http, "limit_req_status", "limit_conn_status")) == 0 {
		c.note(0, "nginx refuses with 503 where limit_req_status and limit_conn_status do not say otherwise, Weir with 429", "write reject: {status: 503} where clients depend on it")
	}
	return nil
}

// readVariables reads the blocks of http that others refer to.
func (c *nginxConfig) readVariables(http []directive) {
	for _, d := range find(http, "map", "geo", "split_clients") {
		if len(d.args) > 0 {
			c.variables[strings.TrimPrefix(d.args[len(d.args)-1], "$")] = d
		}
	}
	for _, d := range find(http, "upstream") {
		c.upstreams[d.arg(0)] = d
	}
}

// nginxRate is the rate of a limit_req_zone.
var nginxRate = regexp.MustCompile(`^rate=([0-9]+)r/([sm])$`)

// readZones reads the zones of http.
func (c *nginxConfig) readZones(http []directive) {
	for _, d := range find(http, "limit_req_zone", "limit_conn_zone") {
		zone := nginxZone{directive: d}
		for _, arg := range d.args {
			if value, ok := strings.CutPrefix(arg, "zone="); ok {
				zone.name, _, _ = strings.Cut(value, ":")
			}
			if m := nginxRate.FindStringSubmatch(arg); m != nil {
				zone.count, _ = strconv.ParseInt(m[1], 10, 32)
				zone.per = map[string]time.Duration{"s": time.Second, "m": time.Minute}[m[2]]
			}
		}
		kind := strings.TrimSuffix(d.name, "_zone")
		if zone.name == "" || kind == "limit_req" && zone.count == 0 {
			c.note(d.line, d.String()+" is not carried over", "expected zone=NAME:SIZE, and for limit_req_zone rate=NUMBERr/s or r/m")
			continue
		}
		zone.key, zone.lists = c.key(d.line, zone.name, d.arg(0))
		c.zones[kind+" "+zone.name] = zone
	}
}

// readClientIP reads from whom nginx takes the address of the client.
func (c *nginxConfig) readClientIP(http []directive) {
	var trusted []string
	for _, d := range find(http, "set_real_ip_from") {
		if d.arg(0) != "unix:" {
			trusted = append(trusted, d.arg(0))
		}
	}
	if len(trusted) == 0 {
		return
	}
	fields := mapping{{"trusted_proxies", texts(trusted)}}
	for _, d := range find(http, "real_ip_header") {
		if d.arg(0) == "proxy_protocol" {
			c.note(d.line, d.String()+" is not carried over", "write listen: {proxy_protocol: "+texts(trusted)+"}")
			return
		}
		fields.set("header", text(d.arg(0)))
	}
	c.sections.set("client_ip", fields.flow())
}

// enter returns what a block inherits: what it has itself, and else what is around it.
func (c *nginxConfig) enter(outer nginxContext, block []directive) nginxContext {
	inner := outer
	if own := find(block, "limit_req"); len(own) > 0 {
		inner.req = own
	}
	if own := find(block, "limit_conn"); len(own) > 0 {
		inner.conn = own
	}
	for _, d := range block {
		switch d.name {
		case "limit_req_status":
			inner.reqStatus = d.arg(0)
		case "limit_conn_status":
			inner.connStatus = d.arg(0)
		case "limit_req_dry_run":
			inner.reqDryRun = d.arg(0) == "on"
		case "limit_conn_dry_run":
			inner.connDryRun = d.arg(0) == "on"
		case "limit_rate", "limit_rate_after":
			c.note(d.line, d.String()+" is not carried over: Weir does not limit bandwidth", "keep nginx behind Weir for it, or leave it out")
		case "if", "limit_except":
			if len(find(d.block, "limit_req", "limit_conn", "limit_rate")) > 0 {
				c.note(d.line, d.String()+" { ... } is not carried over", "write a route with match: {headers, query or methods} for it")
			}
		}
	}
	return inner
}

// server converts the locations of a server, if one of them has limits.
func (c *nginxConfig) server(outer nginxContext, server directive) {
	context := c.enter(outer, server.block)
	for _, d := range find(server.block, "server_name") {
		for _, name := range d.args {
			switch {
			case name == "_" || name == "" || strings.HasPrefix(name, "~") || strings.HasSuffix(name, ".*"):
				if name != "_" && name != "" {
					c.note(d.line, "server_name "+name+" is not carried over", "write a route for each host, or *.example.com")
				}
			case strings.HasPrefix(name, "."):
				context.hosts = append(context.hosts, name[1:], "*"+name)
			default:
				context.hosts = append(context.hosts, name)
			}
		}
	}
	if !c.isLimited(context, server.block) {
		c.note(server.line, "this server has no limits and is left out", "write a route for it if its requests come through Weir, too")
		return
	}
	c.locations(context, server)
}

// isLimited reports whether anything in the block has limits.
func (c *nginxConfig) isLimited(outer nginxContext, block []directive) bool {
	return len(outer.req)+len(outer.conn)+len(find(block, "limit_req", "limit_conn")) > 0 ||
		slices.ContainsFunc(find(block, "location"), func(l directive) bool { return c.isLimited(nginxContext{}, l.block) })
}
