package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/view"
)

// Explain reports what would be done with a request. It runs the stages that serve requests without
// side effects: nothing is taken, counted, remembered, logged or forwarded, and the store is only
// peeked. It returns an error that wraps ErrExplain if r is not a valid request.
func (p *Proxy) Explain(ctx context.Context, r view.ExplainRequest) (view.Explanation, error) {
	x, err := exchangeOf(r)
	if err != nil {
		return view.Explanation{}, err
	}
	g := p.acquire(0)
	defer g.release(0)
	x.generation, x.in.scheme = g, cmp.Or(x.in.scheme, g.usualScheme())
	e := &explainer{ctx: ctx, proxy: p, generation: g, x: x}
	e.Others, e.Keys, e.Lists, e.Limits = []view.ExplainedOther{}, []view.ExplainedKey{}, []view.ExplainedList{}, []view.ExplainedLimit{}
	e.Generation = g.number.Load()
	e.Method, e.Scheme = x.request.Method, x.in.scheme

	refusal := e.runStages()
	e.Host, e.Path, e.Client = x.request.Host, x.request.Path, x.client.addr.String()
	if x.route != nil {
		decided := x.Decision // the calls below must not change the response
		decided.Outcomes = append([]limiter.Outcome(nil), decided.Outcomes...)
		claims := slices.Clone(x.Claims)
		e.explainKeys()
		e.explainLists()
		e.explainLimits()
		e.explainReturns()
		x.Decision, x.Claims = decided, claims
	}
	e.end(refusal)
	return e.Explanation, nil
}

// An explainer runs one request through the stages. It is the downstream of the request.
type explainer struct {
	ctx        context.Context //nolint:containedctx // of one call of Explain
	proxy      *Proxy
	generation *generation
	x          *exchange
	view.Explanation
}

// runStages runs the stages in order. It returns the error with which a stage refuses the request;
// later stages are skipped.
func (e *explainer) runStages() error {
	g, x := e.generation, e.x
	refusal := e.runStage("client address", func() (string, error) {
		if g.clientIP.resolve(x); x.client.trustedPeer {
			return "the peer is a trusted proxy", nil
		}
		return "", nil
	}, nil)
	refusal = e.runStage("normalize", func() (string, error) {
		return "", cmp.Or(x.parse(int(g.config.Listen.MaxHeader)), normalize(x), g.requireHTTPS(x))
	}, refusal)
	refusal = e.runStage("match route", e.match, refusal)
	for _, s := range claimStages() {
		refusal = e.runStage(s.name, func() (string, error) {
			switch {
			case !x.route.passes(&s):
				return "", nil
			case s.explain != nil:
				return s.explain(e)
			}
			return "", s.run(e.proxy, e.ctx, x)
		}, refusal)
	}
	return e.runStage("check limits", e.admit, refusal)
}

// runStage runs a stage and adds it to the explanation. It returns the error with which it refuses the request, or
// earlier, the error of a stage before, after which it is skipped.
func (e *explainer) runStage(name string, run func() (detail string, err error), earlier error) error {
	explained := view.ExplainedStage{Name: name, Result: view.StageSkipped}
	if earlier == nil {
		explained.Result = view.StagePassed
		if explained.Detail, earlier = run(); earlier != nil {
			explained.Result, explained.Detail = view.StageRefused, earlier.Error()
		}
	}
	e.Stages = append(e.Stages, explained)
	return earlier
}

// end adds the response or the forwarded request to the explanation.
func (e *explainer) end(refusal error) {
	x := e.x
	e.Decision.Store = string(e.generation.config.Store)
	e.Decision.Slots = e.generation.slots(x.Claims)
	if refusal != nil {
		e.respond(e.generation.refuse(x, refusal))
		return
	}
	if x.route.onlyDecided() {
		e.respond(x.withRateLimits(respond.Response{Status: 200}))
		return
	}
	shown := *x.route
	shown.Route.Route = e.generation.config.ShownRoute(x.route.Route.Route)
	shown.compileTexts()
	x.route = &shown
	e.generation.forward(x, e)
}

