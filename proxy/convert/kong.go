package convert

import (
	"encoding/json"
	"fmt"
	"strings"
)

// expectedKong is what the file should be.
const expectedKong = "expected a declarative configuration of Kong with _format_version and plugins named rate-limiting, for example the output of deck gateway dump"

// A kongConfig is what is read of the declarative configuration of Kong.
type kongConfig struct {
	*document
	plugins []kongPlugin
	limits  map[string][]string // by the line of the plugin, and what it counts apart
}

// A kongPlugin is a plugin and what it is for: all requests, a service, a route, or less.
type kongPlugin struct {
	node
	service, route string
}

// isRateLimiting reports whether a plugin has limits.
func isRateLimiting(name string) bool {
	return name == "rate-limiting" || name == "rate-limiting-advanced"
}

// convertKong converts a declarative configuration.
func convertKong(d *document, data []byte) error {
	documents, err := d.documents(data, expectedKong)
	if err != nil {
		return err
	}
	c := &kongConfig{document: d, limits: map[string][]string{}}
	root := documents[0]
	if !root.get("_format_version").isThere() && !root.get("services").isThere() {
		return d.wrong(root.line(), "there is no _format_version", expectedKong)
	}
	c.readPlugins(root)
	found := false
	for _, p := range c.plugins {
		found = found || isRateLimiting(p.get("name").text())
	}
	if !found {
		return d.wrong(root.line(), "there is no plugin named rate-limiting", expectedKong)
	}
	d.note(0, "windows of Kong begin with the minute, hour or day of the clock, those of Weir's fixed_window with the first request", "write algorithm: token_bucket for at most the rate in any window, or leave it")
	for _, s := range root.get("services").items() {
		for _, r := range s.get("routes").items() {
			if err := c.route(s, r); err != nil {
				return err
			}
		}
	}
	for _, r := range root.get("routes").items() {
		if err := c.route(serviceOf(root, r), r); err != nil {
			return err
		}
	}
	if len(d.routes) == 0 {
		return d.wrong(root.line(), "there is no route", expectedKong)
	}
	return nil
}

// serviceOf returns the service that a route at the top of the file names.
func serviceOf(root, route node) node {
	for _, s := range root.get("services").items() {
		if s.get("name").text() == reference(route.get("service")) {
			return s
		}
	}
	return node{}
}

// reference returns the name in a reference to another entity, NAME or {name: NAME}.
func reference(n node) string {
	if name := n.get("name").text(); name != "" {
		return name
	}
	return n.text()
}

// readPlugins reads all plugins, wherever they stand.
func (c *kongConfig) readPlugins(root node) {
	add := func(plugins node, service, route string) {
		for _, p := range plugins.items() {
			one := kongPlugin{p, service, route}
			if named := reference(p.get("service")); named != "" {
				one.service = named
			}
			if named := reference(p.get("route")); named != "" {
				one.route = named
			}
			if p.get("enabled").text() == "false" {
				continue
			}
			if p.get("consumer").isThere() || p.get("consumer_group").isThere() {
				c.consumerPlugin(p)
				continue
			}
			if p.get("name").text() == "response-ratelimiting" {
				c.note(p.line(), "plugin response-ratelimiting is not carried over", "write a limit with cost: or count: for what the upstream answers")
			}
			c.plugins = append(c.plugins, one)
		}
	}
	add(root.get("plugins"), "", "")
	for _, s := range root.get("services").items() {
		add(s.get("plugins"), s.get("name").text(), "")
		for _, r := range s.get("routes").items() {
			add(r.get("plugins"), "", r.get("name").text())
		}
	}
	for _, r := range root.get("routes").items() {
		add(r.get("plugins"), "", r.get("name").text())
	}
	for _, consumer := range root.get("consumers").items() {
		for _, p := range consumer.get("plugins").items() {
			c.consumerPlugin(p)
		}
	}
}

// consumerPlugin notes a plugin of a consumer, which is not carried over.
func (c *kongConfig) consumerPlugin(p node) {
	if isRateLimiting(p.get("name").text()) {
		c.note(p.line(), "limits of a consumer are not carried over", "write overrides: {KEY: [RATES]} in the limit, or plans")
	}
}

// plugin returns the plugin of this kind that Kong runs for a route: the most specific one.
func (c *kongConfig) plugin(service, route string, is func(name string) bool) (kongPlugin, bool) {
	var best kongPlugin
	most := -1
	for _, p := range c.plugins {
		if !is(p.get("name").text()) || p.service != "" && p.service != service || p.route != "" && p.route != route {
			continue
		}
		rank := 0
		if p.service != "" {
			rank++
		}
		if p.route != "" {
			rank += 2
		}
		if rank > most {
			best, most = p, rank
		}
	}
	return best, most >= 0
}

