package convert

import (
	"net/textproto"
	"regexp"
	"strings"
)

// variable matches a variable of nginx, $NAME or ${NAME}.
var variable = regexp.MustCompile(`\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))`)

// A zoneKey is by what a zone counts.
type zoneKey struct {
	text   string // as YAML; "" if it cannot be carried over
	shadow bool   // Weir would count requests that nginx does not count, or all clients of a proxy as one
	notes  []Note
}

// key returns the key for the value by which the zone counts. One that Weir does not have has a
// note.
func (c *nginxConfig) key(line int, zone, value string) zoneKey {
	all := variable.FindAllStringSubmatch(value, -1)
	alone := len(all) == 1 && all[0][0] == value // then requests without a value are not counted
	if alone {
		if set := c.variables[all[0][1]+all[0][2]]; set != nil && set.name == "map" {
			return c.mapped(zone, set)
		}
	}
	var origins []string
	var key zoneKey
	for _, m := range all {
		name := m[1] + m[2]
		origin := c.origin(line, name)
		if origin == "" {
			c.noKey(line, zone, "$"+name)
			return zoneKey{}
		}
		if field := addressFields()[name]; field != "" && !strings.EqualFold(c.addressIn, field) {
			key.shadow = true
			key.notes = append(key.notes, Note{Line: line, What: "behind a proxy that sends " + field +
				" all clients would have its address, so this limit refuses nobody",
				Instead: "write client_ip: {trusted_proxies: [NETWORKS], header: " + field + "}, and mode: enforce"})
		}
		origins = append(origins, origin)
	}
	for i, origin := range origins {
		origins[i] = c.nginxKey(origin, map[bool]string{true: "skip", false: "shared"}[alone])
	}
	switch {
	case len(origins) > 1:
		key.text = c.addKey(zone+"_key", mapping{{"join", texts(origins)}})
	case len(origins) == 1:
		key.text = origins[0]
	case value != "":
		key.text = "global" // a constant
	default:
		c.noKey(line, zone, "nothing: nginx counts no request without one")
	}
	return key
}

// noKey notes that a zone is not carried over.
func (c *nginxConfig) noKey(line int, zone, what string) {
	c.note(line, "zone "+zone+" is not carried over: Weir has no key for "+what,
		"write a limit with a key from path:NAME, header:NAME, query:NAME or cookie:NAME, see Keys in the reference")
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

// origin returns where Weir reads what a variable of nginx has; "" if it does not.
func (c *nginxConfig) origin(line int, name string) string {
	if field := addressFields()[name]; field != "" {
		c.note(line, "any client can send "+field+", so client_ip is used instead of $"+name, "write client_ip: {trusted_proxies: [NETWORKS], header: "+field+"}")
		return "client_ip"
	}
	switch name {
	case "binary_remote_addr", "remote_addr":
		return "client_ip"
	case "server_name":
		c.note(line, "$server_name is the same for all names of a server", "the key is host, which counts each name by itself; write key: global for one count")
		return "host"
	case "host", "http_host":
		return "host"
	case "request_method":
		return "method"
	}
	kind, rest, _ := strings.Cut(name, "_")
	if source := map[string]string{"http": "header:", "arg": "query:", "cookie": "cookie:"}[kind]; source != "" &&
		rest != "" {
		if kind == "http" {
			rest = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(rest, "_", "-"))
		}
		return source + rest
	}
	return ""
}

// mapped returns the key for a zone whose variable a map sets: to one variable, and to nothing for
// requests that are not counted. Weir would count all requests, so then the limit refuses nobody.
func (c *nginxConfig) mapped(zone string, set *directive) zoneKey {
	set.useAll()
	counted, known := "", true
	for _, d := range set.block {
		value := d.arg(0)
		if value == "" || d.name == "include" {
			continue
		}
		m := variable.FindStringSubmatch(value)
		known = known && m != nil && m[0] == value && (counted == "" || counted == value) &&
			c.variables[m[1]+m[2]] == nil && c.origin(set.line, m[1]+m[2]) != ""
		counted = value
	}
	if counted == "" || !known {
		c.noKey(set.line, zone, "what "+set.String()+" sets")
		return zoneKey{}
	}
	key := c.key(set.line, zone, counted)
	if key.text == "" || len(set.block) == 1 && set.block[0].name == "default" {
		return key
	}
	key.shadow = true
	key.notes = append(key.notes, Note{Line: set.line, What: set.String() +
		" decides which requests are counted, and Weir would count all, so this limit refuses nobody",
		Instead: "write a list with action: bypass for addresses that are not counted, or a route with match: {headers, query " +
			"or methods} for requests that are, and mode: enforce"})
	return key
}