// slots returns how many cluster slots hold the keys of claims, 1 if all are decided in one script.
func (g *generation) slots(claims []limiter.Claim) int {
	apart := g.config.Store == config.StoreRedis && g.config.Redis.Mode == config.RedisCluster
	places := map[string]bool{}
	for _, c := range claims {
		switch {
		case c.RedissonName != "" && g.config.Store == config.StoreRedis:
			places[c.RedissonName] = true
		case apart:
			places[c.Key.String()] = true
		default:
			places[""] = true
		}
	}
	return max(len(places), 1)
}

// respond implements downstream.
func (e *explainer) respond(a respond.Response) {
	e.x.forGRPC(&a)
	explained := &view.ExplainedAnswer{Status: a.Status, Header: map[string][]string{}, Body: string(a.Body)}
	for _, f := range a.Fields {
		explained.Header[f.Name] = append(explained.Header[f.Name], f.Value)
	}
	if e.x.Err != nil {
		explained.Why = e.x.Err.Error()
	}
	e.Answer, e.Upstream = explained, nil
}

// beforeEnd implements downstream. There is nothing to release.
func (e *explainer) beforeEnd(func(flush func())) {}

// explainKeys adds each key that the route reads, once, beginning with those of limits.
func (e *explainer) explainKeys() {
	for _, read := range e.x.route.Reads() {
		if read.Mode == config.Off || read.Purpose == config.ForCost || read.Purpose == config.ForPlan {
			continue
		}
		e.Keys = view.AddNew(e.Keys, e.explainKey(read.Key))
	}
}

// explainKey explains one key.
func (e *explainer) explainKey(s *key.Spec) view.ExplainedKey {
	explained := view.ExplainedKey{Name: s.Name, From: originText(s)}
	if err := e.x.readQuery(); err != nil {
		explained.Error = err.Error()
		return explained
	}
	k, err := e.generation.key(e.x, s)
	switch {
	case err != nil:
		explained.Error = err.Error()
	case k.Skip:
		explained.Skipped = true
	default:
		explained.Hash = e.x.generation.redact.KeyHash(k.Key)
		explained.Value = e.maskedValue(s)
	}
	return explained
}

// maskedValue returns the value of a key, masked if the key is sensitive.
func (e *explainer) maskedValue(s *key.Spec) string {
	if err := s.Extract(e.x, &e.x.extracted.value); err != nil {
		return ""
	}
	return e.x.extracted.value.Shown()
}

// originText describes where a key is read from.
func originText(s *key.Spec) string {
	switch {
	case s.Of != nil:
		return string(s.Part.Kind) + " of " + s.Of.Name
	case len(s.Join) > 0:
		return strings.Join(view.Each(s.Join, func(part *key.Spec) string { return part.Name }), " + ")
	}
	return s.From.String()
}

// explainLists adds each list of the route, with whether the request is on it.
func (e *explainer) explainLists() {
	x := e.x
	for _, lookup := range slices.Concat(x.route.lists, x.route.bodyLists) {
		found := x.readQuery() == nil && lookup.key.Extract(x, &x.extracted.value) == nil && !x.extracted.value.Skip
		for _, l := range lookup.lists {
			e.Lists = append(e.Lists, view.ExplainedList{Name: l.Name, Key: lookup.key.Name, Action: string(l.Action), Hit: found && x.isListed(l)})
		}
	}
}

// explainLimits adds each limit of the route, with its own decision.
func (e *explainer) explainLimits() {
	x := e.x
	for _, from := range x.route.Limits {
		explained := from.Explained()
		i := slices.IndexFunc(x.route.Active, func(l *limit.Limit) bool { return l.Name == from.Name })
		if i < 0 {
			explained.Reason = "its mode is off"
		} else {
			e.explainLimit(x.route.Active[i], &explained)
		}
		e.Limits = append(e.Limits, explained)
	}
}

// explainReturns adds each limit of another route whose permits a response returns.
func (e *explainer) explainReturns() {
	for _, r := range e.x.route.Others {
		if r.IsReturn() {
			e.Returns = append(e.Returns, view.ExplainedReturn{Route: r.Of.Route, Limit: r.Of.Name, Key: r.Key.Name, Status: r.Status.Ranges()})
		}
	}
}

