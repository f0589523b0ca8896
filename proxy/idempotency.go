package proxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// maxIdempotencyKey is how long an idempotency key may be, in bytes.
const maxIdempotencyKey = 255

// errIdempotencyKey says that the idempotency key of a request cannot be used.
var errIdempotencyKey = errors.New("idempotency key not acceptable")

// An idempotency lets a client repeat a request of which it did not see the
// answer: the repeats of one that was counted do not count. How many do not is
// bounded, because an upstream that does not know the key does its work again
// each time. Both limits live in the same store as those of the route.
type idempotency struct {
	*config.Idempotency
	once, repeats limiter.Limit
}

func newIdempotency(route string, c *config.Idempotency) *idempotency {
	if c == nil {
		return nil
	}
	limit := func(name string, count int64) limiter.Limit {
		return limiter.Limit{Name: route + ".idempotency:" + name, Rate: limiter.Rate{Count: count, Window: c.Life}}
	}
	return &idempotency{Idempotency: c, once: limit("once", 1), repeats: limit("repeats", c.Repeats)}
}

// A repeat is what a request and its repeats are known by.
type repeat struct {
	first []limiter.Claim // to be the first of its kind; none without an idempotency key
	all   []limiter.Claim // what is asked in one step: first and all else
}

func (r repeat) reset() repeat { return repeat{all: r.all[:0]} }

// idempotency learns under which key the repeats of the request are known: those with
// the same idempotency key, method, target and body, from whom the limits count as the same.
// A request without an idempotency key has no repeats.
func (g *generation) idempotency(x *exchange) error {
	i := x.route.repeats
	if i == nil || len(x.asks.claims) == 0 {
		return nil
	}
	sent := x.Header(i.Header)
	switch {
	case x.Confused(key.Origin{Source: key.Header, Name: i.Header}):
		return fmt.Errorf("header:%s: %w: another name may be taken for its own", i.Header, key.ErrAmbiguous)
	case len(sent) == 0:
		return nil
	case len(sent) > 1:
		return fmt.Errorf("header:%s: %w", i.Header, key.ErrAmbiguous)
	case sent[0] == "" || len(sent[0]) > maxIdempotencyKey || strings.ContainsFunc(sent[0], func(r rune) bool { return r < ' ' || r >= 0x7f }):
		return fmt.Errorf("header:%s: %w: write 1 to %d ASCII characters", i.Header, errIdempotencyKey, maxIdempotencyKey)
	}
	body, err := x.Body()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body.Bytes)
	parts := []string{"idempotency", sent[0], x.request.Method, x.request.Host, x.request.Path, x.request.RawQuery, body.Type, string(sum[:])}
	for _, c := range x.asks.claims {
		parts = append(parts, string(c.Key[:]))
	}
	x.repeat.first = []limiter.Claim{{Limit: &i.once, Key: g.config.Privacy.Hash(parts), Cost: 1, Source: x.extracted.source}}
	return nil
}

// repeats reports whether the request is a repeat that does not count. An error
// means that it is not known.
func (a *admitter) repeats(ctx context.Context, x *exchange) (bool, error) {
	var d limiter.Decision
	if err := a.store.Peek(ctx, x.repeat.first, &d); err != nil || d.Allowed {
		return false, err
	}
	free := []limiter.Claim{{Limit: &x.route.repeats.repeats, Key: x.repeat.first[0].Key, Cost: 1, Source: x.extracted.source}}
	if err := a.take(ctx, free, &d); err != nil || !d.Allowed {
		x.repeat.first = nil // it counts, but as no first one
		return false, err
	}
	x.admitted.repeated = true
	x.asks = x.asks.none()
	x.decision = limiter.Decision{Allowed: true, At: time.Now(), Outcomes: x.decision.Outcomes[:0]}
	return true, nil
}

// takeOnce asks for all claims of x and, with an idempotency key, for being the first of its
// kind, in one step. Of two that come at once the second is a repeat.
func (a *admitter) takeOnce(ctx context.Context, x *exchange, take taker) error {
	if len(x.repeat.first) == 0 {
		return take(ctx, x.asks.claims, &x.decision)
	}
	if repeated, err := a.repeats(ctx, x); err != nil || repeated {
		return err
	}
	n := len(x.asks.claims)
	x.repeat.all = append(append(x.repeat.all[:0], x.asks.claims...), x.repeat.first...)
	if err := take(ctx, x.repeat.all, &x.decision); err != nil {
		return err
	}
	if n < len(x.decision.Outcomes) && !x.decision.Outcomes[n].Allowed {
		if repeated, err := a.repeats(ctx, x); err != nil || repeated {
			return err
		}
		return take(ctx, x.asks.claims, &x.decision)
	}
	x.decision.Outcomes = x.decision.Outcomes[:n]
	return nil
}
