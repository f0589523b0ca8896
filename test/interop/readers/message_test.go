//go:build readers

package readers

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A field is one header line, its name and value as they go over the wire.
type field struct {
	name, between, value string
}

// A message is one request, byte by byte.
type message struct {
	method, target, version string
	fields                  []field
	body                    []byte
	chunked                 bool
	extension               string  // after each chunk's size
	trailers                []field // with chunked
	http2                   bool
	host                    string // for HTTP/2; fields have it otherwise
	length                  bool   // whether Content-Length is written
	labels                  []string
}

// request is a plain one.
func request(method, target string) *message {
	m := &message{method: method, target: target, version: "HTTP/1.1", host: "weir.example", length: true}
	m.add("Host", m.host)
	return m
}

func (m *message) add(name, value string) { m.fields = append(m.fields, field{name, ": ", value}) }

// set gives the first field of that name another value, or adds one.
func (m *message) set(name, value string) {
	if i := m.index(name); i >= 0 {
		m.fields[i].value = value
		return
	}
	m.add(name, value)
}

// index is where the first field of that name is, -1 if there is none.
func (m *message) index(name string) int {
	return slices.IndexFunc(m.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}

func (m *message) remove(name string) {
	m.fields = slices.DeleteFunc(m.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}

// label says what is odd about the request.
func (m *message) label(format string, args ...any) {
	m.labels = append(m.labels, fmt.Sprintf(format, args...))
}

// form gives the request a body.
func (m *message) form(kind, body string) {
	m.set("Content-Type", kind)
	m.body = []byte(body)
}

// bytes is the request as HTTP/1.1 sends it.
func (m *message) bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\n", m.method, m.target, m.version)
	for _, f := range m.fields {
		b.WriteString(f.name + f.between + f.value + "\r\n")
	}
	switch {
	case m.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		half := len(m.body) / 2
		for _, part := range [][]byte{m.body[:half], m.body[half:]} {
			if len(part) > 0 {
				fmt.Fprintf(&b, "%x%s\r\n%s\r\n", len(part), m.extension, part)
			}
		}
		b.WriteString("0\r\n")
		for _, f := range m.trailers {
			b.WriteString(f.name + f.between + f.value + "\r\n")
		}
		b.WriteString("\r\n")
		return b.Bytes()
	case m.body != nil && m.length:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(m.body))
	}
	b.WriteString("\r\n")
	b.Write(m.body)
	return b.Bytes()
}

// String is the request as a report shows it.
func (m *message) String() string {
	protocol := ""
	if m.http2 {
		protocol = "over HTTP/2, :authority " + m.host + ": "
	}
	text := m.bytes()
	if len(text) > 1500 {
		text = append(bytes.Clone(text[:1500]), "..."...)
	}
	return fmt.Sprintf("%s%q", protocol, text)
}
