package convert

import (
	"cmp"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/view"
)

// An nginxConfig is what is read of the configuration of nginx.
type nginxConfig struct {
	*document
	zones     map[string]nginxZone // by kind and name: "limit_req one"
	upstreams map[string]*directive
	variables map[string]*directive // map, geo and split_clients, by the variable that they set
	limits    map[string]*entry     // by how they are used
	schemes   map[string][]string   // of the servers, by host
	served    map[string]bool       // SCHEME HOST of the servers so far
	addressIn string                // the field in which trusted proxies send the client's address
}

// An nginxZone is where nginx counts: limit_req_zone or limit_conn_zone.
type nginxZone struct {
	*directive
	name  string
	count int64         // requests within window; 0 for connections
	per   time.Duration // the window
}

// An nginxContext is what holds in a block: what it has itself, and what it inherits.
type nginxContext struct {
	hosts      []string // "" is any
	scheme     string   // http or https; "" for both
	directives map[string][]*directive
	rewrites   []*directive // of the server, which run before those of any location
}

// convertNginx converts a configuration of nginx, also the output of nginx -T, or a file that
// is included in http or server.
func convertNginx(d *document, data []byte) {
	root := parseNginx(d, data)
	if len(root) == 0 {
		d.wrong(0, "has no directives", expectedNginx)
	}
	http := slices.DeleteFunc(slices.Clone(root), func(d *directive) bool { return d.name == "http" })
	for _, block := range find(root, "http") {
		use(block)
		http = append(http, block.block...)
	}
	c := &nginxConfig{
		document: d, zones: map[string]nginxZone{}, upstreams: map[string]*directive{},
		variables: map[string]*directive{},
		limits:    map[string]*entry{}, schemes: map[string][]string{}, served: map[string]bool{},
	}
	c.readVariables(http)
	c.readZones(http)
	if len(c.zones) == 0 {
		d.wrong(0, "has no limit_req_zone and no limit_conn_zone",
			"expected the file that has them, or the output of nginx -T, which has all files")
	}
	c.note(0, "nginx counts in each host by itself",
		"with store: redis all Weirs have one count, so a rate for N hosts may have to be N times as high")
	c.readClientIP(http)
	context := nginxContext{hosts: []string{""}, directives: map[string][]*directive{}}.enter(http)
	servers := find(http, "server")
	for _, server := range servers { // only where a host has two schemes, routes differ by them
		for _, host := range nginxHosts(server) {
			c.schemes[host] = view.AddNew(c.schemes[host], nginxScheme(server))
		}
	}
	for _, server := range servers {
		c.server(context, server)
	}
	if locations := find(http, "location"); len(locations) > 0 {
		c.locations(context, &directive{name: "server", block: locations, line: locations[0].line})
	}
	if len(c.entries["route"]) == 0 || len(findDeep(http, "limit_req"))+len(findDeep(http, "limit_conn")) == 0 {
		d.wrong(0, "no server has limits",
			"expected limit_req or limit_conn in a server, for example in the output of nginx -T, which has all files")
	}
	c.leftovers(root)
}

// readVariables reads the blocks of http that others refer to.
func (c *nginxConfig) readVariables(http []*directive) {
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
func (c *nginxConfig) readZones(http []*directive) {
	for _, d := range find(http, "limit_req_zone", "limit_conn_zone") {
		zone := nginxZone{directive: d}
		for _, arg := range d.args[min(1, len(d.args)):] {
			if value, ok := strings.CutPrefix(arg, "zone="); ok {
				zone.name, _, _ = strings.Cut(value, ":")
			} else if m := nginxRate.FindStringSubmatch(arg); m != nil {
				zone.count, _ = strconv.ParseInt(m[1], 10, 32)
				zone.per = map[string]time.Duration{"s": time.Second, "m": time.Minute}[m[2]]
			} else {
				c.note(d.line, arg+" of "+d.String()+" is not carried over", "")
			}
		}
		kind := strings.TrimSuffix(d.name, "_zone")
		if zone.name == "" || kind == "limit_req" && zone.count == 0 {
			use(d)
			c.note(d.line, d.String()+" is not carried over",
				"expected zone=NAME:SIZE, and for limit_req_zone rate=NUMBERr/s or r/m")
			continue
		}
		c.zones[kind+" "+zone.name] = zone
	}
}

// readClientIP reads from whom nginx takes the address of the client; Weir has one answer for all
// servers.
func (c *nginxConfig) readClientIP(http []*directive) {
	var trusted []string
	for _, d := range findDeep(http, "set_real_ip_from") {
		if n := network(d.arg(0)); n != "" {
			use(d)
			trusted = append(trusted, n)
		}
	}
	if len(trusted) == 0 {
		return
	}
	if all := findDeep(http, "set_real_ip_from"); len(find(http, "set_real_ip_from")) < len(all) {
		c.note(all[0].line, "set_real_ip_from of a server or location holds for all", "")
	}
	slices.Sort(trusted)
	networks := texts(slices.Compact(trusted))
	c.addressIn = "X-Real-IP"
	for _, d := range findDeep(http, "real_ip_header") {
		use(d)
		if d.arg(0) == "proxy_protocol" {
			c.sections.set("listen", mapping{{"proxy_protocol", networks}}.flow())
			return
		}
		if headerName.MatchString(d.arg(0)) {
			c.addressIn = d.arg(0)
		}
	}
	recursive := findDeep(http, "real_ip_recursive")
	if use(recursive...); !slices.ContainsFunc(recursive, func(d *directive) bool { return d.arg(0) == "on" }) {
		c.note(0, "nginx takes the last address of "+c.addressIn+" without real_ip_recursive, Weir the last one that is not "+
			"trusted", "trust the proxies alone: clients whose addresses are trusted can name any other")
	}
	c.sections.set("client_ip", mapping{{"trusted_proxies", networks}, {"header", text(c.addressIn)}}.flow())
}

// network returns an address or a network as Weir has it; "" for what is none.
func network(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
		return p.Masked().String()
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return a.Unmap().String()
	}
	return ""
}

