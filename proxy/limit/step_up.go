package limit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/decisions"
)

// ErrNoToken reports that a request has no token for the challenge of a limit.
var ErrNoToken = errors.New("no token")

// TokenUse returns the limit on the uses of a token of a challenge of limits: one, for as long as any is accepted, which
// the clock of the store says. Its window is a minute longer, for nodes of versions that went by their own.
func TokenUse(limits []*Limit) limiter.Limit {
	use := limiter.Limit{Name: "step_up.token:once", Rate: limiter.Rate{Count: 1, Window: time.Minute}}
	for _, l := range limits {
		if s := l.StepUp; s != nil {
			use.Rate.Window = max(use.Rate.Window, s.MaxAge+3*s.Tokens.Leeway()+time.Minute)
		}
	}
	_ = use.Prepare() // it is valid; otherwise stores would refuse each claim
	return use
}

// A solver finds the token by which a request may pass a limit that has refused it.
type solver interface {
	// Solution returns the claim on the first use of the token, or errNoToken, or an error that tells the client
	// why its token is not accepted.
	Solution(l *Limit) (limiter.Claim, error)
}

// A stepsUp is the state of a request that only limits with step_up have refused.
type stepsUp struct {
	limits    []*Limit            // that count it at the rates of their step_up
	tokens    []limiter.Claim     // the first uses of its tokens, each once
	Result    decisions.Challenge // the result for by, or that it passed all limits
	By        *Limit              // whose challenge is the response; nil if there is none
	Problem   error               // why no token was accepted
	usedTwice bool                // a token has been used by another request
}

// TakeBy takes all claims of q by take, at the rates of step_up if limits refuse them, and free repeats by free.
func (a *Admitter) TakeBy(ctx context.Context, q *Admission, take, free taker) error {
	if len(q.Route.TokenFields) == 0 {
		return a.takeOnce(ctx, q, take, free)
	}
	began := time.Now()
	err := a.takeOnce(ctx, q, take, free)
	if err != nil || q.Decision.Allowed {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded && a.Timeout > 0 { // the calls together are bounded as the first is by the store
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(a.Timeout))
		defer cancel()
	}
	return a.stepUp(q, func() error { return a.takeOnce(ctx, q, take, free) })
}

// stepUp decides again about a request that limits with step_up have refused: their claims are replaced by claims at
// the rates of step_up, together with the first use of its tokens. take takes them in one step with all other claims,
// as for any request, so that no rate is exceeded and no token is used in vain. A limit that refuses only now is
// replaced in turn. If a limit needs a token and there is none, or if it was used before, the refusal stays, with a
// challenge. After an error the claims are those of before.
func (a *Admitter) stepUp(q *Admission, take func() error) error {
	first := q.Claims
	for q.canStepUp() {
		claims, refusal := q.Claims, q.Decision
		refusal.Outcomes = slices.Clone(q.Decision.Outcomes)
		q.Claims = q.Claims.stepUp(q.Steps.limits)
		err := take()
		switch {
		case err != nil:
			q.Claims, q.Steps = first, nil
			return err
		case q.Repeated:
			q.Steps = nil
			return nil
		case q.Decision.Allowed:
			q.Steps.Result = decisions.ChallengePassed
			return nil
		case q.Steps.usedTwice:
			q.Claims, q.Decision = claims, refusal
			q.Steps.challenge(q.Steps.limits[0], decisions.TokenUsed, errors.New("the token has been used"))
			return nil
		}
	}
	return nil
}

// canStepUp reports whether the request may be counted at the rates of step_up by all limits that have refused it. If a
// token is missing, it sets the challenge.
func (a *Admission) canStepUp() bool {
	refused := a.refusedSteps()
	if len(refused) == 0 {
		return false
	}
	if a.Steps == nil {
		a.Steps = &stepsUp{}
	}
	for _, l := range refused {
		use, err := a.Solver.Solution(l)
		switch {
		case errors.Is(err, ErrNoToken):
			a.Steps.challenge(l, decisions.ChallengeIssued, err)
			return false
		case err != nil:
			a.Steps.challenge(l, decisions.TokenInvalid, err)
			return false
		}
		if !slices.ContainsFunc(a.Steps.tokens, func(c limiter.Claim) bool { return c.Key == use.Key }) {
			a.Steps.tokens = append(a.Steps.tokens, use)
		}
	}
	a.Steps.limits = append(a.Steps.limits, refused...)
	return true
}

// cannotStepUp reports whether the request could be counted at the rates of step_up, but only the store knows whether
// its token was used, or what was counted at those rates. It clears the refusal.
func (a *Admission) cannotStepUp() bool {
	if len(a.Route.TokenFields) == 0 || !a.canStepUp() {
		return false
	}
	a.Decision.Outcomes, a.Steps = a.Decision.Outcomes[:0], nil
	return true
}

// count counts the result, if there are challenges.
func (s *stepsUp) count(m *Metrics) {
	if s == nil {
		return
	}
	limits := s.limits
	switch {
	case s.By != nil:
		limits = []*Limit{s.By}
	case s.Result != decisions.ChallengePassed:
		return
	}
	for _, l := range limits {
		m.Challenges.WithLabelValues(l.Route, l.Name, s.Result.String()).Inc()
	}
}

// Challenge returns the challenge that is the response, and what it tells the client.
func (s *stepsUp) Challenge() (name, detail string) {
	of := s.By.StepUp
	detail = "Solve the challenge " + of.Challenge + ", and repeat the request with its token in " + of.Header + "."
	if s.Result != decisions.ChallengeIssued {
		detail += " Refused: " + s.Problem.Error() + "."
	}
	return of.Challenge, detail
}

// challenge makes the challenge of l the response.
func (s *stepsUp) challenge(l *Limit, result decisions.Challenge, problem error) {
	s.By, s.Result, s.Problem = l, result, problem
}

// refusedSteps returns the limits that have refused the request, if all of them have a step_up that they have not
// applied yet. A ban is final.
func (a *Admission) refusedSteps() (refused []*Limit) {
	for i, o := range a.Decision.Outcomes {
		w := a.Claims.Window(i)
		switch {
		case o.Allowed || slices.Contains(refused, w.Of):
		case w.Of.StepUp == nil || w.isStepUp || o.Banned:
			return nil
		default:
			refused = append(refused, w.Of)
		}
	}
	return refused
}

// stepUp returns a new set in which the claims on limits are at the rates of their step_up.
func (s ClaimSet) stepUp(limits []*Limit) (next ClaimSet) {
	for i, c := range s {
		w := s.Window(i)
		switch repeated := i > 0 && s.Window(i-1).Of == w.Of && s[i-1].Key == c.Key; {
		case w.isStepUp || !slices.Contains(limits, w.Of):
			next = append(next, c)
		case !repeated: // one window of each key stands for all
			if w.Of.Return == nil {
				c.Value = limiter.Key{}
			}
			next.Add(w.Of.StepUps, &c)
		}
	}
	return next
}
