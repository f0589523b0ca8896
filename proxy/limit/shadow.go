package limit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/sends"
)

// Shadow is what the limits in shadow mode say about a request.
type Shadow struct {
	Claims   ClaimSet          // written by extract
	Errors   []*Limit          // those for which the request has no valid claim; written by extract
	outcomes []limiter.Outcome // of the claims, if the call that allowed the request has decided them
	Refusals []Refusal         // what they would have refused; written by admit
	notes    []shadowNote      // what is noted of those for which permits would be returned
}

// Refuses reports whether one of them would have refused the request.
func (s *Shadow) Refuses() bool { return len(s.Refusals)+len(s.Errors) > 0 }

// addGroups adds each limit of shadows as a group: it decides for itself if the request is allowed, and a refusal by one
// prevents no other from counting.
func (s ClaimSet) addGroups(shadows ClaimSet) ClaimSet {
	group := uint8(0)
	for i := range shadows {
		if i == 0 || shadows.Window(i).Of != shadows.Window(i-1).Of {
			group++
		}
		shadows[i].Group = group
	}
	return append(s, shadows...)
}

// decideShadow records what the limits in shadow mode have decided about q, which is allowed. It lets
// them decide if the call that decided about q did not, as for a request that could wait.
func (a *Admitter) decideShadow(ctx context.Context, q *Admission) {
	for _, l := range q.Shadow.Errors {
		a.metrics.decision(l, ShadowRefused).Inc(q.Stripe)
	}
	permit := q.Decision.Permit
	if len(q.Shadow.Claims) != len(q.Shadow.outcomes) {
		d := limiter.Decision{Outcomes: q.Shadow.outcomes[:0]}
		q.asked = q.asked[:0].addGroups(q.Shadow.Claims)
		if a.Store.Take(ctx, q.asked, &d) != nil {
			d.Outcomes = d.Outcomes[:0]
			d.AddFailed(len(q.Shadow.Claims))
		}
		q.Shadow.outcomes, permit = d.Outcomes, d.Permit
	}
	for of := range q.Shadow.Claims.Decided(q.Shadow.outcomes) {
		set, outcomes := q.Shadow.Claims[of.From:of.To], q.Shadow.outcomes[of.From:of.To]
		if of.IsFailed() {
			a.metrics.decision(of.Limit, Unavailable).Inc(q.Stripe)
			continue
		}
		taken := permit
		if !of.Allowed {
			taken = limiter.Permit{}
		}
		if !q.IsShared {
			a.metrics.countDecisions(q.Stripe, set, outcomes)
		}
		q.addShadowRefusals(set, outcomes)
		q.addTaken(a.Store, set, taken, nil)
		switch {
		case of.ShadowNotes == nil || q.IsShared:
		case of.Allowed:
			a.CountTaken(q, set)
		default:
			a.NoteShadowRefusal(ctx, q, of.Limit, &set[0])
		}
	}
}

// shadowNotes returns the limit under which the requests are noted that a limit in shadow mode would have refused, under
// their subjects, over the longest window. It refuses nothing.
func shadowNotes(of *config.Limit) *limiter.Limit {
	if of.Return == nil || of.Mode != config.Shadow {
		return nil
	}
	notes := sends.Unlimited(of.ID+":shadow:refused", of.LongestWindow())
	return &notes
}

// A shadowNote is a request that a limit in shadow mode would have refused.
type shadowNote struct {
	of     *Limit
	claims []limiter.Claim
	permit limiter.Permit
}

// NoteShadowRefusal notes, and counts, that of would have refused the request with a claim. If a response returns permits of the
// subject later, the refusal would have been wrong: see countWrong.
func (a *Admitter) NoteShadowRefusal(ctx context.Context, q *Admission, of *Limit, c *limiter.Claim) {
	n := shadowNote{of: of, claims: []limiter.Claim{{Limit: of.ShadowNotes, Key: c.Key, Cost: 1, Value: c.Value, Source: q.Source}}}
	var d limiter.Decision
	err := a.Store.Take(ctx, append(of.Sends.Claims(sends.Refused, c.Key, 1), n.claims...), &d)
	if err == nil && d.Allowed {
		n.permit = d.Permit
		q.Shadow.notes = append(q.Shadow.notes, n)
	}
}

// refundShadowNotes withdraws the notes of a request whose permits the rule refunds: no code of it can be used.
func (a *Admitter) refundShadowNotes(q *Admission, rule refundRule) {
	q.Shadow.notes = slices.DeleteFunc(q.Shadow.notes, func(n shadowNote) bool {
		if !rule.applies(n.of) {
			return false
		}
		q.Settled.start("refund", a.Store.StartRefund(n.claims, n.permit))
		q.Sends = append(q.Sends, n.of.Sends.Claims(sends.Withdrawn, n.claims[0].Key, 1)...)
		return true
	})
}

