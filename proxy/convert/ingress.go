package convert

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// ingressPrefix is that of the annotations of ingress-nginx.
const ingressPrefix = "nginx.ingress.kubernetes.io/"

// expectedIngress is what the file should be.
const expectedIngress = "expected Ingress objects with annotations like " + ingressPrefix +
	"limit-rps, for example the output of kubectl get ingress -A -o yaml"

// An ingress is an Ingress object with the annotations of ingress-nginx.
type ingress struct {
	*document
	object    node
	defaults  node   // data of the ConfigMap of ingress-nginx
	name      string // NAMESPACE-NAME
	namespace string
	limits    []string
	lists     []string // that exempt from limits
	denies    []string // that refuse
	others    notes    // written above its first route
	lost      notes    // above each route
	status    string   // of refusals; "" for that of Weir
}

// convertIngress converts the Ingress objects in a file.
func convertIngress(d *document, data []byte) {
	documents := d.documents(data, expectedIngress)
	if d.fault != nil {
		return
	}
	all := objects(documents)
	var defaults node
	for _, o := range all {
		if o.isKind("ConfigMap") {
			o.useMeta()
			defaults = o.get("data")
		}
	}
	status := defaults.get("limit-req-status-code").text()
	if n, err := strconv.Atoi(status); err != nil || n < 400 || n > 599 {
		status = ""
	}
	d.ingressClientIP(defaults)
	d.ingressHead(status)
	for _, o := range all {
		if o.isKind("Ingress") {
			i := &ingress{document: d, object: o, defaults: defaults, status: status,
				namespace: cmp.Or(o.get("metadata", "namespace").text(), "default")}
			i.name = i.namespace + "-" + o.get("metadata", "name").text()
			i.convert()
		}
	}
	for _, o := range all {
		if o.isKind("Ingress") || o.isKind("ConfigMap") {
			d.leaveUnused(o, ingressHint)
		} else {
			d.left.add(o.line(), kindOf(o), "it is no Ingress")
		}
	}
	first := slices.Concat(all, documents)[0] // a list may be empty
	switch {
	case !slices.ContainsFunc(all, func(o node) bool { return o.isKind("Ingress") }):
		d.wrong(first.line(), "there is no Ingress, but "+kindOf(first), expectedIngress)
	case len(d.entries["limit"]) == 0:
		d.wrong(0, "no Ingress has limits", expectedIngress)
	case len(d.entries["route"]) == 0:
		d.wrong(0, "no Ingress has a host and a path that Weir has", expectedIngress)
	}
}

// isKind reports whether an object is of a kind.
func (n node) isKind(kind string) bool { return strings.EqualFold(n.get("kind").text(), kind) }

// ingressClientIP reads from whom ingress-nginx takes the address of the client.
func (d *document) ingressClientIP(defaults node) {
	if defaults.get("proxy-real-ip-cidr").text() == "" {
		return
	}
	trusted, _ := networks(defaults.get("proxy-real-ip-cidr").text())
	header := defaults.get("forwarded-for-header").text()
	switch {
	case len(trusted) == 0:
	case defaults.get("use-proxy-protocol").text() == "true":
		d.sections.set("listen", mapping{{"proxy_protocol", texts(trusted)}}.flow())
	case defaults.get("use-forwarded-headers").text() == "true":
		fields := mapping{{"trusted_proxies", texts(trusted)}}
		if headerName.MatchString(header) {
			fields.set("header", text(header))
		}
		d.sections.set("client_ip", fields.flow())
	}
}

// kindOf returns what an object is.
func kindOf(o node) string {
	if kind := o.get("kind").text(); kind != "" {
		return "kind: " + kind
	}
	return "an object without kind"
}