// explainLimit peeks l, if it applies to the request.
func (e *explainer) explainLimit(l *limit.Limit, explained *view.ExplainedLimit) {
	x, a := e.x, e.proxy.admitter
	x.Claims, x.Shadow.Claims = x.Claims[:0], x.Shadow.Claims[:0]
	if x.bypasses() {
		explained.Reason = x.exemptReason()
		return
	}
	err := x.readQuery()
	if err == nil {
		err = e.generation.claim(x, l)
	}
	set := x.Claims
	if l.Mode == config.Shadow {
		set = x.Shadow.Claims
	}
	explained.Plan, explained.PlanFrom = x.planOf(l), x.planFrom(l)
	if l.Prices != nil {
		explained.Price = e.explainPrice(l.Prices)
	}
	switch {
	case err != nil:
		explained.Reason = err.Error()
	case len(set) > 0:
	case explained.Plan != "":
		explained.Reason = "the plan " + explained.Plan + " has no limit"
	case l.Prices != nil:
		explained.Reason = "the key is missing, or the number costs nothing"
	default:
		explained.Reason = "the key is missing, and on_missing or on_invalid is skip"
	}
	if explained.Reason != "" {
		return
	}
	explained.Asked, explained.Allowed, explained.Cost, explained.Redisson = true, true, set[0].Cost, set[0].RedissonName
	explained.Value, explained.Price = e.maskedValue(l.Key), l.CostText(explained.Cost, explained.Price)
	explained.Override = explained.Plan == "" && !slices.Contains(l.Windows, set.Window(0))

	ctx, cancel := a.WithTimeout(e.ctx)
	defer cancel()
	var d limiter.Decision
	if err := a.Store.Peek(ctx, set, &d); err != nil {
		explained.Asked, explained.Reason = false, ErrorText(err)
		return
	}
	set.MergePrevious(d.Outcomes)
	for i, o := range d.Outcomes {
		w := set.Window(i)
		explained.Allowed = explained.Allowed && o.Allowed
		if set.CurrentIndex(i) < i {
			continue // the same window under the previous secret
		}
		explained.Windows = append(explained.Windows, view.ExplainedWindow{
			Rate: w.Of.RateText(w.Written(w.Rate)), Allowed: o.Allowed, Remaining: o.Remaining, Most: w.Capacity(), WaitMS: o.Wait.Milliseconds(), Banned: o.Banned,
		})
		if l.Prices != nil {
			explained.Windows[len(explained.Windows)-1].Left = l.Prices.Text(o.Remaining)
		}
	}
	if l.Algorithm.HasConversion() {
		explainConversion(ctx, a.Store, set, explained.Windows)
	}
}

// explainConversion says of each window why so much is allowed, as far as the store replies.
func explainConversion(ctx context.Context, store limiter.AdminStore, claims []limiter.Claim, windows []view.ExplainedWindow) {
	if in, err := store.Inspect(ctx, claims); err == nil {
		for i := range windows {
			s := in.Statuses[i]
			windows[i].Conversion, windows[i].Most, windows[i].Remaining = &view.ConversionStanding{Allowed: s.Allowed, Confirmed: s.Confirmed}, s.Allowed, max(s.Allowed-s.Used, 0)
		}
	}
}

// explainPrice returns what the number of the request costs, and why: 0.075 EUR: +4915, mobile, line 812 of
// prices.csv.
func (e *explainer) explainPrice(p *config.Prices) string {
	price, found, err := e.generation.price(e.x, p)
	if err != nil {
		return err.Error()
	}
	text, subject, kind := p.Text(price.Amount), "number", cmp.Or(string(price.Type), "*")+", "
	if p.ByModel() {
		text, subject, kind = text+" for a million tokens of an answer", "model", ""
	}
	if !found {
		text += ": no row has the " + subject + ", so that it costs the dearest"
	}
	return fmt.Sprintf("%s: %s, %sline %d of %s", text, cmp.Or(price.Prefix, "*"), kind, price.Line, p.File)
}

