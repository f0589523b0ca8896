package convert

import (
	"maps"
	"regexp"
	"slices"
)

// protective matches names of directives that other modules protect with, as far as they tell.
var protective = regexp.MustCompile(`(?i)auth|access_by|rewrite_by|js_access|deny|denied|allow|secur|secrules|checkrule|naxsi|waf|jwt|` +
	`oidc|captcha`)

// guards reports whether a directive may refuse requests, beside limits.
func (d *directive) guards() bool {
	switch d.name {
	case "allow", "deny", "internal", "limit_except":
		return true
	case "auth_basic", "auth_request", "auth_jwt", "ssl_verify_client":
		return d.arg(0) != "off"
	case "include": // of a file that is not here
		return protective.MatchString(d.arg(0))
	case "if":
		return slices.ContainsFunc(d.block, func(inner *directive) bool {
			return inner.guards() || inner.name == "return" && inner.status() >= 400
		})
	}
	return protective.MatchString(d.name) && nginxHint(d.name) == "" && d.arg(0) != "off"
}

// isOwn reports whether locations in the block of a directive do not inherit it.
func (d *directive) isOwn() bool {
	return d.name == "internal" || d.name == "limit_except" || d.name == "if"
}

// guards returns the directives that protect a location: those that hold, and its own.
func (c nginxContext) guards(own []*directive) (all []*directive) {
	for _, name := range slices.Sorted(maps.Keys(c.directives)) {
		group := c.directives[name]
		for _, d := range group {
			if d.guards() && !d.isOwn() && (d.name != "allow" || len(find(group, "deny")) > 0) {
				all = append(all, d)
			}
		}
	}
	for _, d := range slices.Concat(c.rewrites, own) {
		if d.isOwn() && d.guards() {
			all = append(all, d)
		}
	}
	return all
}

// lostNote says that access control is not carried over.
func lostNote(line int, what string) Note {
	return Note{Line: line, What: what + " is not carried over, so 403 is answered here",
		Instead: "once something else checks requests, write upstream: URL in place of respond", Lost: true}
}

// lostNotes says that directives that protect something are not carried over.
func lostNotes(guards []*directive) (notes []Note) {
	for _, d := range guards {
		d.useAll()
		what := d.String()
		if d.block != nil {
			what += " { ... }"
		}
		if n := lostNote(d.line, what); !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	return notes
}

// An nginxGuard is what protects a route.
type nginxGuard struct {
	lists  []string
	answer string // what it responds to all requests; "" for nothing
	notes  []Note
	lost   []Note // about what is not carried over
}

// guard carries over what protects a location. What Weir does not have is lost, and refuses all
// requests.
func (c *nginxConfig) guard(l *nginxLocation) nginxGuard {
	var g nginxGuard
	var lost, addresses []*directive
	for _, d := range l.guards {
		switch {
		case d.name == "allow" || d.name == "deny":
			addresses = append(addresses, d)
		case d.name == "internal":
			use(d)
			g.answer = "{status: 404}"
			g.notes = append(g.notes, Note{Line: d.line,
				What:    "internal: nginx answers 404 to clients, and comes here by itself only",
				Instead: "write what it does in the routes that come here"})
		default:
			lost = append(lost, d)
		}
	}
	rules, known := readRules(addresses)
	if satisfy := l.context.last("satisfy"); !known || satisfy != nil && satisfy.arg(0) == "any" && len(lost) > 0 {
		lost = append(addresses, lost...)
	} else {
		g.lists = c.addRules(rules)
	}
	if rules.none() {
		g.answer = "{status: 403}"
	}
	if g.lost = slices.Concat(l.lost, lostNotes(lost)); len(g.lost) > 0 {
		g.answer = "{status: 403}"
	}
	return g
}

// Rules say which addresses are let through.
type rules struct {
	denied, allowed []string
	only            bool // those that are allowed, and no other
}

// none reports whether no address is let through.
func (r rules) none() bool { return r.only && len(r.allowed) == 0 }

// readRules reads allow and deny, and reports whether lists can do what they do: of two rules for
// an address nginx takes the first, Weir the one that refuses.
func readRules(all []*directive) (r rules, known bool) {
	for _, d := range all {
		if d.arg(0) == "all" {
			if r.only = d.name == "deny"; r.only {
				use(all...)
			}
			break
		}
		n := network(d.arg(0))
		switch {
		case n == "" || d.name == "deny" && len(r.allowed) > 0:
			return r, false
		case d.name == "deny":
			use(d)
			r.denied = append(r.denied, n)
		default:
			r.allowed = append(r.allowed, n)
		}
	}
	return r, true
}

// addRules adds the lists for rules.
func (d *document) addRules(r rules) (lists []string) {
	if len(r.denied) > 0 {
		lists = append(lists, d.addAddresses("denied", r.denied, "deny"))
	}
	if r.only && len(r.allowed) > 0 {
		lists = append(lists, d.addAddresses("allowed", r.allowed, "only"))
	}
	return lists
}
