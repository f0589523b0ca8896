package upstream

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// Outgoing is a request as it would be sent to a target.
type Outgoing struct {
	Method string
	Host   string
	// Target is the request target, without the path in the target's URL.
	Target string
	// Header has all fields except Host and those for the framing.
	Header map[string][]string
	// Targets are the URLs of the targets that could be selected. It is empty for the
	// built-in echo.
	Targets []string
}

// Outgoing returns what Forward would send for a request. It sends nothing. If Forward
// would reject the request before selecting a target, Outgoing returns the same kind
// and error.
func (p *Pool) Outgoing(t *Request) (o Outgoing, kind ResultKind, err error) {
	if kind, err := p.checkRequest(t); err != nil {
		return Outgoing{}, kind, err
	}
	o = Outgoing{Method: t.Method, Host: cmp.Or(t.SetHost, t.Host), Target: t.Path, Header: map[string][]string{}}
	if t.RawQuery != "" {
		o.Target += "?" + t.RawQuery
	}
	f := forwarding{pool: p, request: t, maxForwards: maxForwards(t)}
	if t.TrustedPeer {
		f.trusted = trustedForwarded(t.Fields)
	}
	f.writeHeader(mapHeader(o.Header))
	for _, from := range p.config.Targets {
		o.Targets = append(o.Targets, from.URL.Redacted())
	}
	return o, OK, nil
}

// A mapHeader is a net/http header.
type mapHeader map[string][]string

// AddFields implements header.
func (h mapHeader) AddFields(f *http1.Fields) {
	for line := range f.All() {
		if line.ID != http1.Host {
			h.Add(line.Name, line.Value)
		}
	}
}

// AddBlock implements header.
func (h mapHeader) AddBlock(b http1.FieldBlock) {
	for name, value := range b.All() {
		h.Add(name, value)
	}
}

// Add implements header.
func (h mapHeader) Add(name, value string) {
	name = strings.Clone(http.CanonicalHeaderKey(name))
	h[name] = append(h[name], strings.Clone(value))
}

// AddKnown implements header.
func (h mapHeader) AddKnown(name http1.Name, value []byte) { h.AddKnownString(name, string(value)) }

// AddKnownString implements header.
func (h mapHeader) AddKnownString(name http1.Name, value string) { h.Add(name.String(), value) }
