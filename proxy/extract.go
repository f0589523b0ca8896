package proxy

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// errQuery says that a query which a key is read from can be read in two ways.
var errQuery = errors.New("query not acceptable")

// extract learns what the request claims: one claim for each window of each
// limit of its route, under the key that the request carries. A key is made
// once, however many limits count under it.
func (g *generation) extract(x *exchange) error {
	if x.route.queries {
		query, err := url.ParseQuery(x.rawQuery)
		if err != nil {
			return fmt.Errorf("%w: a %% that is no escape, or a semicolon", errQuery)
		}
		x.query = query
	}
	for _, l := range x.route.limits {
		k, err := g.key(x, l.key)
		if err != nil {
			return err
		}
		if !k.skip {
			x.claim(l, k.Key)
		}
	}
	return nil
}

// A counted is the key that a spec has made of the request.
type counted struct {
	by *key.Spec
	limiter.Key
	skip bool // it is missing, and limits on it do not apply
}

func (g *generation) key(x *exchange, by *key.Spec) (counted, error) {
	for _, k := range x.keys {
		if k.by == by {
			return k, nil
		}
	}
	if err := by.Extract(x, &x.value); err != nil {
		return counted{}, err
	}
	k := counted{by: by, skip: x.value.Skip}
	if !k.skip {
		k.Key = g.hash(x.value.Parts)
	}
	x.keys = append(x.keys, k)
	return k, nil
}

// claim asks for one permit of each window of l. What limits in shadow mode are
// asked is kept apart, because they never refuse.
func (x *exchange) claim(l *limit, k limiter.Key) {
	claims, windows := &x.claims, &x.windows
	if l.mode == config.Shadow {
		claims, windows = &x.shadows, &x.shaded
	}
	for _, i := range l.windows {
		*claims = append(*claims, limiter.Claim{Limit: &x.route.windows[i].Limit, Key: k, Cost: 1})
		*windows = append(*windows, i)
	}
}

// hash makes the key of its parts; with a secret nobody without it can tell
// from the key what the parts were.
func (g *generation) hash(parts []string) limiter.Key {
	if len(g.secret) > 0 {
		return limiter.KeyWithSecret(g.secret, parts...)
	}
	return limiter.KeyOf(parts...)
}