// ingressHead says what is different for all objects.
func (d *document) ingressHead(status string) {
	d.note(0,
		"each replica of ingress-nginx counts by itself, so clients have these rates times the number of replicas",
		"write store: redis for one count in all Weirs, and rates as high as clients had them")
	d.note(0,
		"ingress-nginx waits 60 s for a response and refuses bodies of more than 1 MiB where proxy-read-timeout "+
			"and proxy-body-size do not say otherwise; Weir waits 30 s and takes any body",
		"write timeouts: {response: 60s} in upstreams, and body: {max: 1MiB} in routes")
	if status == "" {
		d.note(0, "ingress-nginx refuses with 503 unless its ConfigMap has limit-req-status-code, Weir with 429",
			"write reject: {status: 503} where clients depend on it")
	}
}

// annotation returns the value of an annotation.
func (i *ingress) annotation(name string) node {
	return i.object.get("metadata", "annotations", ingressPrefix+name)
}

// setting returns the value of an annotation, which may be empty, by the first of its names that is there, or else what the
// ConfigMap has for all objects.
func (i *ingress) setting(names ...string) (n node) {
	for at, read := range []func(string) node{i.annotation, func(name string) node { return i.defaults.get(name) }} {
		for _, name := range names {
			if n = read(name); n.text() != "" || at == 0 && n.isThere() {
				return n
			}
		}
	}
	return node{}
}

// convert converts one object.
func (i *ingress) convert() {
	i.object.useMeta()
	i.object.get("spec", "ingressClassName")
	if canary := i.annotation("canary"); canary.text() == "true" {
		i.note(canary.line(), i.name+" is a canary, which is not carried over",
			"write weights of targets in the upstream of the other Ingress")
		i.object.useAll()
		return
	}
	i.readLimits()
	if at := i.setting("limit-allowlist", "limit-whitelist"); len(i.limits) > 0 && at.text() != "" {
		exempt, unknown := networks(at.text())
		if unknown != "" {
			i.note(at.line(), unknown+" is not carried over: it is no address or network",
				"write it in the list "+i.name)
		}
		if len(exempt) > 0 {
			i.lists = []string{i.addAddresses(i.name, exempt, "bypass")}
		}
	}
	i.guard()
	i.routes()
	i.head = append(i.head, i.others...)
}

// readLimits converts the limits of the object.
func (i *ingress) readLimits() {
	multiplier := cmp.Or(i.number(i.annotation("limit-burst-multiplier")), 5)
	for _, l := range []struct {
		name   string
		window time.Duration
	}{{"rps", time.Second}, {"rpm", time.Minute}} {
		if n := min(i.number(i.annotation("limit-"+l.name)), limiter.MaxCount); n > 0 {
			all := burst{all: n * multiplier, free: n * multiplier}
			i.addLimit(l.name, append(mapping{{"key", "client_ip"}}, leaky(n, l.window, all)...))
		}
	}
	connections := i.annotation("limit-connections")
	if n := i.number(connections); n > 0 {
		i.addLimit("connections", mapping{{"key", "client_ip"}, {"concurrent", i.concurrent(n, connections.line())}})
	}
}

// addLimit adds a limit of this object, which all its paths share.
func (i *ingress) addLimit(name string, fields mapping) {
	i.limits = append(i.limits, i.add("limit", i.name+"-"+name, fields).name)
}

// networks returns the networks of a list, and one of what is none.
func networks(list string) (all []string, unknown string) {
	for _, text := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		if n := network(text); n != "" {
			all = append(all, n)
		} else {
			unknown = text
		}
	}
	return all, unknown
}

