package proxy

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// errCost reports that a request asks for a cost that is none.
var errCost = errors.New("cost not acceptable")

// An extracted is what of a request keys are read from, and the keys.
type extracted struct {
	query      url.Values
	queryRead  bool         // the names in query are looked through
	body       *content     // nil if no key was read from it
	confused   []key.Origin // what other names of the request may be taken for
	value      key.Value    // the key last read
	keys       []extractedKey
	overridden []overridden // limits in which one of the keys stands hashed
}

func (e *extracted) reset() {
	e.value.Reset()
	e.query, e.queryRead, e.body = nil, false, nil // each in place: together they are too much to copy
	e.confused, e.keys, e.overridden = e.confused[:0], e.keys[:0], e.overridden[:0]
}

// extract learns what the request claims: one claim for each window of each
// limit of its route, under the key that the request carries. A key is made
// once, however many limits count under it.
func (g *generation) extract(x *exchange) error {
	x.names = x
	if x.exempt = x.bypasses(); x.exempt {
		return nil
	}
	if err := x.readQuery(); err != nil {
		return err
	}
	for _, l := range x.route.limits {
		err := g.claim(x, l)
		if err != nil && l.Mode == config.Shadow {
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
	if !x.route.queries || x.extracted.queryRead {
		return nil
	}
	if _, err := x.ParsedQuery(); err != nil {
		return err
	}
	x.extracted.queryRead = true
	x.foldQuery()
	return nil
}

// claim asks for the permits of each window of l. What limits in shadow mode are
// asked is kept apart, because they never refuse.
func (g *generation) claim(x *exchange, l *limit) error {
	k, err := g.key(x, l.Key)
	if err != nil || k.skip {
		return err
	}
	cost, err := x.cost(l.Cost)
	if err != nil {
		return err
	}
	var value extractedKey
	if l.Distinct != nil {
		if value, err = g.key(x, l.Distinct); err != nil || value.skip {
			return err
		}
	}
	of := l.windows
	if others, ok := l.overrides[k.Key]; ok {
		of = others
	}
	for _, o := range x.extracted.overridden {
		if o.of == l {
			of = o.windows
		}
	}
	for _, w := range of {
		if cost > w.Most() {
			return fmt.Errorf("%s: %w: %d exceeds the maximum", l.Cost.From, errCost, cost)
		}
	}
	if x.source == 0 {
		x.source = uint32(maphash.Comparable(g.seed, x.client.network)) | 1 // never nobody
	}
	shared := ""
	if l.RedissonName != "" {
		shared = strings.ReplaceAll(l.RedissonName, "{key}", k.text)
		if l.keyed && limiter.CheckRedissonKey(k.text) != nil || limiter.CheckRedissonName(shared) != nil {
			return fmt.Errorf("%s: %w: it cannot be part of the name of a limiter", l.Key.From, key.ErrInvalid)
		}
	}
	asked := &x.claims
	if l.Mode == config.Shadow {
		asked = &x.shadows
	}
	for _, w := range of {
		asked.add(limiter.Claim{Limit: &w.Limit, Key: k.Key, Cost: cost, Value: value.Key, Redisson: shared, RedissonForm: l.RedissonForm, Source: x.source}, w)
	}
	if g.config.Privacy.Rotates && shared == "" { // what was counted before counts as well
		x.bothSecrets = true
		for _, w := range of {
			asked.add(limiter.Claim{Limit: &w.Limit, Key: k.previous, Cost: cost, Value: value.previous, Source: x.source}, w)
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
		return 0, fmt.Errorf("%s: %w: some servers read another name as this one", c.From, key.ErrAmbiguous)
	}
	if c.From.Source == key.Query && x.Confused(key.Origin{Source: key.Form, Name: c.From.Name}) {
		return 0, fmt.Errorf("%s: %w: the body is a form, in which some servers look for it too", c.From, key.ErrAmbiguous)
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
	for _, k := range x.extracted.keys {
		if k.by == by {
			return k, nil
		}
	}
	if err := by.Extract(x, &x.extracted.value); err != nil {
		return extractedKey{}, err
	}
	k := extractedKey{by: by, skip: x.extracted.value.Skip}
	if !k.skip {
		k.text = x.extracted.value.Text()
		k.Key = g.config.Privacy.Hash(x.extracted.value.Parts)
		k.previous, _ = g.config.Privacy.PreviousHash(x.extracted.value.Parts)
		if slices.Contains(x.route.newKeys, by) {
			k.bare = config.Privacy{}.Hash(x.extracted.value.Parts)
		}
	}
	x.override(by)
	if by.Sensitive && !k.skip {
		k.shown = x.extracted.value.Shown()
	}
	x.extracted.keys = append(x.extracted.keys, k)
	return k, nil
}

// An overridden limit goes by windows that the request's key has of its own.
type overridden struct {
	of      *limit
	windows []*window
}

// override finds the limits in which the key that was extracted last stands hashed.
func (x *exchange) override(by *key.Spec) {
	for _, l := range x.route.limits {
		if l.Hashed == nil || l.Key != by {
			continue
		}
		if text, ok := l.Hashed.Keys.Hash(&x.extracted.value); ok {
			x.extracted.overridden = append(x.extracted.overridden, overridden{l, l.hashed[text]})
		}
	}
}
