package convert

import (
	"fmt"
	"math"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/view"
)

// limitsOf returns the limits that apply in a context.
func (c *nginxConfig) limitsOf(context nginxContext) (limits []string) {
	for _, d := range slices.Concat(context.directives["limit_req"], context.directives["limit_conn"]) {
		use(d)
		name := d.arg(0)
		for _, arg := range d.args {
			if value, ok := strings.CutPrefix(arg, "zone="); ok {
				name = value
			}
		}
		zone, known := c.zones[d.name+" "+name]
		if !known {
			c.note(d.line, d.String()+" names a zone that is not in this file",
				"convert the output of nginx -T, which has all files")
			continue
		}
		use(zone.directive)
		key := c.key(zone.line, zone.name, zone.arg(0))
		if key.text == "" {
			continue // has a note
		}
		if dryRun := context.last(d.name + "_dry_run"); dryRun.arg(0) == "on" {
			use(dryRun)
			key.shadow = true
		}
		name = c.limit(zone, d, key)
		if name == "" {
			c.note(d.line, d.String()+" is not carried over",
				"expected limit_req zone=NAME burst=NUMBER nodelay, or limit_conn NAME NUMBER")
			continue
		}
		limits = view.AddNew(limits, name)
	}
	return limits
}

// limit returns the name of the limit for a limit_req or limit_conn, which all that use the
// zone in the same way share; "" for one that cannot be read.
func (c *nginxConfig) limit(zone nginxZone, d *directive, key zoneKey) string {
	id := fmt.Sprint(d.name, d.args, key.shadow)
	if l := c.limits[id]; l != nil {
		return l.name
	}
	fields := mapping{{"key", key.text}}
	b, known := nginxBurst(d)
	connections, err := strconv.ParseInt(d.arg(1), 10, 32)
	switch {
	case d.name == "limit_req" && known:
		fields = append(fields, leaky(zone.count, zone.per, b)...)
	case d.name == "limit_conn" && err == nil && connections > 0:
		fields.set("concurrent", c.concurrent(connections, d.line))
	default:
		return ""
	}
	if key.shadow {
		fields.set("mode", "shadow")
	}
	l := c.add("limit", zone.name, fields)
	l.notes = key.notes
	for id, other := range c.limits {
		if strings.HasPrefix(id, d.name+"[") && strings.HasPrefix(other.name, zone.name) {
			l.notes.add(d.line, d.String()+": nginx has one count for zone "+zone.name+", Weir another one for this use "+
				"of it", "use the zone in the same way everywhere if it should stay one count")
			break
		}
	}
	if d.name == "limit_req" && b.longest(zone.count, zone.per) > longestWait {
		l.notes.add(d.line, d.String()+" lets requests wait for more than a minute",
			"they are refused after a minute; write a smaller burst, or nodelay")
	}
	c.limits[id] = l
	return l.name
}

// A burst is what limit_req allows beyond its rate: so many requests, of which those beyond
// free wait.
type burst struct{ all, free int64 }

// nginxBurst reads the burst of a limit_req, and reports whether it can.
func nginxBurst(d *directive) (b burst, known bool) {
	for _, arg := range d.args {
		name, value, _ := strings.Cut(arg, "=")
		n, err := strconv.ParseInt(value, 10, 32)
		switch {
		case name == "zone":
		case name == "nodelay" && value == "":
			b.free = math.MaxInt32
		case err != nil || n < 0:
			return b, false
		case name == "burst":
			b.all = n
		case name == "delay":
			b.free = n
		default:
			return b, false
		}
	}
	b.free = min(b.free, b.all)
	return b, true
}

const (
	longestWait = time.Minute // how long a request may wait in Weir
	mostWaiting = 100_000     // how many may wait
)

// longest returns how long the last request of a burst waits at count requests per window.
func (b burst) longest(count int64, window time.Duration) time.Duration {
	return time.Duration(float64(b.all-b.free) * float64(window) / float64(count))
}

// leaky returns the fields of a limit that admits what the leaky bucket of nginx does. That
// counts the requests beyond the first one, so it holds one more than its burst: gcra with
// that burst has the same state in other units. A request that nginx delays waits in Weir
// until there is a permit, at most for as long as the last one of the burst.
func leaky(count int64, window time.Duration, b burst) mapping {
	fields := mapping{
		{"rate", fmt.Sprintf("%d/%s", count, limiter.WindowName(window))},
		{"algorithm", "gcra"},
		{"burst", strconv.FormatInt(b.free+1, 10)},
	}
	if wait := min(b.longest(count, window), longestWait); wait > 0 {
		fields.setDuration("wait", (wait + time.Millisecond - 1).Truncate(time.Millisecond))
		fields.set("max_waiting", strconv.FormatInt(min(b.all+1, mostWaiting), 10)) // all may come at once
	}
	return fields
}

// variable matches a variable of nginx, $NAME or ${NAME}.
var variable = regexp.MustCompile(`\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))`)

// A zoneKey is by what a zone counts.
type zoneKey struct {
	text   string // as YAML; "" if it cannot be carried over
	shadow bool   // Weir would count requests that nginx does not count, or all clients of a proxy as one
	notes  notes
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
			key.notes.add(line, "behind a proxy that sends "+field+
				" all clients would have its address, so this limit refuses nobody",
				"write client_ip: {trusted_proxies: [NETWORKS], header: "+field+"}, and mode: enforce")
		}
		origins = append(origins, origin)
	}
	for i, origin := range origins {
		origins[i] = c.nginxKey(origin, map[bool]string{true: "skip", false: "shared"}[alone])
	}
	if value == "" {
		c.noKey(line, zone, "nothing: nginx counts no request without one")
		return key
	}
	key.text = c.joinKeys(zone+"_key", origins)
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
	return d.share("key", strings.ReplaceAll(strings.ToLower(name), "-", "_"),
		mapping{{"from", text(origin)}, {"on_missing", onMissing}}).name
}

// addressFields are the fields in which proxies send the address of the client, by the
// variable that has them.
func addressFields() map[string]string {
	return map[string]string{
		"http_x_forwarded_for": "X-Forwarded-For", "proxy_add_x_forwarded_for": "X-Forwarded-For",
		"http_x_real_ip":        "X-Real-IP",
		"http_cf_connecting_ip": "CF-Connecting-IP", "http_true_client_ip": "True-Client-IP",
	}
}

// origin returns where Weir reads what a variable of nginx has; "" if it does not.
func (c *nginxConfig) origin(line int, name string) string {
	if field := addressFields()[name]; field != "" {
		c.note(line, "any client can send "+field+", so client_ip is used instead of $"+name,
			"write client_ip: {trusted_proxies: [NETWORKS], header: "+field+"}")
		return "client_ip"
	}
	switch name {
	case "binary_remote_addr", "remote_addr":
		return "client_ip"
	case "server_name":
		c.note(line, "$server_name is the same for all names of a server",
			"the key is host, which counts each name by itself; write key: global for one count")
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
	key.notes.add(set.line, set.String()+
		" decides which requests are counted, and Weir would count all, so this limit refuses nobody",
		"write a list with action: bypass for addresses that are not counted, or a route with match: "+
			"{headers, query or methods} for requests that are, and mode: enforce")
	return key
}
