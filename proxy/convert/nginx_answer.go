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

// nginxSize returns a size of nginx as Weir writes it; "" for 0, and for what is none.
func nginxSize(size string) string {
	unit := "B"
	for suffix, name := range map[string]string{"k": "KiB", "m": "MiB", "g": "GiB"} {
		if digits, ok := strings.CutSuffix(strings.ToLower(size), suffix); ok {
			size, unit = digits, name
		}
	}
	if n, err := strconv.ParseInt(size, 10, 32); err != nil || n <= 0 {
		return ""
	}
	return strings.TrimLeft(size, "0") + unit
}

// nginxPart matches a part of a time, as 1h of 1h30m.
var nginxPart = regexp.MustCompile(`^([0-9]{1,9})(ms|s|m|h|d|w|M|y)?`)

// nginxDuration returns a time of nginx, whose unit is the second if none is written; 0 for
// what is none, and for more than a day.
func nginxDuration(text string) (sum time.Duration) {
	const day = 24 * time.Hour
	units := map[string]time.Duration{"ms": time.Millisecond, "": time.Second, "s": time.Second, "m": time.Minute,
		"h": time.Hour, "d": day, "w": 7 * day, "M": 30 * day, "y": 365 * day}
	for text != "" {
		m := nginxPart.FindStringSubmatch(text)
		if m == nil {
			return 0
		}
		n, _ := strconv.ParseInt(m[1], 10, 64)
		if n > int64(day/units[m[2]]) {
			return 0
		}
		sum, text = sum+time.Duration(n)*units[m[2]], text[len(m[0]):]
	}
	if sum > day {
		return 0
	}
	return sum
}

// headerName matches the name of a header field, and printable what its value can be.
var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)
	printable  = regexp.MustCompile(`^[ -~]*$`)
)

// nginxHeaders are the changes of the header fields of requests and responses.
type nginxHeaders struct {
	set, response   mapping
	removed, hidden []string
	websocket       bool
	notes           []Note
}

// rewrite returns the fields of a rewrite.
func (h nginxHeaders) rewrite() (fields mapping) {
	for _, part := range []struct {
		name   string
		set    mapping
		remove []string
	}{{"headers", h.set, h.removed}, {"response_headers", h.response, h.hidden}} {
		var changes mapping
		if len(part.set) > 0 {
			changes.set("set", part.set.flow())
		}
		changes.set("remove", texts(part.remove))
		if len(changes) > 0 {
			fields.set(part.name, changes.flow())
		}
	}
	return fields
}

// headers carries over the changes of header fields. Those that Weir makes itself stay unmarked.
func (c *nginxConfig) headers(l *nginxLocation, passed []string) (h nginxHeaders) {
	own, hasHost := "proxy", false
	if strings.HasPrefix(passed[1], "grpc") {
		own = "grpc"
	}
	seen := map[string]bool{}
	for _, d := range l.context.directives[own+"_set_header"] {
		name, value := textproto.CanonicalMIMEHeaderKey(d.arg(0)), d.arg(1)
		hasHost = hasHost || name == "Host"
		if value == "$proxy_host" {
			value = passed[2]
		}
		switch {
		case name == "Upgrade":
			use(d)
			h.websocket = true
		case name == "Connection" && strings.ContainsAny(value, "$u"):
			use(d)
		case isSetByWeir(name) || !headerName.MatchString(name) || seen[name] ||
			value == "$http_"+strings.ToLower(strings.ReplaceAll(name, "-", "_")):
		case name == "Host" && (value == "$host" || value == "$http_host" || !hostPattern.MatchString(value)):
		case value == "" || !printable.MatchString(value):
			use(d)
			h.removed = append(h.removed, name)
		case strings.Contains(value, "$"): // clients must not send what nginx says
			use(d)
			h.removed = append(h.removed, name)
			h.notes = append(h.notes, Note{Line: d.line, What: d.String() +
				": Weir does not have this value, and removes the field that clients send",
				Instead: "see whether the upstream needs it"})
		default:
			use(d)
			h.set.set(text(name), quoted(value))
		}
		seen[name] = true
	}
	if host := passed[2]; !hasHost && strings.Contains(host, ".") && !strings.HasPrefix(host, "unix:") &&
		c.upstreams[host] == nil && nginxTarget("http", host) != "" && network(strings.Split(host, ":")[0]) == "" {
		h.set.set("Host", text(host)) // what nginx sends
	}
	for _, d := range l.context.directives["add_header"] {
		name := textproto.CanonicalMIMEHeaderKey(d.arg(0))
		if !strings.Contains(d.arg(1), "$") && printable.MatchString(d.arg(1)) && headerName.MatchString(name) &&
			!isSetByWeir(name) && !seen["< "+name] && d.arg(1) != "" {
			use(d)
			seen["< "+name] = true
			h.response.set(text(name), text(d.arg(1)))
		}
	}
	for _, d := range l.context.directives[own+"_hide_header"] {
		name := textproto.CanonicalMIMEHeaderKey(d.arg(0))
		if headerName.MatchString(name) && !isSetByWeir(name) && !seen["< "+name] {
			use(d)
			seen["< "+name] = true
			h.hidden = append(h.hidden, name)
		}
	}
	return h
}

// isSetByWeir reports whether Weir sets a header field itself.
func isSetByWeir(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || slices.Contains([]string{
		"Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Via", "X-Request-Id",
		"Expect", "Forwarded", "Max-Forwards", "X-Real-Ip",
	}, name)
}