// guard carries over what protects the object. What Weir does not have is lost.
func (i *ingress) guard() {
	known := true
	read := func(names ...string) []string {
		list := i.setting(names...)
		all, unknown := networks(list.text())
		if unknown != "" || list.isThere() && len(all) == 0 { // then ingress-nginx denies the location
			known = false
			i.lost = append(i.lost, lostNote(list.line(), strings.Join(names, " or ")+": "+list.text()))
		}
		return all
	}
	r := rules{denied: read("denylist-source-range"), allowed: read("allowlist-source-range", "whitelist-source-range")}
	r.only = len(r.allowed) > 0
	for _, from := range []node{i.object.get("metadata", "annotations"), i.defaults} {
		for key, value := range from.fields() {
			name := strings.TrimPrefix(key.text(), ingressPrefix)
			if name == "global-auth-url" && i.annotation("enable-global-auth").text() == "false" {
				continue
			}
			if ingressProtects(name, value) {
				key.use()
				i.lost = append(i.lost, lostNote(key.line(), name+": "+value.text()))
			}
		}
	}
	if known {
		i.denies = i.addRules(r)
	}
	if tls := i.object.get("spec", "tls"); tls.isThere() {
		tls.useAll()
		i.others.add(tls.line(), "tls is not carried over", "write listen: {https: \":8443\", tls: {cert, key}}")
	}
}

// ingressProtects reports whether an annotation, or an entry of the ConfigMap, may refuse
// requests, beside limits and lists of addresses.
func ingressProtects(name string, value node) bool {
	switch name {
	case "auth-type", "auth-url", "auth-tls-secret", "global-auth-url", "block-cidrs", "block-user-agents",
		"block-referers", "modsecurity-snippet", "auth-snippet":
		return value.text() != ""
	case "enable-modsecurity", "enable-owasp-modsecurity-crs":
		return value.text() == "true"
	case "configuration-snippet", "server-snippet", "location-snippet", "http-snippet":
		d := newDocument("nginx", "")
		return refuses(parseNginx(d, []byte(value.text()))) || d.fault != nil
	}
	return false
}

// refuses reports whether anything in a block may refuse requests.
func refuses(block []*directive) bool {
	return slices.ContainsFunc(block, func(d *directive) bool {
		return d.guards() || d.name == "return" && d.status() >= 400 || refuses(d.block)
	})
}

// ingressHint says what to do about an annotation or a field that is not carried over.
func ingressHint(name string) string {
	short, isAnnotation := strings.CutPrefix(name, ingressPrefix)
	switch {
	case !isAnnotation && strings.Contains(name, "/"):
		return "it is not one of ingress-nginx"
	case short == "rewrite-target" || short == "app-root" || short == "use-regex":
		return "write rewrite: in the routes, or let the service take the path as it is; ingress-nginx then takes each path of " +
			"the host in any case, and all that only begins with it: write routes for those that others would get"
	case strings.HasSuffix(short, "ssl-redirect"):
		return "write listen: {https, redirect_https: true, tls}"
	case strings.HasPrefix(short, "use-forwarded") || short == "use-proxy-protocol" || short == "proxy-real-ip-cidr":
		return "write client_ip: {trusted_proxies: [NETWORKS], header}, or limits count all clients of a proxy as one"
	case strings.HasPrefix(short, "global-rate-limit"):
		return "write a limit, and store: redis for one count in all Weirs"
	}
	return "write it in Weir if requests need it, or leave it out"
}

// routes writes the routes of the object.
func (i *ingress) routes() {
	spec := i.object.get("spec")
	for _, rule := range spec.get("rules").items() {
		for _, at := range rule.get("http", "paths").items() {
			i.route(rule.get("host").text(), at, at.get("backend"))
		}
	}
	for _, name := range []string{"defaultBackend", "backend"} {
		if b := spec.get(name); b.isThere() {
			i.route("", b, b)
		}
	}
}

// match returns the paths of the routes for a path; none if Weir has none. prefix is what all of them
// begin with.
func (i *ingress) match(at node) (paths []string, prefix string) {
	path, kind := at.get("path").text(), at.get("pathType").text()
	expression := "^" + path
	for _, rest := range []string{"(/|$)(.*)", "/(.*)", "/.*"} {
		path = strings.TrimSuffix(path, rest)
	}
	if kind != "Exact" {
		path = strings.TrimSuffix(path, "/")
	}
	path = cmp.Or(path, "/")
	switch {
	case !isLiteralPath(path):
		l := &nginxLocation{prefix: expression, modifier: "~*"}
		return nil, l.readExpression()
	case kind == "Exact":
		return []string{path}, path
	case kind != "Prefix" && len(i.lost)+len(i.denies) > 0:
		return beginning(path, ""), path
	}
	return below(path), path
}