// enter returns what holds in a block.
func (c nginxContext) enter(block []*directive) nginxContext {
	own := map[string][]*directive{}
	for _, d := range block {
		name := d.name
		if name == "deny" { // of one list with allow
			name = "allow"
		}
		own[name] = append(own[name], d)
	}
	c.directives = maps.Clone(c.directives)
	maps.Copy(c.directives, own)
	return c
}

// last returns the last directive of a name that holds, nil if there is none.
func (c nginxContext) last(name string) *directive {
	all := c.directives[name]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// duration returns the time that a directive has, and marks it; 0 if there is none.
func (c nginxContext) duration(name string) time.Duration {
	d := c.last(name)
	length := nginxDuration(d.arg(0))
	if length > 0 {
		use(d)
	}
	return length
}

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
	var lost notes
	for _, l := range nginxLocations(context, server.block) {
		guards, lost = append(guards, l.guards...), append(lost, l.lost...)
	}
	if len(find(server.block, "return")) > 0 {
		guards, lost = find(guards, "if"), nil
	}
	server.useAll()
	c.note(server.line,
		"the server that begins here is left out: Weir has none of its hosts, or another server has them",
		"write routes for it if its requests come through Weir, too")
	if lost = append(lost, lostNotes(guards)...); len(lost) > 0 && len(nginxHosts(server)) == 0 &&
		c.schemes[""] == nil {
		r := c.add("route", "all", append(nginxMatch("", "", "/*"), field{"respond", "{status: 403}"}))
		r.notes = lost
	}
}

// nginxScheme returns the scheme of the requests to a server; "" for both.
func nginxScheme(server *directive) string {
	scheme := ""
	for i, d := range find(server.block, "listen") {
		of := "http"
		if slices.Contains(d.args, "ssl") || strings.HasSuffix(d.arg(0), "443") {
			of = "https"
		}
		if i > 0 && of != scheme {
			return ""
		}
		scheme = of
	}
	return scheme
}

// hostPattern matches what Weir takes for a host.
var hostPattern = regexp.MustCompile(`` +
	`^(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?)*$`)

// nginxHosts returns the hosts of a server, in lower case, each once; "" is any. It marks their
// server_name, unless a name is none for Weir.
func nginxHosts(server *directive) (hosts []string) {
	names := find(server.block, "server_name")
	for _, d := range names {
		known := true
		for _, name := range d.args {
			switch name = strings.ToLower(name); {
			case name == "_" || name == "":
			case strings.HasPrefix(name, ".") && hostPattern.MatchString(name[1:]):
				hosts = view.AddNew(hosts, name[1:], "*"+name)
			case hostPattern.MatchString(name) && len(name) <= 253:
				hosts = view.AddNew(hosts, name)
			default:
				known = false
			}
		}
		d.used = known
	}
	for _, d := range find(server.block, "listen") {
		if slices.Contains(d.args, "default_server") || slices.Contains(d.args, "default") {
			hosts = view.AddNew(hosts, "")
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
			c.note(d.line, d.String()+": not each name is carried over",
				"write a route for each host, or *.example.com")
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
