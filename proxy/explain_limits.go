package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// explainKeys adds each key that the route reads, beginning with those of limits.
func (e *explainer) explainKeys() {
	explained := map[*key.Spec]bool{}
	for read := range e.x.route.Reads() {
		if read.Mode == config.Off || read.Purpose == config.ForCost || read.Purpose == config.ForPlan || explained[read.Key] {
			continue
		}
		explained[read.Key] = true
		e.Keys = append(e.Keys, e.explainKey(read.Key))
	}
}

// explainKey explains one key.
func (e *explainer) explainKey(s *key.Spec) ExplainedKey {
	explained := ExplainedKey{Name: s.Name, From: originText(s)}
	if err := e.x.readQuery(); err != nil {
		explained.Error = err.Error()
		return explained
	}
	k, err := e.generation.key(e.x, s)
	switch {
	case err != nil:
		explained.Error = err.Error()
	case k.skip:
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
			e.Lists = append(e.Lists, ExplainedList{Name: l.Name, Key: lookup.key.Name, Action: string(l.Action), Hit: found && x.isListed(l)})
		}
	}
}

// explainLimits adds each limit of the route, with its own decision.
func (e *explainer) explainLimits() {
	x := e.x
	for _, from := range x.route.Limits {
		explained := ExplainedLimit{
			Name: from.Name, Routes: from.Routes, Key: from.Key.Name, Algorithm: from.Algorithm.String(), Mode: string(from.Mode), Scope: from.Scope.String(),
			OnStoreFailure: string(from.OnStoreFailure), Exposed: from.Expose, Cost: 1, Windows: []ExplainedWindow{},
		}
		if from.Distinct != nil {
			explained.Distinct = from.Distinct.Name
		}
		if from.Wait > 0 {
			explained.Wait = from.Wait.String()
		}
		if to := from.Return; to != nil {
			explained.Returned = "returned by " + to.Route + " for the same " + to.Subject.Name
		}
		if from.StepUp != nil {
			explained.StepUp = stepUpText(from.StepUp)
		}
		if from.Penalty != nil {
			explained.Penalty = "banned for " + limiter.WindowName(from.Penalty.Ban) + " at the next refusal"
			if from.Penalty.After > 1 {
				explained.Penalty = "banned for " + limiter.WindowName(from.Penalty.Ban) + " after refusals at the rate " + limiter.Rate{Count: from.Penalty.After, Window: longestWindow(from.Rates)}.String()
			}
		}
		i := slices.IndexFunc(x.route.limits, func(l *limit) bool { return l.Name == from.Name })
		if i < 0 {
			explained.Reason = "its mode is off"
		} else {
			e.explainLimit(x.route.limits[i], &explained)
		}
		e.Limits = append(e.Limits, explained)
	}
}

// stepUpText describes how requests that a limit refuses may pass.
func stepUpText(s *config.StepUp) string {
	var rates []string
	for _, rate := range s.Rates {
		rates = append(rates, rate.String())
	}
	return "then 403 with the challenge " + s.Challenge + ", and passes with a token for its " + s.Key.Name + " in " + s.Header + " at " + strings.Join(rates, " ")
}

// explainReturns adds each limit of another route whose permits a response returns.
func (e *explainer) explainReturns() {
	for _, r := range e.x.route.permitReturns {
		e.Returns = append(e.Returns, ExplainedReturn{r.of.Route, r.of.Name, r.key.Name, r.status.Ranges()})
	}
}

