package convert

import (
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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
			"host": "{host}", "http_host": "{host}", "server_name": name, "request_uri": "{path}{query}", "uri": "{path}",
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
	code.set("body", quoted(value))
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
func (c *nginxConfig) headers(l *nginxLocation, passed []string) (fields mapping, websocket bool, notes []Note) {
	var set mapping
	var removed []string
	seen := map[string]bool{}
	for _, d := range l.context.directives["proxy_set_header"] {
		name, value := textproto.CanonicalMIMEHeaderKey(d.arg(0)), strings.ReplaceAll(d.arg(1), "$proxy_host", passed[2])
		isOther := !isSetByWeir(name) && headerName.MatchString(name) && !seen[name] &&
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
			notes = append(notes, Note{Line: d.line, What: d.String() +
				": Weir does not have this value, and removes the field that clients send",
				Instead: "see whether the upstream needs it"})
			fallthrough
		case value == "" || !printable.MatchString(value):
			removed = append(removed, name)
		default:
			set.set(text(name), text(value))
		}
		use(d)
	}
	if !seen["Host"] {
		c.note(0, "nginx sends the host of proxy_pass as Host where proxy_set_header does not say otherwise, Weir that of the client",
			"write rewrite: {headers: {set: {Host: NAME}}} where upstreams depend on it")
	}
	fields.set("set", set.flow())
	fields.set("remove", texts(removed))
	return fields, websocket, notes
}

// isSetByWeir reports whether Weir sets a header field itself.
func isSetByWeir(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || slices.Contains([]string{
		"Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Via", "X-Request-Id",
		"Expect", "Forwarded", "Max-Forwards", "X-Real-Ip",
	}, name)
}
