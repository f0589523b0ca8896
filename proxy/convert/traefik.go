package convert

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// expectedTraefik is what the file should be.
const expectedTraefik = "expected a dynamic configuration of Traefik in YAML with http.middlewares, its Kubernetes objects (Middleware, IngressRoute), or a Compose file with its labels"

// A traefikConfig is what is read of the dynamic configuration of Traefik.
type traefikConfig struct {
	*document
	middlewares map[string]node
	services    map[string]node
	limits      int // middlewares with limits
}

// A traefikRouter selects requests and names the middlewares that they go through.
type traefikRouter struct {
	name        string
	rule        node
	middlewares []node
	prefix      string // of names of middlewares; for Kubernetes the namespace
	upstream    func() *entry
}

// convertTraefik converts a dynamic configuration: a file, Kubernetes objects, or labels.
func convertTraefik(d *document, data []byte) error {
	documents, err := d.documents(data, expectedTraefik)
	if err != nil {
		return err
	}
	c := &traefikConfig{document: d, middlewares: map[string]node{}, services: map[string]node{}}
	all := objects(documents)
	for i, o := range all {
		if o.get("services").isThere() && !o.get("http").isThere() {
			all[i] = labels(o)
		}
		c.define(all[i])
	}
	if c.limits == 0 {
		return d.wrong(all[0].line(), "there is no rateLimit and no inFlightReq", expectedTraefik)
	}
	d.note(0, "Traefik counts in each instance, and for each router by itself, unless rateLimit has redis",
		"with store: redis all Weirs have one count; write scope: per_instance in a limit for one in each")
	for _, o := range all {
		if err := c.routers(o); err != nil {
			return err
		}
	}
	if len(d.routes) > 0 {
		return nil
	}
	d.note(0, "no router of this file uses its middlewares", "name the limits in the routes that they are for; until then one route has all of them")
	return c.withoutRouters()
}

// define reads the middlewares and services of an object.
func (c *traefikConfig) define(o node) {
	for name, m := range o.get("http", "middlewares").fields() {
		c.middleware(name.text(), m)
	}
	for name, s := range o.get("http", "services").fields() {
		c.services[name.text()] = s
	}
	if strings.EqualFold(o.get("kind").text(), "Middleware") {
		c.middleware(namespaceOf(o)+"-"+o.get("metadata", "name").text(), o.get("spec"))
	}
}

// namespaceOf returns the namespace of an object of Kubernetes.
func namespaceOf(o node) string {
	if n := o.get("metadata", "namespace").text(); n != "" {
		return n
	}
	return "default"
}

// middleware reads one middleware.
func (c *traefikConfig) middleware(name string, m node) {
	c.middlewares[name] = m
	if m.get("rateLimit").isThere() || m.get("inFlightReq").isThere() {
		c.limits++
	}
}

// routers converts the routers of an object.
func (c *traefikConfig) routers(o node) error {
	for name, r := range o.get("http", "routers").fields() {
		service := r.get("service")
		if err := c.router(traefikRouter{name.text(), r.get("rule"), r.get("middlewares").items(), "", func() *entry { return c.upstream(service.text(), r) }}); err != nil {
			return err
		}
	}
	switch strings.ToLower(o.get("kind").text()) {
	case "ingressroute":
		for _, r := range o.get("spec", "routes").items() {
			upstream := func() *entry { return c.kubernetesUpstream(namespaceOf(o), r) }
			if err := c.router(traefikRouter{o.get("metadata", "name").text(), r.get("match"), r.get("middlewares").items(), namespaceOf(o), upstream}); err != nil {
				return err
			}
		}
	case "ingress":
		return c.ingress(o)
	}
	return nil
}

// ingress converts an Ingress, whose middlewares are in an annotation.
func (c *traefikConfig) ingress(o node) error {
	i := &ingress{document: c.document, object: o, namespace: namespaceOf(o)}
	i.name = i.namespace + "-" + o.get("metadata", "name").text()
	at := o.get("metadata", "annotations", "traefik.ingress.kubernetes.io/router.middlewares")
	for _, name := range commaSeparated(at.text()) {
		limits, err := c.use(i.name, strings.Split(name, "@")[0], at.line())
		if err != nil {
			return err
		}
		i.limits = append(i.limits, limits...)
	}
	if len(i.limits) == 0 {
		return nil
	}
	return i.routes()
}

// router converts a router.
func (c *traefikConfig) router(r traefikRouter) error {
	matches, err := parseRule(r.rule.text())
	if err != nil {
		c.note(r.rule.line(), "the rule "+r.rule.text()+" is not carried over, nor are its middlewares: "+err.Error(), "write a route with match: for it")
		return nil
	}
	var limits []string
	for _, m := range r.middlewares {
		name, line := m.text(), m.line()
		if m.get("name").isThere() { // of an IngressRoute
			namespace := m.get("namespace").text()
			if namespace == "" {
				namespace = r.prefix
			}
			name = namespace + "-" + m.get("name").text()
		}
		for _, name := range commaSeparated(name) {
			own, err := c.use(r.name, strings.Split(name, "@")[0], line)
			if err != nil {
				return err
			}
			limits = append(limits, own...)
		}
	}
	upstream := r.upstream()
	for _, m := range matches {
		fields := mapping{{"match", m.fields.flow()}, {"upstream", upstream.name}}
		fields.set("limits", texts(limits))
		made := c.addRoute(r.name, fields)
		if m.prefix != "" {
			made.note(r.rule.line(), "PathPrefix also takes what only begins with it, as "+m.prefix+"x", "if that is meant, write a route for it")
		}
	}
	return nil
}