// route converts a route: one for each host and path.
func (c *kongConfig) route(service, r node) error {
	name := r.get("name").text()
	if name == "" {
		name = service.get("name").text() + "-route"
	}
	var limits []string
	var reject string
	for _, kind := range []string{"rate-limiting", "rate-limiting-advanced"} {
		p, found := c.plugin(service.get("name").text(), r.get("name").text(), func(n string) bool { return n == kind })
		if !found {
			continue
		}
		own, err := c.limit(p, service, r)
		if err != nil {
			return err
		}
		limits = append(limits, own...)
		reject = kongReject(p.get("config"))
	}
	upstream := c.kongUpstream(service, r)
	paths := r.get("paths").texts()
	if len(paths) == 0 {
		paths = []string{"/"}
	}
	hosts := r.get("hosts").texts()
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	for _, host := range hosts {
		for _, prefix := range paths {
			own, why := nginxPaths([]string{"^~", prefix})
			if why != "" {
				c.note(r.get("paths").line(), "path "+prefix+" of route "+name+" is not carried over, nor are its limits: "+why, "write a route with its paths")
				continue
			}
			for i, path := range own {
				fields := mapping{{"match", c.match(r, host, path).flow()}, {"upstream", upstream.name}}
				fields.set("rewrite", kongRewrite(service, r, prefix))
				fields.set("limits", texts(limits))
				fields.set("reject", reject)
				made := c.addRoute(name, fields)
				if i == 0 && len(own) > 1 {
					made.note(r.line(), "Kong also takes paths that only begin with "+prefix+", as "+prefix+"x", "if that is meant, write a route for it")
				}
			}
		}
	}
	return nil
}

// match returns the match of a route for one host and path.
func (c *kongConfig) match(r node, host, path string) mapping {
	var m, headers mapping
	m.set("methods", texts(r.get("methods").texts()))
	m.set("host", quoted(host))
	m.set("path", text(path))
	for name, values := range r.get("headers").fields() {
		if v := values.texts(); len(v) > 0 {
			headers.set(text(name.text()), text(v[0]))
			if len(v) > 1 {
				c.note(values.line(), "only the first value of "+name.text()+" is carried over", "write a route for each of the others")
			}
		}
	}
	if len(headers) > 0 {
		m.set("headers", headers.flow())
	}
	return m
}

// kongRewrite returns the rewrite of a route: Kong strips the path that it matched, unless
// strip_path is false, and adds that of the service.
func kongRewrite(service, r node, prefix string) string {
	var m mapping
	if strip := strings.TrimSuffix(prefix, "/"); strip != "" && r.get("strip_path").text() != "false" {
		m.set("strip_prefix", text(strip))
	}
	if add := strings.TrimSuffix(kongPath(service), "/"); add != "" {
		m.set("add_prefix", text(add))
	}
	if len(m) == 0 {
		return ""
	}
	return m.flow()
}

// kongReject returns the response to a refused request, "" for that of Weir.
func kongReject(config node) string {
	var m mapping
	if code := config.get("error_code").text(); code != "429" {
		m.set("status", code)
	}
	if message := config.get("error_message").text(); message != "" && message != "API rate limit exceeded" {
		body, _ := json.Marshal(map[string]string{"message": message}) // strings can be encoded
		m.set("body", text(string(body)))
		m.set("content_type", "application/json")
	}
	if len(m) == 0 {
		return ""
	}
	return m.flow()
}

// limit returns the names of the limits of a plugin, which has one count for all its routes.
func (c *kongConfig) limit(p kongPlugin, service, r node) ([]string, error) {
	config := p.get("config")
	id := fmt.Sprint(p.line())
	if config.get("limit_by").text() == "service" {
		id += " " + service.get("name").text()
	}
	if names, known := c.limits[id]; known {
		return names, nil
	}
	rates, algorithm, err := c.rates(config)
	if err != nil {
		return nil, err
	}
	if len(rates) == 0 {
		return nil, c.wrong(p.line(), "the plugin has no limit", "expected config with second, minute, hour, day, month or year")
	}
	name := "rate"
	switch {
	case p.route != "":
		name = p.route
	case p.service != "":
		name = p.service
	}
	var notes []Note
	fields := mapping{{"key", c.key(p, service, r, &notes)}, {"rates", texts(rates)}, {"algorithm", algorithm}}
	if policy := config.get("policy").text(); policy == "redis" || policy == "cluster" || config.get("strategy").text() == "redis" {
		c.shared(config)
		fields.set("on_store_failure", map[bool]string{true: "deny", false: "allow"}[config.get("fault_tolerant").text() == "false"])
	} else {
		notes = append(notes, Note{p.line(), "policy local counts in each node by itself", "with store: redis all Weirs have one count"})
	}
	if config.get("hide_client_headers").text() == "true" {
		fields.set("expose", "false")
	}
	l := c.addLimit(name, fields)
	l.notes = notes
	c.limits[id] = []string{l.name}
	return c.limits[id], nil
}
