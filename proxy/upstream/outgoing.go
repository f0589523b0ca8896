package upstream

import (
	"cmp"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// Outgoing is what a target would be sent for a request.
type Outgoing struct {
	Method string
	Host   string
	// Target is path and query as they go on the wire, without the path of a
	// target's own URL.
	Target string
	// Header has all fields but Host and those that frame the message.
	Header http.Header
	// Targets are the URLs of those that may be asked; none for the built-in echo.
	Targets []string
}

// Outgoing says what Forward would send for a request with this header, and sends
// nothing. It fails with the error that would be Result.Err where no target would be
// asked at all, whatever the targets' health is; kind is then as in that Result.
func (p *Pool) Outgoing(method string, h http.Header, t *Request) (o Outgoing, kind Kind, err error) {
	if kind, err := p.refuses(method, h, t); err != nil {
		return Outgoing{}, kind, err
	}
	o = Outgoing{Method: method, Host: cmp.Or(t.SetHost, t.Host), Target: t.Path, Header: endToEnd(h)}
	if t.RawQuery != "" {
		o.Target += "?" + t.RawQuery
	}
	maps.DeleteFunc(o.Header, func(name string, _ []string) bool { return disowned(name, t) })
	w := said(h, t)
	setForwarded(&w, t, &fieldWriter{to: netHeader{o.Header}})
	o.Header.Add("Via", p.via(t))
	if n := maxForwards(method, h); n > 0 {
		o.Header.Set("Max-Forwards", strconv.Itoa(n-1))
	}
	maps.Copy(o.Header, t.Set)
	maps.DeleteFunc(o.Header, func(_ string, values []string) bool { return len(values) == 0 })
	for _, from := range p.config.Targets {
		o.Targets = append(o.Targets, from.URL.Redacted())
	}
	return o, OK, nil
}

// endToEnd are the fields of h that are not for one connection only, or about the
// framing of one message (RFC 9110 section 7.6.1).
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	if out == nil {
		out = http.Header{}
	}
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.Trim(name, " \t"))
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Proxy-Authenticate", "Proxy-Authorization", "Http2-Settings", "Content-Length", "Host",
	} {
		out.Del(name)
	}
	return out
}
