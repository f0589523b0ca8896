package config

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

const (
	// tokenField is where the token of a challenge is read from where the file does not say.
	tokenField = "header:X-Challenge-Token" // #nosec G101 -- the name of a field
	// tokenAge is how old a token may be where the file does not say.
	tokenAge = 5 * time.Minute
	// longestToken bounds the age of a token: the store remembers for about as long that it was used.
	longestToken = 24 * time.Hour
)

// A StepUp is what a limit does instead of refusing: it challenges the client, and
// counts the request at other rates.
type StepUp struct {
	Challenge string         // the name of the challenge
	Rates     []limiter.Rate // at least one, with different windows
	Algorithm limiter.Algorithm

	Header string        // the field with the token, in canonical form
	Tokens *key.Tokens   // verifies tokens; nil: there are no keys, and no token is accepted
	MaxAge time.Duration // of a token
	Key    *key.Spec     // the claim sub of a token has its value
}

// StepUpKey returns the key whose value a token of l has; nil if there are no tokens.
func (l *Limit) StepUpKey() *key.Spec {
	if l.StepUp == nil {
		return nil
	}
	return l.StepUp.Key
}

// stepUp compiles step_up of a limit.
func (l *limits) stepUp(f *limitForm, limit *Limit) {
	if f.StepUp == nil {
		return
	}
	s := &StepUp{Challenge: cmp.Or(f.StepUp.Challenge, f.Name), Algorithm: limit.Algorithm}
	if a := limit.Algorithm; a.HasValues() || a.HasSteps() || a.HasConversion() { // which are no rates of requests
		s.Algorithm, _ = limiter.ParseAlgorithm("sliding_log")
	}
	l.token(&f.StepUp.Challenge, f.StepUp.Challenge)
	s.Rates = l.rates(rateFields{f.StepUp, &f.StepUp.Rate, &f.StepUp.Rates}, limit, "write rate: COUNT/WINDOW, for example 100/1d: the rate of requests that pass by step_up")
	for _, rate := range s.Rates {
		if limit.Cost != nil && limit.Cost.Max > rate.Count {
			l.Wrong(f.StepUp, "a request may cost more than "+rate.String()+" holds", "write a rate of at least "+strconv.FormatInt(limit.Cost.Max, 10)+", or a smaller max_cost")
		}
	}
	l.challenged(f.StepUp, limit, s)
	limit.StepUp = s
}

// challenged compiles a step_up by which the client needs a token.
func (l *limits) challenged(f *stepUpForm, limit *Limit, s *StepUp) {
	from, err := key.ParseOrigin(cmp.Or(f.Token, tokenField))
	if err != nil || !from.Source.IsField() {
		l.Wrong(&f.Token, form.Quote(f.Token)+" is not a header field", "write for example "+tokenField)
	} else {
		s.Header = from.Name
		l.ownField(&f.Token, s.Header)
	}
	s.Tokens, s.MaxAge = l.keys.tokens, cmp.Or(f.MaxAge, tokenAge)
	l.keys.signed = l.keys.signed || f.JWT == nil
	if f.JWT != nil {
		s.Tokens = l.tokens(f.JWT)
	}
	l.refuse([]finding{
		{f.JWT == nil && l.main.JWT == nil, f, "there are no keys to verify tokens with", "write jwt: {secret: \"${WEIR_CHALLENGE_SECRET:-}\"} below it, or a section jwt for all tokens"},
		{s.MaxAge > longestToken, &f.MaxAge, "is longer than a token may be valid", "write at most 1d"},
		{s.Tokens.Leeway() > longestToken, f, "the leeway of its jwt is longer than a token may be valid", "write at most 1d there"},
	})
	l.boundTo(f, limit, s)
}

// boundTo compiles the key whose value a token has.
func (l *limits) boundTo(f *stepUpForm, limit *Limit, s *StepUp) {
	pointer := any(f)
	if s.Key = limit.Key; limit.Subject() != nil {
		s.Key = limit.Subject()
	}
	if f.Key != nil {
		pointer, s.Key = f.Key, l.keys.use(f.Key)
		l.parameters(f.Key, s.Key)
	}
	if s.Key == nil {
		return // already reported
	}
	l.refuseFirst([]finding{
		{s.Key.Join != nil, pointer, "the key " + s.Key.Name + " is joined of several, which the claim sub of a token cannot hold", "write key: below step_up, with a key that is not joined"},
		{s.Key.From.Source.IsConstant(), pointer, "the key " + s.Key.Name + " is the same for everybody, so that anybody could use a token", "write key: below step_up, with a key that tells clients apart"},
	})
}

// ownField checks that a field of requests has no other meaning: Weir removes it from what clients send.
func (l *limits) ownField(pointer *string, name string) {
	reserved := requestFields()
	if !httpguts.ValidTrailerHeader(name) || reserved.has(name) || name == reserved.kept || name == "Cookie" || strings.HasPrefix(name, "Content-") {
		l.Wrong(pointer, name+" has another meaning, and would not reach the upstream", "write for example "+tokenField)
	}
}
