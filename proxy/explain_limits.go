package proxy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

// explainKeys adds each key that the route reads, once, beginning with those of limits.
func (e *explainer) explainKeys() {
	for read := range e.x.route.Reads() {
		if read.Mode == config.Off || read.Purpose == config.ForCost || read.Purpose == config.ForPlan {
			continue
		}
		if k := e.explainKey(read.Key); !slices.Contains(e.Keys, k) {
			e.Keys = append(e.Keys, k)
		}
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
		var names []string
		for _, part := range s.Join {
			names = append(names, part.Name)
		}
		return strings.Join(names, " + ")
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
	for _, r := range e.x.route.PermitReturns {
		e.Returns = append(e.Returns, view.ExplainedReturn{Route: r.Of.Route, Limit: r.Of.Name, Key: r.Key.Name, Status: r.Status.Ranges()})
	}
}

// explainLimit peeks l, if it applies to the request.
func (e *explainer) explainLimit(l *limit.Limit, explained *view.ExplainedLimit) {
	x, a := e.x, e.proxy.admitter
	x.Claims, x.Shadows = x.Claims[:0], x.Shadows[:0]
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
		set = x.Shadows
	}
	explained.Plan, explained.PlanFrom = x.planOf(l), x.planFrom(l)
	if l.Prices != nil {
		explained.Price = e.explainPrice(l.Prices)
	}
	switch {
	case err != nil:
		explained.Reason = err.Error()
		return
	case len(set) == 0 && explained.Plan != "":
		explained.Reason = "the plan " + explained.Plan + " has no limit"
		return
	case len(set) == 0 && l.Prices != nil:
		explained.Reason = "the key is missing, or the number costs nothing"
		return
	case len(set) == 0:
		explained.Reason = "the key is missing, and on_missing or on_invalid is skip"
		return
	}
	explained.Asked, explained.Allowed, explained.Cost, explained.Shared = true, true, set[0].Cost, set[0].RedissonName
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
			windows[i].Conversion, windows[i].Most, windows[i].Remaining = conversionStanding(s), s.Allowed, max(s.Allowed-s.Used, 0)
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
