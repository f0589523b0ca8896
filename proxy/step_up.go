package proxy

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/decisions"
)

// errNoToken reports that a request has no token for the challenge of a limit.
var errNoToken = errors.New("no token")

// tokenUseOf returns the limit on the uses of a token of a challenge of limits: one, for as long as any is accepted. Its window
// is longer than two nodes, whose clocks differ by the leeway of issuers and a minute, can accept a token after each other.
func tokenUseOf(limits []*limit) limiter.Limit {
	rate := limiter.Rate{Count: 1, Window: time.Minute}
	for _, l := range limits {
		if s := l.StepUp; s != nil {
			rate.Window = max(rate.Window, s.MaxAge+3*s.Tokens.Leeway()+time.Minute)
		}
	}
	use := limiter.Limit{Name: "step_up.token:once", Rate: rate}
	_ = use.Prepare() // it is valid; otherwise stores would refuse each claim
	return use
}

// A solver finds the token by which a request may pass a limit that has refused it.
type solver interface {
	// solution returns the claim on the first use of the token, or errNoToken, or an error that tells the client
	// why its token is not accepted.
	solution(l *limit) (limiter.Claim, error)
}

// A stepsUp is the state of a request that only limits with step_up have refused.
type stepsUp struct {
	limits    []*limit            // that count it at the rates of their step_up
	tokens    []limiter.Claim     // the first uses of its tokens, each once
	result    decisions.Challenge // the result for by, or that it passed all limits
	by        *limit              // whose challenge is the response; nil if there is none
	problem   error               // why no token was accepted
	usedTwice bool                // a token has been used by another request
}

// stepUp decides again about a request that limits with step_up have refused: their claims are replaced by claims at
// the rates of step_up, together with the first use of its tokens. take takes them in one step with all other claims,
// as for any request, so that no rate is exceeded and no token is used in vain. A limit that refuses only now is
// replaced in turn. If a limit needs a token and there is none, or if it was used before, the refusal stays, with a
// challenge. After an error the claims are those of before.
func (a *admitter) stepUp(q *admission, take func() error) error {
	first := q.claims
	for q.canStepUp() {
		claims, refusal := q.claims, q.decision
		refusal.Outcomes = slices.Clone(q.decision.Outcomes)
		q.claims = q.claims.stepUp(q.steps.limits)
		err := take()
		switch {
		case err != nil:
			q.claims, q.steps = first, nil
			return err
		case q.isRepeat:
			q.steps = nil
			return nil
		case q.decision.Allowed:
			q.steps.result = decisions.ChallengePassed
			return nil
		case q.steps.usedTwice:
			q.claims, q.decision = claims, refusal
			q.steps.challenge(q.steps.limits[0], decisions.TokenUsed, errors.New("the token has been used"))
			return nil
		}
	}
	return nil
}

// canStepUp reports whether the request may be counted at the rates of step_up by all limits that have refused it. If a
// token is missing, it sets the challenge.
func (a *admission) canStepUp() bool {
	refused := a.refusedSteps()
	if len(refused) == 0 {
		return false
	}
	if a.steps == nil {
		a.steps = &stepsUp{}
	}
	for _, l := range refused {
		use, err := a.solver.solution(l)
		switch {
		case errors.Is(err, errNoToken):
			a.steps.challenge(l, decisions.ChallengeIssued, err)
			return false
		case err != nil:
			a.steps.challenge(l, decisions.TokenInvalid, err)
			return false
		}
		if !slices.ContainsFunc(a.steps.tokens, func(c limiter.Claim) bool { return c.Key == use.Key }) {
			a.steps.tokens = append(a.steps.tokens, use)
		}
	}
	a.steps.limits = append(a.steps.limits, refused...)
	return true
}

// cannotStepUp reports whether the request could be counted at the rates of step_up, but only the store knows whether
// its token was used, or what was counted at those rates. It clears the refusal.
func (a *admission) cannotStepUp() bool {
	if len(a.route.tokenFields) == 0 || !a.canStepUp() {
		return false
	}
	a.decision.Outcomes, a.steps = a.decision.Outcomes[:0], nil
	return true
}

// challenge makes the challenge of l the response.
func (s *stepsUp) challenge(l *limit, result decisions.Challenge, problem error) {
	s.by, s.result, s.problem = l, result, problem
}

// refusedSteps returns the limits that have refused the request, if all of them have a step_up that they have not
// applied yet. A ban is final.
func (a *admission) refusedSteps() (refused []*limit) {
	for i, o := range a.decision.Outcomes {
		w := a.claims.window(i)
		switch {
		case o.Allowed || slices.Contains(refused, w.of):
		case w.of.StepUp == nil || w.isStepUp || o.Banned:
			return nil
		default:
			refused = append(refused, w.of)
		}
	}
	return refused
}

// stepUp returns a new set in which the claims on limits are at the rates of their step_up.
func (s claimSet) stepUp(limits []*limit) (next claimSet) {
	for i, c := range s {
		w := s.window(i)
		switch repeated := i > 0 && s.window(i-1).of == w.of && s[i-1].Key == c.Key; {
		case w.isStepUp || !slices.Contains(limits, w.of):
			next = append(next, c)
		case !repeated: // one window of each key stands for all
			if w.of.Return == nil {
				c.Value = limiter.Key{}
			}
			next.add(w.of.stepUps, &c)
		}
	}
	return next
}
