package proxy

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// errCost says that a request asks for a cost that is none.
var errCost = errors.New("cost not acceptable")

// extract learns what the request claims: one claim for each window of each
// limit of its route, under the key that the request carries. A key is made
// once, however many limits count under it.
func (g *generation) extract(x *exchange) error {
	if x.exempt = x.bypasses(); x.exempt {
		return nil
	}
	if err := x.readQuery(); err != nil {
		return err
	}
	for _, l := range x.route.limits {
		err := g.claim(x, l)
		if err != nil && l.mode == config.Shadow {
			x.shadowErrors = append(x.shadowErrors, l) // a limit in shadow mode refuses nobody
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readQuery reads the query, if the route needs it.
func (x *exchange) readQuery() error {
	if !x.route.queries || x.read {
		return nil
	}
	if _, err := x.ParsedQuery(); err != nil {
		return err
	}
	x.read = true
	x.foldQuery()
	return nil
}

// claim asks for the permits of each window of l. What limits in shadow mode are
// asked is kept apart, because they never refuse.
func (g *generation) claim(x *exchange, l *limit) error {
	k, err := g.key(x, l.key)
	if err != nil || k.skip {
		return err
	}
	cost, err := x.cost(l.cost)
	if err != nil {
		return err
	}
	var value extractedKey
	if l.distinct != nil {
		if value, err = g.key(x, l.distinct); err != nil || value.skip {
			return err
		}
	}
	of := l.windows
	if others, ok := l.overrides[k.Key]; ok {
		of = others
	}
	for _, o := range x.overridden {
		if o.of == l {
			of = o.windows
		}
	}
	for _, i := range of {
		if cost > x.route.windows[i].Most() {
			return fmt.Errorf("%s: %w: %d is more than can ever be asked for", l.cost.From, errCost, cost)
		}
	}
	if x.source == 0 {
		x.source = uint32(maphash.Comparable(g.seed, x.network)) | 1 // never nobody
	}
	shared := ""
	if l.redisson != "" {
		shared = strings.ReplaceAll(l.redisson, "{key}", k.text)
		if l.keyed && limiter.CheckRedissonKey(k.text) != nil || limiter.CheckRedissonName(shared) != nil {
			return fmt.Errorf("%s: %w: it cannot stand in the name of a limiter", l.key.From, key.ErrInvalid)
		}
	}
	claims, windows := &x.claims, &x.windows
	if l.mode == config.Shadow {
		claims, windows = &x.shadows, &x.shadowWindows
	}
	for _, i := range of {
		*claims = append(*claims, limiter.Claim{Limit: &x.route.windows[i].Limit, Key: k.Key, Cost: cost, Value: value.Key, Redisson: shared, RedissonForm: l.form, Source: x.source})
		*windows = append(*windows, i)
	}
	if g.config.Privacy.Rotates && shared == "" { // what was counted before counts as well
		x.rotates = true
		for _, i := range of {
			*claims = append(*claims, limiter.Claim{Limit: &x.route.windows[i].Limit, Key: k.previous, Cost: cost, Value: value.previous, Source: x.source})
			*windows = append(*windows, i)
		}
	}
	return nil
}

// cost is how many permits the request asks for; 1 if it does not say.
func (x *exchange) cost(c *config.Cost) (int64, error) {
	if c == nil {
		return 1, nil
	}
	if x.Confused(c.From) {
		return 0, fmt.Errorf("%s: %w: another name may be taken for its own", c.From, key.ErrAmbiguous)
	}
	if c.From.Source == key.Query && x.Confused(key.Origin{Source: key.Form, Name: c.From.Name}) {
		return 0, fmt.Errorf("%s: %w: beside a form in the body, in which some servers find it too", c.From, key.ErrAmbiguous)
	}
	values := x.Header(c.From.Name)
	if c.From.Source == key.Query {
		values = x.Query(c.From.Name)
	}
	if len(values) == 0 {
		return 1, nil
	}
	if len(values) > 1 {
		return 0, fmt.Errorf("%s: %w", c.From, key.ErrAmbiguous)
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || n < 1 || n > c.Max || values[0][0] == '+' || values[0][0] == '0' { // which makes it octal for some
		return 0, fmt.Errorf("%s: %w: write a whole number from 1 to %d", c.From, errCost, c.Max)
	}
	return n, nil
}

// An extractedKey is the key that a spec has made of the request.
type extractedKey struct {
	by *key.Spec
	limiter.Key
	previous limiter.Key // under the secret that is being replaced; not made otherwise
	bare     limiter.Key // under no secret, which may change; made where new keys are bounded, and stays here
	text     string      // what stands for it in names that Java programs share
	skip     bool        // it is missing, and limits on it do not apply
	shown    string      // masked, for people; of a sensitive key only
}

func (g *generation) key(x *exchange, by *key.Spec) (extractedKey, error) {
	for _, k := range x.keys {
		if k.by == by {
			return k, nil
		}
	}
	if err := by.Extract(x, &x.value); err != nil {
		return extractedKey{}, err
	}
	k := extractedKey{by: by, skip: x.value.Skip}
	if !k.skip {
		k.text = x.value.Text()
		k.Key = g.config.Privacy.Hash(x.value.Parts)
		k.previous, _ = g.config.Privacy.PreviousHash(x.value.Parts)
		if x.route.newKeys.looks(by) {
			k.bare = config.Privacy{}.Hash(x.value.Parts)
		}
	}
	x.override(by)
	if by.Sensitive && !k.skip {
		k.shown = x.value.Shown()
	}
	x.keys = append(x.keys, k)
	return k, nil
}

// An overridden limit goes by windows that the request's key has of its own.
type overridden struct {
	of      *limit
	windows []int
}

// override finds the limits in which the key that was extracted last stands hashed.
func (x *exchange) override(by *key.Spec) {
	for _, l := range x.route.limits {
		if l.hashed == nil || l.key != by {
			continue
		}
		if text, ok := l.hashed.Hash(&x.value); ok {
			x.overridden = append(x.overridden, overridden{l, l.ofHashed[text]})
		}
	}
}