// use returns the limits of a middleware for a router, which counts by itself.
func (c *traefikConfig) use(router, name string, line int) ([]string, error) {
	m, known := c.middlewares[name]
	if !known {
		c.note(line, "middleware "+name+" is not in this file", "convert it together with this one if it has limits")
		return nil, nil
	}
	var limits []string
	for _, inner := range m.get("chain", "middlewares").items() {
		inner := inner
		if inner.get("name").isThere() {
			inner = inner.get("name")
		}
		if inner.text() == name {
			continue
		}
		own, err := c.useInChain(router, name, inner)
		if err != nil {
			return nil, err
		}
		limits = append(limits, own...)
	}
	if at := m.get("rateLimit"); at.isThere() {
		l, err := c.rateLimit(router+"-"+name, at)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l...)
	}
	if at := m.get("inFlightReq"); at.isThere() {
		n, err := c.number(at.get("amount"))
		if err != nil {
			return nil, err
		}
		if n > 0 {
			fields := mapping{{"key", c.criterion(at, "host")}, {"concurrent", c.concurrent(n, at.line())}}
			limits = append(limits, c.addLimit(router+"-"+name, fields).name)
		}
	}
	return limits, nil
}

// useInChain returns the limits of a middleware in a chain, which is no chain itself.
func (c *traefikConfig) useInChain(router, chain string, inner node) ([]string, error) {
	name := strings.Split(inner.text(), "@")[0]
	if _, known := c.middlewares[name]; !known {
		namespace, _, _ := strings.Cut(chain, "-")
		name = namespace + "-" + name // of Kubernetes
	}
	if c.middlewares[name].get("chain").isThere() {
		c.note(inner.line(), "the chain "+name+" in a chain is not carried over", "name its middlewares in the router")
		return nil, nil
	}
	return c.use(router, name, inner.line())
}

// rateLimit returns the limit for a rateLimit; none if it limits nothing. Traefik fills a
// bucket of burst requests at the rate, and lets a request wait for half of the time between
// two: gcra has the same state in other units.
func (c *traefikConfig) rateLimit(name string, at node) ([]string, error) {
	average, err := c.number(at.get("average"))
	if err != nil || average == 0 {
		return nil, err
	}
	size, err := c.number(at.get("burst"))
	if err != nil {
		return nil, err
	}
	period, err := c.period(at.get("period"))
	if err != nil {
		return nil, err
	}
	fields := mapping{
		{"key", c.criterion(at, "client_ip")},
		{"rate", fmt.Sprintf("%d/%s", average, windowName(period))},
		{"algorithm", "gcra"},
		{"burst", strconv.FormatInt(max(size, 1), 10)},
	}
	if wait := traefikDelay(average, period); wait >= time.Millisecond {
		fields.set("wait", windowName(wait.Truncate(time.Millisecond)))
	}
	l := c.addLimit(name, fields)
	if redis := at.get("redis"); redis.isThere() {
		l.note(redis.line(), "redis is not carried over", "write store: redis and redis: {addrs: "+texts(redis.get("endpoints").texts())+"}")
	}
	return []string{l.name}, nil
}

// traefikDelay returns how long Traefik lets a request wait.
func traefikDelay(average int64, period time.Duration) time.Duration {
	perSecond := float64(average) * float64(time.Second) / float64(period)
	if perSecond < 1 {
		return time.Second / 2
	}
	return time.Second / (time.Duration(perSecond) * 2)
}

// period reads the period of a rateLimit: a duration, or a number of seconds.
func (c *traefikConfig) period(at node) (time.Duration, error) {
	if at.text() == "" || at.text() == "0" {
		return time.Second, nil
	}
	if n, err := strconv.Atoi(at.text()); err == nil && n > 0 && n < 1<<25 {
		return time.Duration(n) * time.Second, nil
	}
	period, err := time.ParseDuration(at.text())
	if err != nil || period < time.Millisecond {
		return 0, c.wrong(at.line(), strconv.Quote(at.text())+" is not a period", "expected a duration, for example 1m")
	}
	return period, nil
}

// criterion returns the key for the sourceCriterion of a middleware.
func (c *traefikConfig) criterion(m node, otherwise string) string {
	at := m.get("sourceCriterion")
	if name := at.get("requestHeaderName").text(); name != "" {
		return c.addKey(strings.ReplaceAll(strings.ToLower(name), "-", "_"), mapping{{"from", text("header:" + name)}, {"on_missing", "shared"}})
	}
	if at.get("requestHost").text() == "true" {
		return "host"
	}
	strategy := at.get("ipStrategy")
	if !strategy.isThere() {
		return otherwise
	}
	if depth := strategy.get("depth"); depth.text() != "" && depth.text() != "0" {
		c.note(depth.line(), "ipStrategy.depth is not carried over", "write client_ip: {trusted_proxies: [NETWORKS]} with the networks of these "+depth.text()+" proxies")
	}
	if excluded := strategy.get("excludedIPs"); excluded.isThere() {
		c.note(excluded.line(), "ipStrategy.excludedIPs is not carried over", "write client_ip: {trusted_proxies: "+texts(excluded.texts())+"}")
	}
	if subnet := strategy.get("ipv6Subnet"); subnet.text() != "" {
		c.note(subnet.line(), "ipStrategy.ipv6Subnet is not carried over", "write client_ip: {ipv6_prefix: "+subnet.text()+"}")
	}
	return "client_ip"
}
