package convert

import (
	"slices"
	"strings"
)

// guard carries over what protects the object. What Weir does not have is lost.
func (i *ingress) guard() {
	var r rules
	known := true
	for _, name := range []string{"denylist-source-range", "allowlist-source-range", "whitelist-source-range"} {
		list := i.setting(name)
		all, unknown := networks(list.text())
		if name[0] == 'd' {
			r.denied = append(r.denied, all...)
		} else {
			r.allowed, r.only = append(r.allowed, all...), r.only || len(all) > 0
		}
		if unknown != "" {
			known = false
			i.lost = append(i.lost, lostNote(list.line(), name+": "+list.text()))
		}
	}
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
		i.others = append(i.others, Note{Line: tls.line(), What: "tls is not carried over",
			Instead: "write listen: {https: \":8443\", tls: {cert, key}}"})
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
		block, err := parseNginx(newDocument("nginx", ""), []byte(value.text()))
		return err != nil || refuses(block)
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
		return "write rewrite: in the routes, or let the service take the path as it is"
	case strings.HasSuffix(short, "ssl-redirect"):
		return "write listen: {https, redirect_https: true, tls}"
	case strings.HasPrefix(short, "use-forwarded") || short == "use-proxy-protocol" || short == "proxy-real-ip-cidr":
		return "write client_ip: {trusted_proxies: [NETWORKS], header}, or limits count all clients of a proxy as one"
	case strings.HasPrefix(short, "global-rate-limit"):
		return "write a limit, and store: redis for one count in all Weirs"
	}
	return "write it in Weir if requests need it, or leave it out"
}