// explainLimit peeks l, if it applies to the request.
func (e *explainer) explainLimit(l *limit, explained *ExplainedLimit) {
	x, a := e.x, e.proxy.admitter
	x.claims, x.shadows = x.claims[:0], x.shadows[:0]
	if x.bypasses() {
		explained.Reason = x.exemptReason()
		return
	}
	err := x.readQuery()
	if err == nil {
		err = e.generation.claim(x, l)
	}
	set := x.claims
	if l.Mode == config.Shadow {
		set = x.shadows
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
	explained.Value = e.maskedValue(l.Key)
	explained.Override = explained.Plan == "" && !slices.Contains(l.windows, set.window(0))

	ctx, cancel := a.withTimeout(e.ctx)
	defer cancel()
	var d limiter.Decision
	if err := a.store.Peek(ctx, set, &d); err != nil {
		explained.Asked, explained.Reason = false, ErrorText(err)
		return
	}
	set.mergePrevious(d.Outcomes)
	for i, o := range d.Outcomes {
		w := set.window(i)
		explained.Allowed = explained.Allowed && o.Allowed
		if set.currentIndex(i) < i {
			continue // the same window under the previous secret
		}
		explained.Windows = append(explained.Windows, ExplainedWindow{
			Rate: RateText(w.of.Limit, w.Rate), Allowed: o.Allowed, Remaining: o.Remaining, Most: w.Capacity(), WaitMS: o.Wait.Milliseconds(), Banned: o.Banned,
		})
		if l.Prices != nil {
			explained.Windows[len(explained.Windows)-1].Left = l.Prices.Text(o.Remaining)
		}
	}
	if l.Algorithm.HasConversion() {
		explainConversion(ctx, a.store, set, explained.Windows)
	}
}

// explainConversion says of each window why so much is allowed, as far as the store replies.
func explainConversion(ctx context.Context, store limiter.AdminStore, claims []limiter.Claim, windows []ExplainedWindow) {
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
	text := p.Text(price.Amount) + ": "
	if !found {
		text += "no row has the number, so that it costs the dearest: "
	}
	return fmt.Sprintf("%s%s, %s, line %d of %s", text, cmp.Or(price.Prefix, "*"), cmp.Or(string(price.Type), "*"), price.Line, p.File)
}

// permits describes what a rate of a limit allows: 20/10m.
func permits(w *window) string {
	switch {
	case w.Algorithm.HasSteps():
		return "cooldown"
	case w.isUnit:
		return "limit of the descriptor per " + limiter.WindowName(w.Rate.Window)
	}
	return RateText(w.of.Limit, w.Rate)
}

// longestWindow returns the longest window of rates.
func longestWindow(rates []limiter.Rate) (window time.Duration) {
	for _, r := range rates {
		window = max(window, r.Window)
	}
	return window
}

// An ExplainRequest is a request to explain. It is not sent.
type ExplainRequest struct {
	Method string `json:"method"`
	// URL is an absolute URL, or a path with an optional query. The host of the latter is the field
	// Host of Header, or localhost.
	URL    string              `json:"url"`
	Header map[string][]string `json:"header,omitempty"`
	Body   string              `json:"body,omitempty"`
	// Client is the peer of the connection, 127.0.0.1 if it is not set. If it is a trusted proxy,
	// the header determines the client.
	Client netip.Addr `json:"client,omitzero"`
}

// An Explanation reports what would be done with a request, and why. Sensitive keys are masked, as
// in the log.
type Explanation struct {
	Method string `json:"method"`
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Path   string `json:"path"`   // canonical form, in which the path is matched and forwarded
	Client string `json:"client"` // the client's address, behind trusted proxies
	// Generation is the number of the configuration used.
	Generation int64             `json:"generation"`
	Stages     []ExplainedStage  `json:"stages"`
	Route      *ExplainedRoute   `json:"route,omitempty"` // nil if no route matches
	Others     []ExplainedOther  `json:"others"`          // the closest of the other routes
	Keys       []ExplainedKey    `json:"keys"`
	Lists      []ExplainedList   `json:"lists"`
	Limits     []ExplainedLimit  `json:"limits"`
	Returns    []ExplainedReturn `json:"returns,omitempty"` // what a response of the route does to limits of others
	Decision   ExplainedDecision `json:"decision"`
	// Answer is a response by Weir itself: a refusal, a redirect or a fixed response. Upstream is
	// the request that would be forwarded. Exactly one of the two is set.
	Answer   *ExplainedAnswer   `json:"answer,omitempty"`
	Upstream *ExplainedUpstream `json:"upstream,omitempty"`
}

// The results of a stage.
const (
	StagePassed  = "passed"
	StageRefused = "refused"
	StageSkipped = "skipped" // not applicable, or an earlier stage refused the request
)

// An ExplainedStage is the result of one stage.
type ExplainedStage struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Detail string `json:"detail,omitempty"`
}

// An ExplainedRoute is the matched route.
type ExplainedRoute struct {
	Name     string   `json:"name"`
	Position string   `json:"position"` // file:line:column
	Host     string   `json:"host,omitempty"`
	Methods  []string `json:"methods,omitempty"`
	Path     string   `json:"path"`
	// Lenient reports that the path of the request matches another route, or none with limits, but
	// that this route applies because a lenient upstream could take the path for one of this route.
	Lenient bool `json:"lenient,omitempty"`
}

// An ExplainedOther is a route that was not selected.
type ExplainedOther struct {
	Name     string `json:"name"`
	Position string `json:"position"`
	// Because has one entry for each matcher that fails: host, method, path, header, query. If none
	// fails, it says that the matched route has precedence.
	Because []string `json:"because"`
}

