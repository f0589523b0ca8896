package upstream

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// Outgoing is what a target would be sent for a request.
type Outgoing struct {
	Method string
	Host   string
	// Target is path and query as they go on the wire, without the path of a
	// target's own URL.
	Target string
	// Header has all fields but Host and those that frame the message.
	Header map[string][]string
	// Targets are the URLs of those that may be asked; none for the built-in echo.
	Targets []string
}

// Outgoing says what Forward would send for a request, and sends nothing. It fails with
// the error that would be Result.Err where no target would be asked at all, whatever the
// targets' health is; kind is then as in that Result.
func (p *Pool) Outgoing(t *Request) (o Outgoing, kind ResultKind, err error) {
	if kind, err := p.checkRequest(t); err != nil {
		return Outgoing{}, kind, err
	}
	o = Outgoing{Method: t.Method, Host: cmp.Or(t.SetHost, t.Host), Target: t.Path, Header: map[string][]string{}}
	if t.RawQuery != "" {
		o.Target += "?" + t.RawQuery
	}
	f := forwarding{request: t, trusted: trustedForwarded(t), via: p.via(t), maxForwards: maxForwards(t)}
	f.writeHeader(mapHeader(o.Header))
	for _, from := range p.config.Targets {
		o.Targets = append(o.Targets, from.URL.Redacted())
	}
	return o, OK, nil
}

// A mapHeader is a header as net/http has it: values by canonical names.
type mapHeader map[string][]string

// AddFields implements header.
func (h mapHeader) AddFields(f *http1.Fields) {
	for line := range f.All() {
		if line.ID != http1.Host {
			h.Add(line.Name, line.Value)
		}
	}
}

// Add implements header.
func (h mapHeader) Add(name, value string) {
	name = strings.Clone(http.CanonicalHeaderKey(name))
	h[name] = append(h[name], strings.Clone(value))
}

// AddKnown implements header.
func (h mapHeader) AddKnown(name http1.Name, value []byte) {
	h[name.String()] = append(h[name.String()], string(value))
}
