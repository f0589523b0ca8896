package convert

import "strings"

// key returns the key that a plugin counts by.
func (c *kongConfig) key(p kongPlugin, service, r node, notes *[]Note) string {
	config := p.get("config")
	by := config.get("limit_by")
	if !by.isThere() {
		by = config.get("identifier")
	}
	add := func(what, instead string) { *notes = append(*notes, Note{p.line(), what, instead}) }
	switch kind := by.text(); kind {
	case "ip":
		return "client_ip"
	case "service":
		return "global"
	case "header":
		return c.orAddress("header:" + config.get("header_name").text())
	case "path":
		add("limit_by: path counts "+config.get("path").text()+" for all clients together, and other paths by address", "write a route for this path with a limit with key: global")
		return "client_ip"
	case "", "consumer", "credential":
		return c.credential(service, r, add)
	default:
		add("limit_by: "+kind+" is not carried over", "write a limit with the key that tells them apart, or plans")
		return "client_ip"
	}
}

// orAddress returns the key from an origin; requests without it are counted by address, as
// Kong does.
func (d *document) orAddress(origin string) string {
	_, name, _ := strings.Cut(origin, ":")
	return d.addKey(strings.ReplaceAll(strings.ToLower(name), "-", "_"), mapping{{"from", text(origin)}, {"on_missing", "{use: client_ip}"}})
}

// credential returns the key for a limit by consumer: the credential with which the plugin
// that authenticates the route finds the consumer.
func (c *kongConfig) credential(service, r node, add func(what, instead string)) string {
	serviceName, routeName := service.get("name").text(), r.get("name").text()
	if p, ok := c.plugin(serviceName, routeName, func(n string) bool { return n == "key-auth" }); ok {
		names := p.get("config", "key_names").texts()
		if len(names) == 0 {
			names = []string{"apikey"}
		}
		add("Kong counts a consumer with all its API keys, and has verified them; Weir counts each value of "+names[0], "verify keys behind Weir, and refund what is refused there with refund_on: {status: [401]}")
		return c.orAddress("header:" + names[0])
	}
	if _, ok := c.plugin(serviceName, routeName, func(n string) bool { return n == "jwt" || n == "openid-connect" }); ok {
		add("limits by consumer are by address here", "write jwt: {keys: [FILE]} with the keys of the issuer, and key: jwt:sub in the limit")
		return "client_ip"
	}
	add("limits by consumer are by address here, as Kong counts requests without a consumer", "write a limit with the key that tells clients apart")
	return "client_ip"
}

// kongUpstream returns the upstream for a service.
func (c *kongConfig) kongUpstream(service, r node) *entry {
	name := service.get("name").text()
	target := service.get("url").text()
	if target == "" && service.get("host").text() != "" {
		protocol, port := service.get("protocol").text(), service.get("port").text()
		if protocol == "" {
			protocol = "http"
		}
		if port == "" {
			port = "80"
		}
		target = protocol + "://" + service.get("host").text() + ":" + port
	}
	scheme, rest, ok := strings.Cut(target, "://")
	host, _, _ := strings.Cut(rest, "/")
	if !ok || host == "" || scheme != "http" && scheme != "https" {
		return c.unknownUpstream(name, r.line())
	}
	return c.addUpstream(name, mapping{{"targets", texts([]string{scheme + "://" + host})}})
}

// kongPath returns the path of a service, which is added to that of requests.
func kongPath(service node) string {
	if path := service.get("path").text(); path != "" {
		return path
	}
	_, rest, _ := strings.Cut(service.get("url").text(), "://")
	_, path, found := strings.Cut(rest, "/")
	if !found {
		return ""
	}
	return "/" + path
}
