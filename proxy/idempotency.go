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
	header        string
	once, repeats limiter.Limit
}

func newIdempotency(route string, c *config.Idempotency) *idempotency {
	if c == nil {
		return nil
	}
	limit := func(name string, count int64) limiter.Limit {
		return limiter.Limit{Name: route + ".idempotency:" + name, Rate: limiter.Rate{Count: count, Window: c.Life}}
	}
	return &idempotency{header: c.Header, once: limit("once", 1), repeats: limit("repeats", c.Repeats)}
}

// idempotency learns under which key the repeats of the request are known: those with
// the same idempotency key, method, target and body, from whom the limits count as the same.
// A request without an idempotency key has no repeats.
func (g *generation) idempotency(x *exchange) error {
	i := x.route.idempotency
	if i == nil || len(x.claims) == 0 {
		return nil
	}
	sent := x.Header(i.header)
	switch {
	case x.Confused(key.Origin{Source: key.Header, Name: i.header}):
		return fmt.Errorf("header:%s: %w: another name may be taken for its own", i.header, key.ErrAmbiguous)
	case len(sent) == 0:
		return nil
	case len(sent) > 1:
		return fmt.Errorf("header:%s: %w", i.header, key.ErrAmbiguous)
	case sent[0] == "" || len(sent[0]) > maxIdempotencyKey || strings.ContainsFunc(sent[0], func(r rune) bool { return r < ' ' || r >= 0x7f }):
		return fmt.Errorf("header:%s: %w: write 1 to %d ASCII characters", i.header, errIdempotencyKey, maxIdempotencyKey)
	}
	body, err := x.Body()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body.Bytes)
	parts := []string{"idempotency", sent[0], x.method, x.host, x.path, x.rawQuery, body.Type, string(sum[:])}
	for _, c := range x.claims {
		parts = append(parts, string(c.Key[:]))
	}
	x.idempotency = []limiter.Claim{{Limit: &i.once, Key: g.config.Privacy.Hash(parts), Cost: 1, Source: x.source}}
	return nil
}

// repeats reports whether the request is a repeat that does not count. An error
// means that it is not known.
func (a *admitter) repeats(ctx context.Context, x *exchange) (bool, error) {
	var d limiter.Decision
	if err := a.store.Peek(ctx, x.idempotency, &d); err != nil || d.Allowed {
		return false, err
	}
	free := []limiter.Claim{{Limit: &x.route.idempotency.repeats, Key: x.idempotency[0].Key, Cost: 1, Source: x.source}}
	if err := a.take(ctx, free, &d); err != nil || !d.Allowed {
		x.idempotency = nil // it counts, but as no first one
		return false, err
	}
	x.repeated = true
	x.claims, x.windows = x.claims[:0], x.windows[:0]
	x.decision = limiter.Decision{Allowed: true, At: time.Now(), Outcomes: x.decision.Outcomes[:0]}
	return true, nil
}

// takeOnce asks for all claims of x and, with an idempotency key, for being the first of its
// kind, in one step. Of two that come at once the second is a repeat.
func (a *admitter) takeOnce(ctx context.Context, x *exchange, take taker) error {
	if len(x.idempotency) == 0 {
		return take(ctx, x.claims, &x.decision)
	}
	if repeated, err := a.repeats(ctx, x); err != nil || repeated {
		return err
	}
	n := len(x.claims)
	x.all = append(append(x.all[:0], x.claims...), x.idempotency...)
	if err := take(ctx, x.all, &x.decision); err != nil {
		return err
	}
	if n < len(x.decision.Outcomes) && !x.decision.Outcomes[n].Allowed {
		if repeated, err := a.repeats(ctx, x); err != nil || repeated {
			return err
		}
		return take(ctx, x.claims, &x.decision)
	}
	x.decision.Outcomes = x.decision.Outcomes[:n]
	return nil
}
