package convert

import (
	"maps"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// protective matches names of directives that other modules protect with, as far as they tell.
var protective = regexp.MustCompile(`(?i)auth|access_by|rewrite_by|js_access|deny|denied|allow|secur|secrules|` +
	`checkrule|naxsi|waf|jwt|` +
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
		return refuses(d.block)
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
func lostNotes(guards []*directive) (all notes) {
	for _, d := range guards {
		d.useAll()
		what := d.String()
		if d.block != nil {
			what += " { ... }"
		}
		all = view.AddNew(all, lostNote(d.line, what))
	}
	return all
}

// An nginxGuard is what protects a route.
type nginxGuard struct {
	lists  []string
	answer string // what it responds to all requests; "" for nothing
	notes  notes
	lost   notes // about what is not carried over
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
			g.notes.add(d.line, "internal: nginx answers 404 to clients, and comes here by itself only",
				"write what it does in the routes that come here")
		default:
			lost = append(lost, d)
		}
	}
	rules, known := readRules(addresses)
	if satisfy := l.context.last("satisfy"); !known || satisfy.arg(0) == "any" && len(lost) > 0 {
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

// leftovers lists the directives that nothing has marked.
func (c *nginxConfig) leftovers(block []*directive) {
	for _, d := range block {
		if d.used {
			c.leftovers(d.block)
			continue
		}
		what, instead := d.name, nginxHint(d.name)
		switch {
		case d.name == "include" && fragment.MatchString(d.arg(0)):
			what, instead = d.String(), unneeded
		case d.name == "include":
			what, instead = d.String(), "convert the output of nginx -T, which has all files"
		case instead == "":
			what, instead = d.String(), "see what each does, and write it in Weir or leave it out"
		case len(d.String()) < 60:
			what = d.String()
		}
		if d.block != nil {
			what += " { ... }"
		}
		c.left.add(d.line, what, instead)
	}
}

// fragment matches files that come with nginx and have nothing for Weir.
var fragment = regexp.MustCompile(`(?:^|/)mime\.types$|_params$|modules-enabled`)

// unneeded says that a directive needs no other one in Weir.
const unneeded = "leave it out: Weir needs none of it"

// nginxHint says what to do about a directive that is not carried over; "" for one that needs a look.
func nginxHint(name string) string {
	switch {
	case hintAccess.MatchString(name):
		return "it protects no route that is written"
	case hintHeader.MatchString(name):
		return "Weir passes on fields, and sets X-Forwarded-For, -Proto and -Host and X-Real-IP; " +
			"write rewrite: {headers, response_headers} for others"
	case hintContent.MatchString(name):
		return "Weir only forwards: let nginx, or a server that does it, listen behind Weir"
	case hintUnneeded.MatchString(name):
		return unneeded
	}
	return ""
}

var (
	hintAccess = regexp.MustCompile(`^(auth_(basic|jwt|request|delay)\w*|satisfy|allow|deny|limit_except|internal|` +
		`secure_link\w*)$`)
	hintHeader = regexp.MustCompile(`^((proxy|grpc)_(set|hide|pass)_header|add_(header|trailer)\w*|proxy_cookie_\w+|` +
		`expires|etag)$`)
	hintContent = regexp.MustCompile(`^(root|alias|index|try_files|(fastcgi|uwsgi|scgi|memcached|perl|mirror|` +
		`sub_filter|charset|` +
		`ssi|proxy_(cache|store))(_\w+)?|(gzip|gunzip|brotli|autoindex|open_file_cache)\w*|stream|mail)$`)
	hintUnneeded = regexp.MustCompile(`^(user|pid|daemon|events|env|load_module|server|types|default_type|(worker|` +
		`tcp|types|variables|` +
		`msie|subrequest)_\w+|(sendfile|aio)\w*|\w+_(hash_(max|bucket)|pool)_size|(proxy|grpc|client)_(\w*buffer\w*|` +
		`\w*temp_\w+|` +
		`http_version)|large_client_header_buffers)$`)
)

// status returns the status of a return; 302 for one that has a URL only.
func (d *directive) status() int {
	status, err := strconv.Atoi(d.arg(0))
	if err != nil {
		return 302
	}
	return status
}

// redirectTo matches where a redirect of Weir can lead.
var redirectTo = regexp.MustCompile(`^(?:https?://(?:[A-Za-z0-9.-]+|` +
	`\{host\})(?::[0-9]+)?)?(?:/[A-Za-z0-9_.~/-]*)?(?:\{path\})?(?:\{query\}|\?[A-Za-z0-9_=&.-]*)?$`)

// nginxAnswer returns the fields of a route that answers as a return does; nil if none does. name
// is that of the server.
func nginxAnswer(d *directive, name string) mapping {
	status, value := d.status(), d.arg(len(d.args)-1)
	if len(d.args) == 1 && status != 302 {
		value = ""
	}
	code := mapping{{"status", strconv.Itoa(status)}}
	switch {
	case status == 444: // closes the connection
		return mapping{{"respond", "{status: 403}"}}
	case slices.Contains([]int{301, 302, 303, 307, 308}, status):
		known := map[string]string{
			"host": "{host}", "http_host": "{host}", "server_name": name, "request_uri": "{path}{query}",
			"uri":          "{path}",
			"document_uri": "{path}",
			"is_args":      "", "args": "{query}", "query_string": "{query}",
		}
		to := variable.ReplaceAllStringFunc(value, func(v string) string {
			if with, ok := known[strings.Trim(v, "${}")]; ok {
				return with
			}
			return v
		})
		if value == "" || !redirectTo.MatchString(to) {
			return nil
		}
		return mapping{{"redirect", append(mapping{{"to", text(to)}}, code...).flow()}}
	case status < 200 || status > 599 || strings.ContainsAny(value, `$\`) || !printable.MatchString(value):
		return nil
	case status == 204 || status == 205 || status == 304:
		value = ""
	}
	code.set("body", text(value))
	return mapping{{"respond", code.flow()}}
}

// sizeOf matches a size of nginx that is not 0.
var sizeOf = regexp.MustCompile(`^0*([1-9][0-9]{0,8})([kKmMgG]?)$`)

// nginxSize returns a size of nginx as Weir writes it; "" for 0, and for what is none.
func nginxSize(size string) string {
	m := sizeOf.FindStringSubmatch(size)
	if m == nil {
		return ""
	}
	return m[1] + map[string]string{"": "B", "k": "KiB", "m": "MiB", "g": "GiB"}[strings.ToLower(m[2])]
}

// nginxDuration returns a time of nginx, whose unit is the second if none is written; 0 for what is none, and
// for more than a day.
func nginxDuration(text string) time.Duration {
	if strings.Trim(text, "0123456789") == "" {
		text += "s"
	}
	length, err := time.ParseDuration(text)
	if err != nil || length < 0 || length > 24*time.Hour {
		return 0
	}
	return length
}

// headerName matches the name of a header field, and printable what its value can be.
var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)
	printable  = regexp.MustCompile(`^[ -~]*$`)
)

// headers carries over the fields that nginx sets in requests, and reports whether they let WebSocket through. Those
// that Weir makes itself stay unmarked.
func (c *nginxConfig) headers(l *nginxLocation, passed []string) (fields mapping, websocket bool, hints notes) {
	var set mapping
	var removed []string
	seen := map[string]bool{}
	for _, d := range l.context.directives["proxy_set_header"] {
		name := textproto.CanonicalMIMEHeaderKey(d.arg(0))
		value := strings.ReplaceAll(d.arg(1), "$proxy_host", passed[2])
		isOther := !config.SetByWeir(name) && headerName.MatchString(name) && !seen[name] &&
			value != "$http_"+strings.ToLower(strings.ReplaceAll(name, "-", "_")) &&
			(name != "Host" || value != "$host" && hostPattern.MatchString(value))
		seen[name] = true
		switch {
		case name == "Upgrade":
			websocket = true
		case name == "Connection" && strings.ContainsAny(value, "$u"):
		case !isOther:
			continue
		case strings.Contains(value, "$"): // clients must not send what nginx says
			hints.add(d.line, d.String()+": Weir does not have this value, and removes the field that clients send",
				"see whether the upstream needs it")
			fallthrough
		case value == "" || !printable.MatchString(value):
			removed = append(removed, name)
		default:
			set.set(text(name), text(value))
		}
		use(d)
	}
	if !seen["Host"] {
		c.note(0, "nginx sends the host of proxy_pass as Host where proxy_set_header does not say otherwise, Weir "+
			"that of the client",
			"write rewrite: {headers: {set: {Host: NAME}}} where upstreams depend on it")
	}
	fields.set("set", set.flow())
	fields.set("remove", texts(removed))
	return fields, websocket, hints
}
