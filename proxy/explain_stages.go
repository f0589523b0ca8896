package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/proxy/view"
)

// early is Proxy.early without side effects.
func (e *explainer) early() (string, error) {
	x := e.x
	if err := e.generation.claimEarly(x); err != nil || len(x.Claims) == 0 {
		return "", err
	}
	err := e.peek()
	if errors.Is(err, limit.ErrRefused) {
		return "", fmt.Errorf("%w, before the body is read", err)
	}
	x.DropClaims()
	return "", nil // if the store is unreachable, admit decides
}

// newKeys is Proxy.newKeys without side effects.
func (e *explainer) newKeys() (string, error) {
	x, r := e.x, e.x.route
	if x.Exempt {
		return "", nil
	}
	a := e.proxy.guard.Peek(r.NewKeys, limiter.KeyOf(r.Name, x.client.network.String()), x.appendLimitedKeys(nil)...)
	switch {
	case !a.New:
		return "no key is new", nil
	case !a.Refused:
		return "a key is new; the client may send one", nil
	case r.NewKeysMode == config.Shadow:
		return "too many new keys from this client (shadow)", nil
	}
	x.Decision = limiter.Decision{Wait: a.Wait, Outcomes: x.Decision.Outcomes[:0]}
	return "", errNewKeys
}

// admit is admitter.admit without side effects.
func (e *explainer) admit() (string, error) {
	x := e.x
	e.Decision.Asked, e.Decision.Allowed = len(x.Claims) > 0, true
	if len(x.Claims) == 0 {
		e.Decision.Reason = x.exemptReason()
		return e.Decision.Reason, nil
	}
	err := e.peek()
	switch {
	case x.Repeated:
		e.Decision.Repeat = true
		return "it repeats a counted request, and does not count", nil
	case errors.Is(err, limit.ErrRefused) && x.CanWait():
		detail := "it waits " + x.Decision.Wait.String() + " for a permit, if no other request is waiting"
		e.Decision.Reason = detail
		return detail, nil
	case err != nil && !errors.Is(err, limit.ErrRefused):
		e.Decision.Asked = false
		e.Decision.Reason = ErrorText(err) + "; each limit follows its on_store_failure"
		if x.Claims.Denies() {
			e.Decision.Allowed = false
			return "", limit.ErrUndecided
		}
		x.Claims = x.Claims[:0]
		return e.Decision.Reason, nil
	}
	e.Decision.Allowed = err == nil
	if err == nil && x.Steps != nil {
		e.Decision.Reason = "it is over a rate, and passes by step_up"
	}
	return e.Decision.Reason, err
}

// peek peeks all claims of x, as admitter.takeAll takes them.
func (e *explainer) peek() error {
	a, x := e.proxy.admitter, e.x
	ctx, cancel := a.WithTimeout(e.ctx)
	defer cancel()
	if len(x.Claims) == 0 {
		x.Decision.Allowed = true
		return nil
	}
	if err := a.TakeBy(ctx, &x.Admission, a.Peek, a.Peek); err != nil {
		return fmt.Errorf("peek limits: %w", err)
	}
	x.MergePrevious()
	if x.Decision.Allowed {
		return nil
	}
	for i, o := range x.Decision.Outcomes {
		if name := x.Claims.Window(i).Of.Name; !o.Allowed && !slices.Contains(e.Decision.By, name) {
			e.Decision.By = append(e.Decision.By, name)
		}
	}
	x.ShortenRetry()
	e.Decision.Asked, e.Decision.WaitMS = true, x.Decision.Wait.Milliseconds()
	return limit.ErrRefused
}

// exemptReason returns why no limit in enforce mode applies to x.
func (x *exchange) exemptReason() string {
	switch {
	case x.list != nil && x.list.Action == config.Bypass:
		return "the list " + x.list.Name + " bypasses limits"
	case x.Exempt:
		return "CORS preflight"
	case len(x.route.Active) == 0:
		return "the route has no limits"
	}
	return "no enforced limit applies"
}

// maxOtherRoutes is the maximum number of routes listed that were not selected.
const maxOtherRoutes = 5

// match runs the stage match, and lists the routes that were not selected.
func (e *explainer) match() (string, error) {
	plain, exact := e.generation.table.FindExact(e.generation.matchable(e.x))
	if err := e.generation.match(e.x); err != nil {
		e.Others = e.others(nil)
		return "", err
	}
	r := e.x.route
	e.Route = &view.ExplainedRoute{Route: e.generation.config.View(r.Route.Route), Lenient: exact != nil || plain != r}
	e.Others = e.others(r)
	return r.Name, e.proxy.checkDirectives(e.x)
}

// others returns the routes closest to the request that were not selected: first those with the
// fewest matchers that fail, then in the order of the file.
func (e *explainer) others(taken *route) []view.ExplainedOther {
	all := []view.ExplainedOther{}
	for _, r := range e.generation.routes {
		if r != taken && r.Match.Domain == "" {
			shown := e.generation.config.ShownRoute(r.Route.Route).Match
			because := e.generation.table.Mismatches(r.order, e.generation.matchable(e.x), routing.Pattern{Host: shown.Host, Methods: shown.Methods, Path: shown.Path, Headers: shown.Headers, Query: shown.Query, Scheme: shown.Scheme})
			all = append(all, view.ExplainedOther{Name: r.Name, Position: r.Position.String(), Because: because})
		}
	}
	slices.SortStableFunc(all, func(a, b view.ExplainedOther) int { return cmp.Compare(len(a.Because), len(b.Because)) })
	all = all[:min(len(all), maxOtherRoutes)]
	for i := range all {
		switch {
		case len(all[i].Because) > 0:
		case taken == nil:
			all[i].Because = []string{"the request was refused before"}
		default:
			all[i].Because = []string{"less specific than the matched route"}
		}
	}
	return all
}

// forward implements downstream. It adds the request that would be forwarded; nothing is sent.
func (e *explainer) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	x := e.x
	header, _ := x.in.header.(*http1.Fields)
	came := map[string][]string{} // by canonical names
	for line := range header.All() {
		came[line.Name] = append(came[line.Name], line.Value)
	}
	t.Fields = header.Clone()
	out, kind, err := p.Outgoing(t)
	if err != nil {
		return upstream.Result{Kind: kind, Err: err}
	}
	from := x.route.Upstream
	e.maskKeys(out.Header)
	isSame := func(name string) bool { return slices.Equal(out.Header[name], came[name]) }
	isSent := func(name string) bool { return out.Header[name] != nil }
	e.Upstream = &view.ExplainedUpstream{
		Name: from.Name, Echo: from.Echo, Targets: append([]string{}, out.Targets...), Balance: string(from.Balance),
		Method: out.Method, Target: out.Target, Host: out.Host, Header: out.Header,
		Set:     append([]string{}, slices.DeleteFunc(slices.Sorted(maps.Keys(out.Header)), isSame)...),
		Removed: append([]string{}, slices.DeleteFunc(slices.Sorted(maps.Keys(came)), isSent)...),
	}
	return upstream.Result{Kind: upstream.OK}
}

// maskKeys masks the fields by which sensitive keys are sent to the upstream.
func (e *explainer) maskKeys(h map[string][]string) {
	for _, k := range e.x.extracted.keys {
		if !k.Spec.Sensitive || k.Spec.SetHeader == "" || len(h[k.Spec.SetHeader]) == 0 {
			continue
		}
		h[k.Spec.SetHeader] = []string{key.Mask(h[k.Spec.SetHeader][0], 0)}
	}
}
