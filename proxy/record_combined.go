package proxy

import (
	"cmp"
	"strconv"
)

// combined writes x in the combined log format of NCSA, Apache and nginx: the client's address, two
// user names that are always "-", the time of the request, its request line without the query,
// status, bytes, Referer and User-Agent.
//
//	192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "GET /a HTTP/1.1" 200 123 "-" "curl/8"
func (rec *recorder) combined(x *exchange) {
	var space [512]byte
	b := append(space[:0], cmp.Or(x.generation.redact.client(x), "-")...)
	b = x.began.UTC().AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = appendEscaped(b, x.request.Method)
	b = append(b, ' ')
	b = appendEscaped(b, cmp.Or(x.redactedPath(), "-"))
	b = append(b, ' ')
	b = append(b, cmp.Or(x.request.Proto, "HTTP/1.1")...)
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(x.response.status), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, x.response.bytes, 10)
	for _, field := range [...]string{x.in.referer, x.in.userAgent} {
		b = append(b, ` "`...)
		b = appendEscaped(b, cmp.Or(field, "-"))
		b = append(b, '"')
	}
	_, _ = rec.lines.Write(append(b, '\n')) // the writer counts the lines that it drops
}

// appendEscaped appends s with characters that would end the field or the line escaped as \xHH, as
// nginx does.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\':
			b = append(b, '\\', 'x', hex[c>>4], hex[c&0xf])
		default:
			b = append(b, c)
		}
	}
	return b
}
