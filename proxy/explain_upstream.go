package proxy

import (
	"maps"
	"slices"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// explainForward adds the request that would be forwarded.
func (e *explainer) explainForward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	x := e.x
	header, _ := x.in.header.(*http1.Fields)
	came := byName(header)
	t.Fields = header.Clone()
	out, kind, err := p.Outgoing(t)
	if err != nil {
		return upstream.Result{Kind: kind, Err: err}
	}
	from := x.route.Upstream
	explained := &ExplainedUpstream{
		Name: from.Name, Echo: from.Echo, Targets: []string{}, Balance: string(from.Balance),
		Method: out.Method, Target: out.Target, Host: out.Host, Header: out.Header, Set: []string{}, Removed: []string{},
	}
	explained.Targets = append(explained.Targets, out.Targets...)
	e.maskKeys(out.Header)
	for _, name := range slices.Sorted(maps.Keys(out.Header)) {
		if !slices.Equal(out.Header[name], came[name]) {
			explained.Set = append(explained.Set, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(came)) {
		if _, sent := out.Header[name]; !sent {
			explained.Removed = append(explained.Removed, name)
		}
	}
	e.Upstream = explained
	return upstream.Result{Kind: upstream.OK}
}

// maskKeys masks the fields by which sensitive keys are sent to the upstream.
func (e *explainer) maskKeys(h map[string][]string) {
	for _, k := range e.x.extracted.keys {
		if !k.spec.Sensitive || k.spec.SetHeader == "" || len(h[k.spec.SetHeader]) == 0 {
			continue
		}
		h[k.spec.SetHeader] = []string{key.Mask(h[k.spec.SetHeader][0], 0)}
	}
}