// An ExplainedKey is a key that the route reads.
type ExplainedKey struct {
	Name string `json:"name"`
	From string `json:"from"`
	// Value is the normalized value, masked if the key is sensitive: "phone=+86138****8000".
	Value string `json:"value,omitempty"`
	// Hash is the name of the key in the log.
	Hash    string `json:"hash,omitempty"`
	Skipped bool   `json:"skipped,omitempty"` // the key is missing, and limits on it do not apply
	Error   string `json:"error,omitempty"`   // why the key cannot be read; the request is refused
}

// An ExplainedList is a list of the route.
type ExplainedList struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Action string `json:"action"`
	Hit    bool   `json:"hit"`
}

// An ExplainedLimit is a limit of the route and its own decision.
type ExplainedLimit struct {
	Name           string   `json:"name"`
	Routes         []string `json:"routes,omitempty"` // with which the route has one count by the limit
	Key            string   `json:"key"`              // the name of the key
	Value          string   `json:"value,omitempty"`
	Distinct       string   `json:"distinct,omitempty"` // the name of the key whose distinct values are counted
	Algorithm      string   `json:"algorithm"`
	Mode           string   `json:"mode"`
	Scope          string   `json:"scope"`
	OnStoreFailure string   `json:"on_store_failure"`
	Exposed        bool     `json:"expose"`
	Cost           int64    `json:"cost"`
	Price          string   `json:"price,omitempty"`    // of a budget: what the request costs, and why
	Wait           string   `json:"wait,omitempty"`     // the maximum time that a request waits for a permit
	Penalty        string   `json:"penalty,omitempty"`  // the consequence of refusals
	Returned       string   `json:"returned,omitempty"` // by which responses of another route permits are returned
	StepUp         string   `json:"step_up,omitempty"`  // how a request that it refuses may pass
	Shared         string   `json:"redisson,omitempty"`
	Override       bool     `json:"override,omitempty"`  // the key has overridden rates
	Plan           string   `json:"plan,omitempty"`      // the plan of the key, whose rates apply
	PlanFrom       string   `json:"plan_from,omitempty"` // where it comes from
	// Asked is false if the limit does not apply; Reason says why.
	Asked   bool              `json:"asked"`
	Reason  string            `json:"reason,omitempty"`
	Allowed bool              `json:"allowed"`
	Windows []ExplainedWindow `json:"windows"`
}

// An ExplainedReturn is a limit of another route whose permits a response returns (return_on).
type ExplainedReturn struct {
	Route  string   `json:"route"`
	Limit  string   `json:"limit"`
	Key    string   `json:"key"` // of whose value the permits are returned
	Status []string `json:"status"`
}

// An ExplainedWindow is one rate of a limit.
type ExplainedWindow struct {
	Rate      string `json:"rate"`
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"` // before this request
	Most      int64  `json:"most"`
	WaitMS    int64  `json:"wait_ms,omitempty"` // until the request would be allowed
	Banned    bool   `json:"banned,omitempty"`
	Left      string `json:"left,omitempty"` // of a budget: what remains, as money
	// Conversion is why more than the rate may be allowed, of a limit with a conversion.
	Conversion *ConversionStanding `json:"conversion,omitempty"`
}

// An ExplainedDecision is the joint decision of the limits in enforce mode.
type ExplainedDecision struct {
	// Asked is false if no limit applies; Reason says why.
	Asked   bool   `json:"asked"`
	Reason  string `json:"reason,omitempty"`
	Allowed bool   `json:"allowed"`
	WaitMS  int64  `json:"wait_ms,omitempty"`
	Store   string `json:"store"` // memory or redis
	// Slots is the number of cluster slots of the keys of this decision. Above 1 the decision is
	// made in two phases: each slot reserves, and if one refuses, the reservations of the others
	// are cancelled.
	Slots int `json:"slots"`
	// Repeat reports that the request repeats one that was counted, and is not counted.
	Repeat bool `json:"repeat,omitempty"`
}

// An ExplainedAnswer is a response by Weir itself.
type ExplainedAnswer struct {
	Status int                 `json:"status"`
	Why    string              `json:"why,omitempty"` // the error, as in the log
	Header map[string][]string `json:"header"`
	Body   string              `json:"body,omitempty"`
}

// An ExplainedUpstream is the request that would be forwarded, and its targets.
type ExplainedUpstream struct {
	Name    string   `json:"name"`
	Echo    bool     `json:"echo,omitempty"`
	Targets []string `json:"targets"`
	Balance string   `json:"balance"`
	Method  string   `json:"method"`
	Target  string   `json:"target"` // path and query after rewriting
	Host    string   `json:"host"`
	// Header has all fields that are sent. Set has the names of those that the client did not send,
	// or not with this value. Removed has the names of those that the client sent and that are not
	// forwarded. Each request gets a new request id.
	Header  map[string][]string `json:"header"`
	Set     []string            `json:"set"`
	Removed []string            `json:"removed"`
}
