package proxy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// maxIdempotencyKey is the maximum length of an idempotency key in bytes.
const maxIdempotencyKey = 255

// errIdempotencyKey reports that the idempotency key of a request is not valid.
var errIdempotencyKey = errors.New("idempotency key not acceptable")

// An idempotency lets a client repeat a request whose response it did not receive: repeats of a
// counted request are not counted. The number of free repeats is limited, because an upstream that
// ignores the key repeats its work each time. Both limits are kept in the store of the route's
// limits.
type idempotency struct {
	*config.Idempotency
	firstUse, repeats limiter.Limit
}

func newIdempotency(route string, c *config.Idempotency) *idempotency {
	if c == nil {
		return nil
	}
	limit := func(name string, count int64) limiter.Limit {
		return limiter.Limit{Name: route + ".idempotency:" + name, Rate: limiter.Rate{Count: count, Window: c.Life}}
	}
	return &idempotency{Idempotency: c, firstUse: limit("once", 1), repeats: limit("repeats", c.Repeats)}
}

// idempotency makes the claims that recognize repeats of the request: requests with the same
// idempotency key, method, target, body and Authorization, and the same keys of limits: upstreams
// keep idempotency keys by account. Cookies may differ, because they are renewed. A request without
// an idempotency key has no repeats.
func (g *generation) idempotency(x *exchange) error {
	i := x.route.idempotency
	if i == nil || len(x.claims.claims) == 0 {
		return nil
	}
	sent := x.Header(i.Header)
	switch {
	case x.Confused(key.HeaderField(i.Header)):
		return fmt.Errorf("header:%s: %w: some servers read another name as this one", i.Header, key.ErrAmbiguous)
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
	parts := []string{"idempotency", sent[0], x.request.Method, x.request.Host, x.request.Forwarded, x.request.RawQuery, body.Type, string(sum[:]), strings.Join(x.Header("Authorization"), "\x00")}
	for _, c := range x.claims.claims {
		parts = append(parts, string(c.Key[:]))
	}
	x.idempotent.firstUse = []limiter.Claim{{Limit: &i.firstUse, Key: g.config.Privacy.Hash(parts), Cost: 1, Source: x.source}}
	return nil
}
