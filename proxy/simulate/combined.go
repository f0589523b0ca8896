package simulate

import (
	"bytes"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/key"
)

// A combinedReader parses lines in the common and the combined format of Apache and nginx,
// optionally with a leading virtual host:
//
//	192.0.2.1 - alice [22/Nov/2026:11:05:47 +0000] "GET /a?b=c HTTP/1.1" 200 123 "referer" "agent"
//
// Text after the agent is ignored.
type combinedReader struct {
	clock   clockReader
	referer bool // whether it is needed
	agent   bool
}

func newCombinedReader(n *Names) *combinedReader {
	c := &combinedReader{}
	for _, o := range n.wanted {
		c.referer = c.referer || o == key.Origin{Source: key.Header, Name: "Referer"}
		c.agent = c.agent || o == key.Origin{Source: key.Header, Name: "User-Agent"}
	}
	return c
}

// read parses r.line.
func (c *combinedReader) read(r *record) kind {
	b := r.line
	open := bytes.Index(b, []byte(" ["))
	if open < 0 {
		return malformed
	}
	client, rest := b[:open], b[open+2:]
	end := bytes.IndexByte(rest, ']')
	if end < 0 {
		return malformed
	}
	at, ok := c.clock.read(text(rest[:end]))
	if !ok {
		return malformed
	}
	r.At = at
	if !c.client(r, text(client)) {
		return malformed
	}
	asked, rest, ok := quoted(rest[end+1:])
	if !ok {
		return malformed
	}
	status, rest, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
	n, _, ok := number(text(status))
	if !ok || n > 999 {
		return malformed
	}
	r.Status = int(n)
	if r.Method, r.Target, r.Proto, ok = requestLine(text(asked)); !ok {
		return other // a connection without a request, or not HTTP
	}
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // bytes sent
	c.fields(r, rest)
	return request
}

// client parses the text before the time: optionally a virtual host, the client's address,
// and two names.
func (c *combinedReader) client(r *record, s string) bool {
	first, rest, ok := strings.Cut(s, " ")
	if !ok {
		return false
	}
	if r.Client = address(first); r.Client.IsValid() {
		return true
	}
	if second, _, _ := strings.Cut(rest, " "); second != "" && second != "-" {
		if a := address(second); a.IsValid() {
			r.Host, r.Client = first, a
		}
	}
	return true // a host name instead of an address counts as unknown
}

// fields parses referer and agent, if they are needed.
func (c *combinedReader) fields(r *record, rest []byte) {
	if !c.referer && !c.agent {
		return
	}
	referer, rest, ok := quoted(rest)
	if !ok {
		return // the common format
	}
	agent, _, ok := quoted(rest)
	if c.referer {
		r.Fields = append(r.Fields, field("Referer", referer))
	}
	if c.agent && ok {
		r.Fields = append(r.Fields, field("User-Agent", agent))
	}
}

func field(name string, value []byte) proxy.LoggedField {
	f := proxy.LoggedField{Origin: key.Origin{Source: key.Header, Name: name}, Value: text(value)}
	if f.Value == "-" {
		f.Value = ""
	}
	return f
}

// quoted splits off a leading quoted string, decoded in place.
func quoted(b []byte) (value, rest []byte, ok bool) {
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

// requestLine parses a request line.
func requestLine(s string) (method, target, proto string, ok bool) {
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
