package proxy

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// errCost reports that the cost of a request is not valid.
var errCost = errors.New("cost not acceptable")

// An extracted holds the keys of a request, and the data from which they are read.
type extracted struct {
	query      url.Values
	queryRead  bool         // query has been parsed and its names have been checked
	body       *content     // nil unless a key is read from the body
	confusable []key.Origin // origins for which other names of the request may be taken
	value      key.Value    // the last key that was read
	keys       []extractedKey
	overridden []overridden // limits for which a key has overridden rates, listed by hash
}

func (e *extracted) reset() {
	e.value.Reset()                                // one by one: assigning the struct would copy too much
	e.query, e.queryRead, e.body = nil, false, nil // each in place: together they are too much to copy
	e.confusable, e.keys, e.overridden = e.confusable[:0], e.keys[:0], e.overridden[:0]
}

// extract makes the claims of the request: one for each window of each limit of its route, under
// the key that the request has. A key is extracted once, whatever the number of limits that use it.
func (g *generation) extract(x *exchange) error {
	x.keyNamer = x
	if x.exempt = x.bypasses(); x.exempt {
		return nil
	}
	if err := x.readQuery(); err != nil {
		return err
	}
	for _, l := range x.route.limits {
		err := g.claim(x, l)
		if err != nil && l.Mode == config.Shadow {
			x.shadowErrors = append(x.shadowErrors, l) // a limit in shadow mode refuses no request
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readQuery parses the query if the route needs it.
func (x *exchange) readQuery() error {
	if !x.route.readsQuery || x.extracted.queryRead {
		return nil
	}
	if _, err := x.ParsedQuery(); err != nil {
		return err
	}
	x.extracted.queryRead = true
	x.findConfusableParams()
	return nil
}

// claim adds a claim for each window of l. Claims on limits in shadow mode are kept separately,
// because they never refuse.
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
	windows := l.windows
	if others, ok := l.overrides[k.Key]; ok {
		windows = others
	}
	for _, o := range x.extracted.overridden {
		if o.of == l {
			windows = o.windows
		}
	}
	for _, w := range windows {
		if cost > w.Capacity() {
			return fmt.Errorf("%s: %w: %d exceeds the maximum", l.Cost.From, errCost, cost)
		}
	}
	if x.source == 0 {
		x.source = g.source(x.client.network)
	}
	shared := ""
	if l.RedissonName != "" {
		shared = strings.ReplaceAll(l.RedissonName, "{key}", k.text)
		if l.hasKeyName && limiter.CheckRedissonKey(k.text) != nil || limiter.CheckRedissonName(shared) != nil {
			return fmt.Errorf("%s: %w: it cannot be part of the name of a limiter", l.Key.From, key.ErrInvalid)
		}
	}
	set := &x.claims
	if l.Mode == config.Shadow {
		set = &x.shadows
	}
	for _, w := range windows {
		set.add(limiter.Claim{Limit: &w.Limit, Key: k.Key, Cost: cost, Value: value.Key, RedissonName: shared, RedissonFormat: l.RedissonFormat, Source: x.source}, w)
	}
	if g.config.Privacy.Rotates && shared == "" { // counts under the previous secret count as well
		x.bothSecrets = true
		for _, w := range windows {
			set.add(limiter.Claim{Limit: &w.Limit, Key: k.previous, Cost: cost, Value: value.previous, Source: x.source}, w)
		}
	}
	return nil
}

// source identifies a client's network; see limiter.Claim.
func (g *generation) source(network netip.Prefix) uint32 {
	return uint32(maphash.Comparable(g.seed, network)) | 1 // never 0, which means no source
}

// cost returns the number of permits that the request takes; 1 if it does not say.
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
	if err != nil || n < 1 || n > c.Max || values[0][0] == '+' || values[0][0] == '0' { // a leading 0 makes it octal for some servers
		return 0, fmt.Errorf("%s: %w: write a whole number from 1 to %d", c.From, errCost, c.Max)
	}
	return n, nil
}

// An extractedKey is the key of the request for one key.Spec.
type extractedKey struct {
	spec *key.Spec
	limiter.Key
	previous limiter.Key // under the previous secret; zero if there is none
	unkeyed  limiter.Key // without any secret; only set where new keys are limited, and kept in this process
	text     string      // the key in the names of shared Redisson limiters
	skip     bool        // the key is missing, and limits on it do not apply
	masked   string      // the masked value, for the log; only of a sensitive key
}

func (g *generation) key(x *exchange, by *key.Spec) (extractedKey, error) {
	for _, k := range x.extracted.keys {
		if k.spec == by {
			return k, nil
		}
	}
	if err := by.Extract(x, &x.extracted.value); err != nil {
		return extractedKey{}, err
	}
	k := extractedKey{spec: by, skip: x.extracted.value.Skip}
	if !k.skip {
		k.text = x.extracted.value.Text()
		k.Key = g.config.Privacy.Hash(x.extracted.value.Parts)
		k.previous, _ = g.config.Privacy.PreviousHash(x.extracted.value.Parts)
		if slices.Contains(x.route.newKeys, by) {
			k.unkeyed = config.Privacy{}.Hash(x.extracted.value.Parts)
		}
	}
	x.override(by)
	if by.Sensitive && !k.skip {
		k.masked = x.extracted.value.Shown()
	}
	x.extracted.keys = append(x.extracted.keys, k)
	return k, nil
}

// An overridden is a limit with the windows that the request's key has of its own.
type overridden struct {
	of      *limit
	windows []*window
}

// override finds the limits that list the last extracted key by its hash.
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
