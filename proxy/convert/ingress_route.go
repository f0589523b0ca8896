package convert

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

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
