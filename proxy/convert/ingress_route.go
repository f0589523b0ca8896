package convert

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// An ingressPath is a path of an Ingress, with its host and its backend.
type ingressPath struct {
	at, backend      node
	host, path, kind string
}

// paths returns the paths of the object.
func (i *ingress) paths() (all []ingressPath) {
	spec := i.object.get("spec")
	for _, rule := range spec.get("rules").items() {
		for _, at := range rule.get("http", "paths").items() {
			all = append(all, ingressPath{at, at.get("backend"), rule.get("host").text(), at.get("path").text(),
				at.get("pathType").text()})
		}
	}
	for _, name := range []string{"defaultBackend", "backend"} {
		if b := spec.get(name); b.isThere() {
			all = append(all, ingressPath{at: b, backend: b})
		}
	}
	return all
}

// match returns the paths of the routes for p; none if Weir has none. prefix is what all of them
// begin with.
func (i *ingress) match(p ingressPath) (paths []string, prefix string) {
	path := p.path
	for _, rest := range []string{"(/|$)(.*)", "/(.*)", "/.*"} {
		path = strings.TrimSuffix(path, rest)
	}
	if p.kind != "Exact" {
		path = strings.TrimSuffix(path, "/")
	}
	path = cmp.Or(path, "/")
	switch {
	case !isLiteralPath(path):
		l := &nginxLocation{prefix: "^" + p.path, modifier: "~*"}
		return nil, l.readExpression()
	case p.kind == "Exact":
		return []string{path}, path
	case p.kind != "Prefix" && len(i.lost)+len(i.denies) > 0:
		return beginning(path, ""), path
	}
	return below(path), path
}

// route writes the routes of a path. Those of an object that is protected by what Weir does not
// have refuse all requests.
func (i *ingress) route(p ingressPath) {
	if p.host != "" && !hostPattern.MatchString(p.host) {
		i.note(p.at.line(), "host "+p.host+" is not carried over, nor are its limits: Weir has no such host",
			"write a route for each host, or *.example.com")
		return
	}
	paths, prefix := i.match(p)
	lost := i.lost
	if paths == nil {
		i.note(p.at.line(), "path "+p.path+" is not carried over, nor are its limits: Weir has no such path",
			"write a route with its paths")
		p.at.useAll()
		if len(lost)+len(i.denies) == 0 {
			return
		}
		paths = beginning(prefix, "(?i)")
		lost = append(slices.Clone(lost), lostNote(p.at.line(), "path "+p.path))
	}
	to := i.destination(p.backend)
	fields := to.fields
	if len(lost) > 0 {
		fields = mapping{{"respond", "{status: 403}"}}
	} else if to.upstream != nil {
		fields = append(mapping{{"upstream", i.addUpstream(to.upstream)}}, fields...)
	}
	fields.set("lists", texts(append(slices.Clone(i.denies), i.lists...)))
	fields.set("limits", texts(i.limits))
	if i.status != "" && i.status != "429" && len(i.limits) > 0 {
		fields.set("reject", "{status: "+i.status+"}")
	}
	for _, path := range paths {
		r := i.add("route", i.name+strings.TrimSuffix(strings.TrimSuffix(path, "*"), "/"),
			append(nginxMatch(p.host, "", path), fields...))
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
