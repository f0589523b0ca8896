package convert

import (
	"net/textproto"
	"regexp"
	"strings"
)

// variable matches a variable of nginx, $NAME or ${NAME}.
var variable = regexp.MustCompile(`\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))`)

// key returns the key by which the zone counts, as YAML, and the lists of addresses that are
// not counted. A key that Weir does not have is "", and has a note.
func (c *nginxConfig) key(line int, zone, value string) (key string, lists []string) {
	var origins []string
	for _, m := range variable.FindAllStringSubmatch(value, -1) {
		name := m[1] + m[2]
		origin, exempt := c.origin(line, name)
		if origin == "" {
			c.note(line, "zone "+zone+" is not carried over: Weir has no key for $"+name, "write a limit with a key from path:NAME, header:NAME, query:NAME or cookie:NAME, see Keys in the reference")
			return "", nil
		}
		if exempt != "" {
			lists = append(lists, exempt)
		}
		origins = append(origins, origin)
	}
	switch len(origins) {
	case 0:
		return "global", lists // a constant
	case 1:
		return c.nginxKey(origins[0], "skip"), lists
	}
	var parts []string
	for _, origin := range origins {
		parts = append(parts, c.nginxKey(origin, "shared"))
	}
	return c.addKey(zone+"_key", mapping{{"join", texts(parts)}}), lists
}

// nginxKey returns the key for an origin. nginx does not count a request whose key is empty,
// and counts those where a part of it is.
func (d *document) nginxKey(origin, onMissing string) string {
	_, name, named := strings.Cut(origin, ":")
	if !named {
		return origin
	}
	if onMissing != "skip" {
		name += "_or_none"
	}
	return d.addKey(strings.ReplaceAll(strings.ToLower(name), "-", "_"), mapping{{"from", text(origin)}, {"on_missing", onMissing}})
}

// addressFields are the fields in which proxies send the address of the client, by the
// variable that has them.
func addressFields() map[string]string {
	return map[string]string{
		"http_x_forwarded_for": "X-Forwarded-For", "proxy_add_x_forwarded_for": "X-Forwarded-For", "http_x_real_ip": "X-Real-IP",
		"http_cf_connecting_ip": "CF-Connecting-IP", "http_true_client_ip": "True-Client-IP",
	}
}

// origin returns where Weir reads what a variable of nginx has; "" if it does not. exempt is
// a list of addresses for which the variable is empty.
func (c *nginxConfig) origin(line int, name string) (origin, exempt string) {
	if field := addressFields()[name]; field != "" {
		c.note(line, "any client can send "+field+", so client_ip is used instead of $"+name, "write client_ip: {trusted_proxies: [NETWORKS], header: "+field+"}")
		return "client_ip", ""
	}
	switch name {
	case "binary_remote_addr", "remote_addr":
		return "client_ip", ""
	case "server_name":
		c.note(line, "$server_name is the same for all names of a server", "the key is host, which counts each name by itself; write key: global for one count")
		return "host", ""
	case "host", "http_host":
		return "host", ""
	case "request_method":
		return "method", ""
	}
	kind, rest, _ := strings.Cut(name, "_")
	switch {
	case rest == "":
	case kind == "http":
		return "header:" + textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(rest, "_", "-")), ""
	case kind == "arg":
		return "query:" + rest, ""
	case kind == "cookie":
		return "cookie:" + rest, ""
	}
	if set, known := c.variables[name]; known && set.name == "map" {
		return c.mapped(set)
	}
	return "", ""
}

// mapped returns the origin of a variable that a map sets to another variable, or to nothing
// for requests that are not counted. If a geo says for which, its networks become a list.
func (c *nginxConfig) mapped(set directive) (origin, exempt string) {
	values := map[string]string{} // of the map, by what they are for
	for _, d := range set.block {
		values[d.name] = d.arg(0)
		if m := variable.FindStringSubmatch(d.arg(0)); m != nil && origin == "" {
			origin, _ = c.origin(d.line, m[1]+m[2])
		}
	}
	by := strings.TrimPrefix(set.arg(0), "$")
	geo, known := c.variables[by]
	if origin == "" || !known || geo.name != "geo" || len(geo.args) > 1 {
		c.note(set.line, set.String()+" decides which requests are counted, which is not carried over", "write a list with action: bypass, or another route, for those that are not")
		return origin, ""
	}
	var networks []string
	for _, d := range geo.block {
		value, given := values[d.arg(0)]
		if !given {
			value = values["default"]
		}
		if value != "" || d.name == "proxy" || d.name == "delete" || d.name == "ranges" {
			continue
		}
		if d.name == "default" {
			c.note(d.line, "clients that are not in geo $"+by+" are not counted, which is not carried over", "write a list with action: bypass for those that are not counted")
			continue
		}
		networks = append(networks, d.name)
	}
	if len(networks) == 0 {
		return origin, ""
	}
	return origin, c.addBypass(by, networks)
}
