package simulate

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/key"
)

// A combinedReader parses lines in the common and the combined log format of Apache and nginx, with
// or without a leading virtual host:
//
//	192.0.2.1 - alice [22/Nov/2026:11:05:47 +0000] "GET /a?b=c HTTP/1.1" 200 123 "referer" "agent"
//
// Anything after the user agent is ignored.
type combinedReader struct {
	origins []key.Origin // from which keys and routes read
}

// parse parses r.line.
func (c *combinedReader) parse(r *record) lineKind {
	client, rest, _ := strings.Cut(stringOf(r.line), " [")
	at, rest, _ := strings.Cut(rest, "]")
	asked, rest, ok := cutQuoted(rest)
	if !ok || !c.client(r, client) {
		return kindMalformed
	}
	if r.At, ok = parseTime(at); !ok {
		return kindMalformed
	}
	status, rest, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if r.Status, ok = parseStatus(status); !ok {
		return kindMalformed
	}
	if r.Method, r.Target, r.Proto, ok = splitRequestLine(asked); !ok {
		return kindOther // a connection without a request, or not HTTP
	}
	_, rest, _ = strings.Cut(rest, " ") // bytes sent
	c.fields(r, rest)
	return kindRequest
}

// client parses the part before the time: an optional virtual host, the client's address, and two
// user names.
func (c *combinedReader) client(r *record, s string) bool {
	first, rest, ok := strings.Cut(s, " ")
	if !ok {
		return false
	}
	if r.Client = parseAddr(first); r.Client.IsValid() {
		return true
	}
	if second, _, _ := strings.Cut(rest, " "); second != "" && second != "-" {
		if a := parseAddr(second); a.IsValid() {
			r.Host, r.Client = first, a
		}
	}
	return true // a host name instead of an address leaves the client unknown
}

// fields parses Referer and User-Agent if they are needed.
func (c *combinedReader) fields(r *record, rest string) {
	for _, name := range []string{"Referer", "User-Agent"} {
		value, next, ok := cutQuoted(rest)
		if !ok {
			return // the common format has none
		}
		if rest = next; value == "-" {
			value = ""
		}
		if o := key.HeaderField(name); slices.Contains(c.origins, o) {
			r.Fields = append(r.Fields, proxy.LoggedField{Origin: o, Value: value})
		}
	}
}

// cutQuoted returns the quoted text at the beginning of s, and the rest of s.
func cutQuoted(s string) (value, rest string, ok bool) {
	s = strings.TrimLeft(s, " ")
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil || quoted[0] != '"' {
		return "", s, false
	}
	value, err = strconv.Unquote(quoted)
	return value, s[len(quoted):], err == nil
}

// splitRequestLine splits a request line.
func splitRequestLine(s string) (method, target, proto string, ok bool) {
	method, rest, ok := strings.Cut(s, " ")
	if !ok || method == "" {
		return "", "", "", false
	}
	target, proto, ok = strings.Cut(rest, " ")
	if !ok || !strings.HasPrefix(proto, "HTTP/") || target == "" {
		return "", "", "", false
	}
	return method, target, proto, true
}
