package convert

import (
	"fmt"
	"strings"
	"time"
)

// ingressPrefix is that of the annotations of ingress-nginx.
const ingressPrefix = "nginx.ingress.kubernetes.io/"

// expectedIngress is what the file should be.
const expectedIngress = "expected Ingress objects with annotations like " + ingressPrefix + "limit-rps, for example the output of kubectl get ingress -A -o yaml"

// An ingress is an Ingress object with the annotations of ingress-nginx.
type ingress struct {
	*document
	object    node
	name      string // NAMESPACE-NAME
	namespace string
	limits    []string
	lists     []string
	others    []Note // about annotations that are not carried over
	status    string // of refusals; "" for that of Weir
}

// convertIngress converts the Ingress objects in a file.
func convertIngress(d *document, data []byte) error {
	documents, err := d.documents(data, expectedIngress)
	if err != nil {
		return err
	}
	status, seen := "", false
	all := objects(documents)
	for _, o := range all {
		if strings.EqualFold(o.get("kind").text(), "ConfigMap") {
			status = o.get("data", "limit-req-status-code").text()
		}
	}
	for _, o := range all {
		if !strings.EqualFold(o.get("kind").text(), "Ingress") {
			continue
		}
		if !seen {
			d.ingressHead(status)
			seen = true
		}
		i := &ingress{document: d, object: o, namespace: o.get("metadata", "namespace").text(), status: status}
		if i.namespace == "" {
			i.namespace = "default"
		}
		i.name = i.namespace + "-" + o.get("metadata", "name").text()
		if err := i.convert(); err != nil {
			return err
		}
	}
	if !seen {
		return d.wrong(all[0].line(), "there is no Ingress, but "+kindOf(all[0]), expectedIngress)
	}
	if len(d.routes) == 0 {
		return d.wrong(0, "no Ingress has limits", expectedIngress)
	}
	return nil
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
	d.note(0, "each replica of ingress-nginx counts by itself, so clients have these rates times the number of replicas",
		"write store: redis for one count in all Weirs, and rates as high as clients had them")
	if status == "" {
		d.note(0, "ingress-nginx refuses with 503 unless its ConfigMap has limit-req-status-code, Weir with 429", "write reject: {status: 503} where clients depend on it")
	}
}

// convert converts one object.
func (i *ingress) convert() error {
	multiplier, err := i.number(i.annotation("limit-burst-multiplier"))
	if err != nil {
		return err
	}
	if multiplier == 0 {
		multiplier = 5
	}
	for _, l := range []struct {
		name   string
		window time.Duration
	}{{"rps", time.Second}, {"rpm", time.Minute}} {
		n, err := i.number(i.annotation("limit-" + l.name))
		if err != nil {
			return err
		}
		if n > 0 {
			all := burst{all: n * multiplier, free: n * multiplier}
			i.addLimit(l.name, append(mapping{{"key", "client_ip"}}, leaky(n, l.window, all)...))
		}
	}
	connections, err := i.number(i.annotation("limit-connections"))
	if err != nil {
		return err
	}
	if connections > 0 {
		i.addLimit("connections", mapping{{"key", "client_ip"}, {"concurrent", i.concurrent(connections, i.annotation("limit-connections").line())}})
	}
	if err := i.global(); err != nil {
		return err
	}
	i.notCarried()
	if len(i.limits) == 0 {
		i.head = append(i.head, i.others...)
		return nil
	}
	allowed := i.annotation("limit-allowlist").text()
	if allowed == "" {
		allowed = i.annotation("limit-whitelist").text()
	}
	if networks := commaSeparated(allowed); len(networks) > 0 {
		i.lists = []string{i.addBypass(i.name, networks)}
	}
	return i.routes()
}

// addLimit adds a limit of this object, which all its paths share.
func (i *ingress) addLimit(name string, fields mapping) {
	i.limits = append(i.limits, i.document.addLimit(i.name+"-"+name, fields).name)
}

// annotation returns the value of an annotation.
func (i *ingress) annotation(name string) node {
	return i.object.get("metadata", "annotations", ingressPrefix+name)
}

// commaSeparated returns the parts of a list.
func commaSeparated(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
}

// global converts the global rate limit, which ingress-nginx kept in memcached up to 1.11.
func (i *ingress) global() error {
	at := i.annotation("global-rate-limit")
	n, err := i.number(at)
	if err != nil || n == 0 {
		return err
	}
	window := i.annotation("global-rate-limit-window").text()
	if _, err := time.ParseDuration(window); err != nil {
		return i.wrong(at.line(), "global-rate-limit has no window", "expected global-rate-limit-window beside it, for example 1m")
	}
	key, by := "client_ip", i.annotation("global-rate-limit-key").text()
	if by != "" {
		c := &nginxConfig{document: i.document}
		if key, _ = c.key(at.line(), i.name+"-global", by); key == "" {
			return nil
		}
	}
	if len(commaSeparated(i.annotation("global-rate-limit-ignored-cidrs").text())) > 0 {
		i.note(at.line(), "global-rate-limit-ignored-cidrs is not carried over", "write a list with action: bypass")
	}
	i.addLimit("global", mapping{{"key", key}, {"rate", fmt.Sprintf("%d/%s", n, window)}, {"algorithm", "sliding_window"}})
	return nil
}

