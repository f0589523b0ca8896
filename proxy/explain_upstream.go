package proxy

import (
	"maps"
	"slices"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// outgoing adds the request that would be forwarded.
func (e *explainer) outgoing(p *upstream.Pool, t *upstream.Request) upstream.Result {
	x := e.x
	header, _ := x.in.header.(*http1.Fields)
	came := byName(header)
	t.Fields = header.Clone()
	out, kind, err := p.Outgoing(t)
	if err != nil {
		return upstream.Result{Kind: kind, Err: err}
	}
	from := x.route.Upstream
	said := &ExplainedUpstream{
		Name: from.Name, Echo: from.Echo, Targets: []string{}, Balance: string(from.Balance),
		Method: out.Method, Target: out.Target, Host: out.Host, Header: out.Header, Set: []string{}, Removed: []string{},
	}
	said.Targets = append(said.Targets, out.Targets...)
	e.conceal(out.Header)
	for _, name := range slices.Sorted(maps.Keys(out.Header)) {
		if !slices.Equal(out.Header[name], came[name]) {
			said.Set = append(said.Set, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(came)) {
		if _, sent := out.Header[name]; !sent {
			said.Removed = append(said.Removed, name)
		}
	}
	e.Upstream = said
	return upstream.Result{Kind: upstream.OK}
}

// conceal masks the fields by which sensitive keys are sent to the upstream.
func (e *explainer) conceal(h map[string][]string) {
	for _, k := range e.x.extracted.keys {
		if !k.by.Sensitive || k.by.SetHeader == "" || len(h[k.by.SetHeader]) == 0 {
			continue
		}
		h[k.by.SetHeader] = []string{key.Mask(h[k.by.SetHeader][0], 0)}
	}
}
