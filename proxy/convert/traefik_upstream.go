package convert

import (
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// upstream returns the upstream for a service that a router names.
func (c *traefikConfig) upstream(name string, router node) *entry {
	name = strings.Split(name, "@")[0]
	balancer := c.services[name].get("loadBalancer")
	var targets []string
	for _, s := range balancer.get("servers").items() {
		if url := s.get("url").text(); url != "" {
			targets = append(targets, url)
		}
	}
	if port := balancer.get("server", "port").text(); port != "" { // of a label
		targets = append(targets, "http://"+name+":"+port)
	}
	if len(targets) > 0 {
		return c.addUpstream(name, mapping{{"targets", texts(targets)}})
	}
	return c.unknownUpstream(name, router.line())
}

// unknownUpstream returns an upstream without a known address.
func (d *document) unknownUpstream(name string, line int) *entry {
	if name == "" {
		name = "upstream"
	}
	u := d.addUpstream(name, mapping{{"targets", texts([]string{"http://" + strings.Trim(notInName.ReplaceAllString(strings.ToLower(name), "-"), "-_") + ".invalid"})}})
	if len(u.notes) == 0 {
		u.note(line, "the servers of "+name+" are not in this file", "write the addresses of its targets")
	}
	return u
}

// kubernetesUpstream returns the upstream for a route of an IngressRoute.
func (c *traefikConfig) kubernetesUpstream(namespace string, route node) *entry {
	var targets []string
	name := ""
	for _, s := range route.get("services").items() {
		if own := s.get("namespace").text(); own != "" {
			namespace = own
		}
		name = s.get("name").text()
		port := s.get("port").text()
		if port == "" || strings.Trim(port, "0123456789") != "" || strings.EqualFold(s.get("kind").text(), "TraefikService") {
			return c.unknownUpstream(name, s.line())
		}
		targets = append(targets, "http://"+name+"."+namespace+".svc:"+port)
	}
	if len(targets) == 0 {
		return c.unknownUpstream(name, route.line())
	}
	return c.addUpstream(name, mapping{{"targets", texts(targets)}})
}

// withoutRouters makes one route with all limits of a file that has only middlewares.
func (c *traefikConfig) withoutRouters() error {
	var limits []string
	for _, name := range slices.Sorted(maps.Keys(c.middlewares)) {
		if c.middlewares[name].get("chain").isThere() {
			continue
		}
		own, err := c.use("all", name, 0)
		if err != nil {
			return err
		}
		limits = append(limits, own...)
	}
	c.addRoute("all", mapping{{"match", "{path: /*}"}, {"upstream", c.unknownUpstream("", 0).name}, {"limits", texts(limits)}})
	return nil
}

// labels returns the labels of the services of a Compose file as a dynamic configuration.
func labels(compose node) node {
	root := &yaml.Node{Kind: yaml.MappingNode, Line: compose.line()}
	for service, s := range compose.get("services").fields() {
		for _, place := range []node{s.get("labels"), s.get("deploy", "labels")} {
			for name, value := range place.fields() {
				label(root, service.text(), name, value.text())
			}
			if place.isThere() && place.at.Kind == yaml.SequenceNode {
				for _, item := range place.items() {
					name, value, _ := strings.Cut(item.text(), "=")
					label(root, service.text(), node{&yaml.Node{Kind: yaml.ScalarNode, Value: name, Line: item.line()}}, value)
				}
			}
		}
	}
	return node{root}
}

// label adds a label of a service to the configuration at root. A router without a service
// uses that of its container.
func label(root *yaml.Node, service string, name node, value string) {
	path, ok := strings.CutPrefix(name.text(), "traefik.http.")
	if !ok {
		return
	}
	parts := strings.Split("http."+path, ".")
	at := root
	for i, part := range parts {
		next := node{at}.get(part).at
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode, Line: name.line()}
			if i == len(parts)-1 {
				next = &yaml.Node{Kind: yaml.ScalarNode, Value: strings.ReplaceAll(value, "$$", "$"), Line: name.line()}
			}
			at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: part, Line: name.line()}, next)
		}
		at = next
	}
	if len(parts) > 3 && parts[1] == "routers" && !(node{root}).get("http", "routers", parts[2], "service").isThere() {
		label(root, service, node{&yaml.Node{Kind: yaml.ScalarNode, Value: "traefik.http.routers." + parts[2] + ".service", Line: name.line()}}, service)
	}
}