// isLimitAnnotation reports whether convert reads an annotation.
func isLimitAnnotation(name string) bool {
	switch name {
	case "limit-rps", "limit-rpm", "limit-connections", "limit-burst-multiplier", "limit-whitelist", "limit-allowlist":
		return true
	}
	return strings.HasPrefix(name, "global-rate-limit")
}

// notCarried notes the annotations that are not carried over.
func (i *ingress) notCarried() {
	for key, value := range i.object.get("metadata", "annotations").fields() {
		name, ok := strings.CutPrefix(key.text(), ingressPrefix)
		if !ok || isLimitAnnotation(name) {
			continue
		}
		instead := "write it in Weir if requests need it, or leave it out"
		switch name {
		case "limit-rate", "limit-rate-after":
			instead = "Weir does not limit bandwidth; leave it out"
		case "rewrite-target", "app-root", "use-regex":
			instead = "write rewrite: in the routes, or let the service take the path as it is"
		case "ssl-redirect", "force-ssl-redirect":
			instead = "write listen: {https, redirect_https: true, tls}"
		case "whitelist-source-range", "denylist-source-range":
			instead = "write a list with action: deny for denied networks; others need a firewall or network policy"
		}
		i.others = append(i.others, Note{key.line(), name + ": " + value.text() + " is not carried over", instead})
	}
	if tls := i.object.get("spec", "tls"); tls.isThere() && len(i.limits) > 0 {
		i.others = append(i.others, Note{tls.line(), "tls is not carried over", "write listen: {https: \":8443\", tls: {cert, key}}"})
	}
}

// routes adds the routes of the object.
func (i *ingress) routes() error {
	first := true
	add := func(host string, path, backend node, paths []string) {
		upstream := i.upstream(backend)
		for _, p := range paths {
			var match, fields mapping
			match.set("host", quoted(host))
			match.set("path", text(p))
			fields.set("match", match.flow())
			fields.set("upstream", upstream)
			fields.set("lists", texts(i.lists))
			fields.set("limits", texts(i.limits))
			if i.status != "" && i.status != "429" {
				fields.set("reject", "{status: "+i.status+"}")
			}
			r := i.addRoute(i.name+strings.TrimSuffix(strings.TrimSuffix(p, "*"), "/"), fields)
			if first {
				r.notes, first = i.others, false
			}
		}
	}
	spec := i.object.get("spec")
	for _, rule := range spec.get("rules").items() {
		for _, path := range rule.get("http", "paths").items() {
			p := path.get("path").text()
			paths := ingressPaths(p, path.get("pathType").text())
			if paths == nil {
				i.note(path.line(), "path "+p+" is not carried over, nor are its limits: Weir has no such path", "write a route with its paths")
				continue
			}
			add(rule.get("host").text(), path, path.get("backend"), paths)
		}
	}
	for _, name := range []string{"defaultBackend", "backend"} {
		if b := spec.get(name); b.isThere() {
			add("", b, b, []string{"/*"})
		}
	}
	if first {
		i.head = append(i.head, i.others...)
	}
	return nil
}

// ingressPaths returns the paths of a route for a path of an Ingress; none if Weir has none.
func ingressPaths(path, kind string) []string {
	if path == "" {
		path = "/"
	}
	if kind != "Exact" && path != "/" {
		path = strings.TrimSuffix(path, "/")
	}
	switch {
	case !literalPath.MatchString(path):
		return nil
	case kind == "Exact":
		return []string{path}
	case path == "/":
		return []string{"/*"}
	}
	return []string{path, path + "/*"}
}

// upstream returns the upstream for a backend, in either version of the API.
func (i *ingress) upstream(backend node) string {
	service, port := backend.get("service", "name").text(), backend.get("service", "port", "number").text()
	if service == "" {
		service, port = backend.get("serviceName").text(), backend.get("servicePort").text()
	}
	if service == "" {
		u := i.addUpstream(i.name, mapping{{"targets", texts([]string{"http://" + strings.ToLower(i.name) + ".invalid"})}})
		u.note(backend.line(), "the backend is no service", "write the addresses of its targets")
		return u.name
	}
	named := backend.get("service", "port", "name").text()
	scheme := "http"
	if strings.HasPrefix(i.annotation("backend-protocol").text(), "HTTPS") {
		scheme = "https"
	}
	host := service + "." + i.namespace + ".svc"
	if port == "" || strings.Trim(port, "0123456789") != "" {
		named, port = named+port, "80"
	}
	u := i.addUpstream(service, mapping{{"targets", texts([]string{scheme + "://" + host + ":" + port})}})
	if named != "" && len(u.notes) == 0 {
		u.note(backend.line(), "port "+named+" of service "+service+" is known to Kubernetes only", "write its number in place of 80")
	}
	return u.name
}