// countWrong counts the requests of a subject that a limit in shadow mode would have refused, and whose code was used.
func (a *Admitter) countWrong(of *Limit, subject limiter.Key) (wait func() error) {
	if of.ShadowNotes == nil {
		return func() error { return nil }
	}
	returned := a.Store.StartReturn([]*limiter.Limit{of.ShadowNotes}, subject)
	return func() error {
		n, err := returned()
		a.metrics.ShadowWrong.WithLabelValues(of.Route, of.Name).Add(float64(n))
		a.CountSends(of.Sends.AllClaims(sends.Wrong, int64(n)))
		return err
	}
}

// newSends returns what counts the requests of a limit with return_on, or nil.
func newSends(of *config.Limit, notes *limiter.Limit) *sends.Counter {
	if of.Return == nil {
		return nil
	}
	return sends.NewCounter(sends.Options{ID: of.ID, Window: of.LongestWindow(), Buckets: of.Algorithm.HasConversion(), Notes: notes})
}

// sends returns what counts the requests that have taken permits of w: nobody does for those that passed by step_up.
func (w *Window) sends() *sends.Counter {
	if w.isStepUp {
		return nil
	}
	return w.Of.Sends
}

// CountTaken counts a request that has taken the permits of set, once for each limit with return_on.
func (a *Admitter) CountTaken(q *Admission, set ClaimSet) {
	for of := range set.Decided(nil) {
		if counter := set.Window(of.From).sends(); counter != nil && set.CurrentIndex(of.From) == of.From {
			q.Sends = append(q.Sends, counter.Claims(sends.Counted, set[of.From].Key, set[of.From].Cost)...)
			a.metrics.sends.WithLabelValues(of.Route, of.Name, sends.Counted.String()).Inc()
		}
	}
}

// CountSends takes claims that count requests; no client waits for it. Nothing is counted while the store is unreachable.
func (a *Admitter) CountSends(claims []limiter.Claim) {
	if len(claims) == 0 {
		return
	}
	var d limiter.Decision
	began := time.Now()
	err := a.SharedStore().Take(context.Background(), claims, &d)
	if a.Timeout > 0 {
		a.metrics.observeStoreCall("count", time.Since(began), err)
	}
}

// ReadSends returns the statuses of claims.
func (a *Admitter) ReadSends(ctx context.Context, claims []limiter.Claim) ([]limiter.KeyStatus, error) {
	in, err := a.SharedStore().Inspect(ctx, claims)
	if err != nil {
		return nil, fmt.Errorf("read what was sent: %w", err)
	}
	return in.Statuses, nil
}

// addShadowRefusals records what claims on a limit in shadow mode would have refused. A
// key that is counted under two secrets is recorded once.
func (a *Admission) addShadowRefusals(set ClaimSet, outcomes []limiter.Outcome) {
	for i, o := range outcomes {
		w := set.Window(i)
		if !o.Allowed && !slices.ContainsFunc(a.Shadow.Refusals, func(s Refusal) bool { return s.Window == w }) {
			a.Shadow.Refusals = append(a.Shadow.Refusals, Refusal{w, set[i].Key, o.Banned, o.Wait})
		}
	}
}

// shareShadow records what limits in shadow mode would have refused of q, for which s, and others with it, was decided.
func (a *Admitter) shareShadow(q *Admission, s *Shadow) {
	outcomes := make([]limiter.Outcome, len(q.Shadow.Claims))
	for i := range outcomes {
		outcomes[i] = limiter.Outcome{Allowed: true, Unknown: true}
		if at := s.Claims.Index(&q.Shadow.Claims[i]); at >= 0 && at < len(s.outcomes) && !s.outcomes[at].IsFailed() {
			outcomes[i] = s.outcomes[at]
		}
	}
	a.metrics.countDecisions(q.Stripe, q.Shadow.Claims, outcomes)
	q.addShadowRefusals(q.Shadow.Claims, outcomes)
}

// CountryOf returns that one of limits with a conversion on the countries of phone numbers that counts the same requests as l, which
// has one on their ranges; nil if there is none, or l is another.
func CountryOf(l *Limit, limits []*Limit) *Limit {
	of := func(o *Limit, part key.PartKind) bool {
		return o.Key.Of != nil && o.Key.Part.Kind == part && o.Conversion > 0 && o.Route == l.Route && o.Key.Of.Name == l.Key.Of.Name &&
			o.Return.Route == l.Return.Route && o.Return.Subject.Name == l.Return.Subject.Name
	}
	if i := slices.IndexFunc(limits, func(o *Limit) bool { return of(l, key.Prefix) && of(o, key.Country) }); i >= 0 {
		return limits[i]
	}
	return nil
}

// Counts returns what became of all requests of l, which has return_on, by the statuses of Sends.OfAll.
func (l *Limit) Counts(statuses []limiter.KeyStatus) sends.LimitCounts {
	all := sends.LimitCounts{
		Route: l.Route, Limit: l.Name, Key: l.Key.Name, Mode: string(l.Mode), ReturnOn: l.Return.Route, Subject: l.Return.Subject.Name,
		Conversion: l.Conversion, Window: limiter.WindowName(l.LongestWindow()), StepUp: l.StepUp != nil, All: l.Sends.ReadAll(statuses), Keys: []sends.KeyCounts{},
	}
	if l.ByPlan != nil {
		all.Note = "of keys with a plan the rates are those of the limit itself"
	}
	return all
}
