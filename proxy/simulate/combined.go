package simulate

import (
	"bytes"
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
	times        timeParser
	needsReferer bool // a key or route reads the Referer
	needsAgent   bool
}

func newCombinedReader(n *Names) *combinedReader {
	c := &combinedReader{}
	for _, o := range n.origins {
		c.needsReferer = c.needsReferer || o == key.HeaderField("Referer")
		c.needsAgent = c.needsAgent || o == key.HeaderField("User-Agent")
	}
	return c
}

// parse parses r.line.
func (c *combinedReader) parse(r *record) lineKind {
	b := r.line
	open := bytes.Index(b, []byte(" ["))
	if open < 0 {
		return kindMalformed
	}
	client, rest := b[:open], b[open+2:]
	end := bytes.IndexByte(rest, ']')
	if end < 0 {
		return kindMalformed
	}
	at, ok := c.times.parse(stringOf(rest[:end]))
	if !ok {
		return kindMalformed
	}
	r.At = at
	if !c.client(r, stringOf(client)) {
		return kindMalformed
	}
	asked, rest, ok := cutQuoted(rest[end+1:])
	if !ok {
		return kindMalformed
	}
	status, rest, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
	n, _, ok := parseNumber(stringOf(status))
	if !ok || n > 999 {
		return kindMalformed
	}
	r.Status = int(n)
	if r.Method, r.Target, r.Proto, ok = splitRequestLine(stringOf(asked)); !ok {
		return kindOther // a connection without a request, or not HTTP
	}
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // bytes sent
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
func (c *combinedReader) fields(r *record, rest []byte) {
	if !c.needsReferer && !c.needsAgent {
		return
	}
	referer, rest, ok := cutQuoted(rest)
	if !ok {
		return // the common format
	}
	agent, _, ok := cutQuoted(rest)
	if c.needsReferer {
		r.Fields = append(r.Fields, field("Referer", referer))
	}
	if c.needsAgent && ok {
		r.Fields = append(r.Fields, field("User-Agent", agent))
	}
}

func field(name string, value []byte) proxy.LoggedField {
	f := proxy.LoggedField{Origin: key.HeaderField(name), Value: stringOf(value)}
	if f.Value == "-" {
		f.Value = ""
	}
	return f
}

// cutQuoted returns the quoted text at the beginning of b, unescaped in place, and the rest of b.
func cutQuoted(b []byte) (value, rest []byte, ok bool) {
	b = bytes.TrimLeft(b, " ")
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			value, err := unescape(b[1:i])
			return value, b[i+1:], err == nil
		}
	}
	return nil, b, false
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