// route writes the routes of a path of a host. Those of an object that is protected by what Weir does not
// have refuse all requests.
func (i *ingress) route(host string, at, backend node) {
	paths, prefix := i.match(at)
	if host != "" && !hostPattern.MatchString(host) {
		i.note(at.line(), "host "+host+" is not carried over, nor are its limits: Weir has no such host",
			"write a route for each host, or *.example.com")
		return
	}
	lost, path := i.lost, "path "+at.get("path").text()
	if paths == nil {
		i.note(at.line(), path+" is not carried over, nor are its limits: Weir has no such path",
			"write a route with its paths")
		at.useAll()
		if len(lost)+len(i.denies) == 0 {
			return
		}
		paths = beginning(prefix, "(?i)")
		lost = append(slices.Clone(lost), lostNote(at.line(), path))
	}
	to, answer := i.destination(backend), ""
	if len(lost) > 0 {
		answer = "{status: 403}"
	}
	fields := i.routeFields(to, answer)
	fields.set("lists", texts(append(slices.Clone(i.denies), i.lists...)))
	fields.set("limits", texts(i.limits))
	if i.status != "" && i.status != "429" && len(i.limits) > 0 {
		fields.set("reject", "{status: "+i.status+"}")
	}
	for _, path := range paths {
		r := i.add("route", i.name+strings.TrimSuffix(strings.TrimSuffix(path, "*"), "/"),
			append(nginxMatch(host, "", path), fields...))
		r.notes = slices.Concat(i.others, lost, to.notes)
		i.others = nil // once
	}
}

// destination returns where requests for a backend go.
func (i *ingress) destination(backend node) nginxDestination {
	service, port := backend.get("service", "name").text(), backend.get("service", "port", "number").text()
	named := backend.get("service", "port", "name").text()
	port = cmp.Or(port, "80")
	protocol := i.annotation("backend-protocol")
	schemes := map[string]string{"": "http", "HTTP": "http", "HTTPS": "https", "GRPC": "http", "GRPCS": "https",
		"AUTO_HTTP": "http"}
	scheme := schemes[strings.ToUpper(protocol.text())]
	target := nginxTarget(scheme, service+"."+i.namespace+".svc:"+port)
	if scheme == "" || target == "" {
		at, what := backend, "the backend is no service"
		if scheme == "" {
			at, what = protocol, "backend-protocol "+protocol.text()+" is none that Weir speaks"
		}
		return unknownUpstream(at.line(), what)
	}
	u := &entry{name: service, fields: mapping{{"targets", texts([]string{target})}}}
	if named != "" {
		u.notes.add(backend.line(), "port "+named+" of service "+service+" is known to Kubernetes only",
			"write its number in place of 80")
	}
	to := nginxDestination{upstream: u}
	if strings.HasPrefix(strings.ToUpper(protocol.text()), "GRPC") {
		u.fields.set("protocol", map[string]string{"http": "h2c", "https": "h2"}[scheme])
	} else {
		to.fields.set("websocket", "true") // which ingress-nginx lets through
	}
	u.fields.set("timeouts", timeouts(i.duration("proxy-connect-timeout"), i.duration("proxy-read-timeout")))
	if size := i.setting("proxy-body-size"); nginxSize(size.text()) != "" {
		to.fields.set("body", "{max: "+nginxSize(size.text())+"}")
	}
	return to
}

// duration returns a setting in seconds; 0 for none.
func (i *ingress) duration(name string) time.Duration {
	at := i.setting(name)
	length := nginxDuration(at.text())
	if at.isThere() && length == 0 {
		i.note(at.line(), name+": "+at.text()+" is not carried over", "expected seconds, at most a day of them")
	}
	return length
}