// permits describes what a rate of a limit allows: 20/10m.
func permits(w *limit.Window) string {
	switch {
	case w.Algorithm.HasSteps():
		return "cooldown"
	case w.IsUnit:
		return "limit of the descriptor per " + limiter.WindowName(w.Rate.Window)
	}
	return w.Of.RateText(w.Written(w.Rate))
}

// ErrExplain reports that the request to explain is not valid.
var ErrExplain = errors.New("not a valid request")

// exchangeOf returns an exchange for the request, as a downstream would.
func exchangeOf(r view.ExplainRequest) (*exchange, error) {
	if !httpguts.ValidHeaderFieldName(r.Method) {
		return nil, fmt.Errorf("%w: %q is not a method; write for example GET or POST", ErrExplain, r.Method)
	}
	scheme, authority, target, err := splitURL(r.URL)
	if err != nil {
		return nil, err
	}
	header, err := fieldsOf(r)
	if err != nil {
		return nil, err
	}
	x := newExchange().(*exchange)
	x.request.Method, x.in.scheme, x.request.Proto, x.request.RequestTarget = r.Method, scheme, "HTTP/1.1", target
	host, _ := header.Value(http1.Host)
	x.request.HostField = cmp.Or(authority, host, "localhost")
	header.Del("Host")
	x.in.header, x.in.length = header, int64(len(r.Body))
	x.in.body = literalBody(r.Body)
	x.in.peer = netip.AddrPortFrom(cmp.Or(r.Client, netip.AddrFrom4([4]byte{127, 0, 0, 1})), 0)
	x.id = "REQUEST-ID"
	x.readFieldNames(header)
	return x, nil
}

// parse returns the error with which a connection refuses the head of x.
func (x *exchange) parse(maxHeader int) error {
	head := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", x.request.Method, x.request.RequestTarget, x.request.HostField)
	for line := range x.in.header.(*http1.Fields).All() {
		head = fmt.Appendf(head, "%s: %s\r\n", line.Name, line.Value)
	}
	_, err := new(http1.Request).Parse(append(head, "\r\n"...), &http1.Limits{Target: maxHeader, Head: maxHeader, Fields: http1.MaxFields})
	return err
}

// fieldsOf returns the header fields with canonical names.
func fieldsOf(r view.ExplainRequest) (*http1.Fields, error) {
	h := new(http1.Fields)
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, fmt.Errorf("%w: %q is not a header field name; write for example X-Phone", ErrExplain, name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return nil, fmt.Errorf("%w: the value of %s has a line break or a control character", ErrExplain, name)
			}
			h.Add(http.CanonicalHeaderKey(name), strings.Trim(v, " \t"))
		}
	}
	return h, nil
}

// splitURL splits a URL without changing a byte of its path and query.
func splitURL(s string) (scheme, authority, target string, err error) {
	switch {
	case s == "":
		return "", "", "", fmt.Errorf("%w: an empty URL; write for example http://localhost/v1/search, or /v1/search", ErrExplain)
	case strings.ContainsAny(s, " \t\r\n"):
		return "", "", "", fmt.Errorf("%w: the URL %q has a space; write %%20", ErrExplain, s)
	case strings.Contains(s, "#"):
		return "", "", "", fmt.Errorf("%w: the URL %q has a fragment, which clients do not send; remove the part from #", ErrExplain, s)
	case s[0] == '/' || s == "*":
		return "", "", s, nil
	}
	scheme, rest, absolute := strings.Cut(s, "://")
	scheme = strings.ToLower(scheme)
	if !absolute || scheme != "http" && scheme != "https" {
		return "", "", "", fmt.Errorf("%w: %q is not a URL; write for example http://localhost/v1/search, or /v1/search", ErrExplain, s)
	}
	end := strings.IndexAny(rest+"/", "/?")
	if end == 0 {
		return "", "", "", fmt.Errorf("%w: the URL %q has no host", ErrExplain, s)
	}
	return scheme, rest[:end], "/" + strings.TrimPrefix(rest[end:], "/"), nil // as clients send it
}
