package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// pendingVersion is the first byte of a Pending. Nodes of another version refuse it.
const pendingVersion = 1

// A correction is what a request has cost after all, or how much less than was taken for it. One of both is 0.
type correction struct{ cost, less int64 }

// settleCost makes the permits of q as many as r says. If a refund fails, mayRepeat allows r again; what was refunded is
// not refunded again. What is missing is not taken twice.
func (a *admitter) settleCost(ctx context.Context, q *admission, r correction, mayRepeat func() error) error {
	var missing []limiter.Claim
	var from []limiter.AdminStore
	for i := range q.takenPermits {
		t := &q.takenPermits[i]
		q.settled.pending = q.settled.pending[:0]
		for j, c := range t.claims {
			switch tooMuch := r.tooMuch(&c, t.claims.window(j).of); {
			case tooMuch > 0:
				c.Cost = tooMuch
				q.settled.pending = append(q.settled.pending, c)
			case tooMuch < 0:
				c.Cost = min(-tooMuch, c.Limit.Capacity())
				missing, from = append(missing, c), append(from, t.store)
			}
		}
		a.refund(ctx, q, t)
	}
	if q.err != nil {
		return errors.Join(limiter.ErrUnavailable, q.err, mayRepeat())
	}
	for i := range missing {
		q.fail(takeUpTo(ctx, from[i], missing[i:i+1]))
	}
	return q.err
}

// tooMuch returns how many permits of a claim are too many; below 0 some are missing.
func (r correction) tooMuch(c *limiter.Claim, of *limit) int64 {
	switch counts := of.Prices == nil && !c.Limit.Algorithm.HasValues() && !c.Limit.Algorithm.HasSteps(); {
	case concurrent(c), r.less > 0 && !counts:
		return c.Cost
	case r.less > 0:
		return min(r.less, c.Cost)
	case !counts:
		return 0
	}
	return c.Cost - r.cost
}

// takeUpTo takes what one claim costs, or as much of it as there is.
func takeUpTo(ctx context.Context, from limiter.Store, one []limiter.Claim) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var d limiter.Decision
	for range 3 { // others take meanwhile
		if err := from.Take(ctx, one, &d); err != nil || d.Allowed {
			return err
		}
		if one[0].Cost = min(one[0].Cost, d.Outcomes[0].Remaining); one[0].Cost < 1 {
			break
		}
	}
	return nil
}

// pending returns what restore needs to settle a, whose request has these keys, on any node; nil if its outcome changes
// nothing. Keys are in it as stores have them.
func (a *admission) pending(node string, all []extractedKey) []byte {
	r := a.route
	settles := len(a.takenPermits) > 0 && (r.settles || !r.RefundOn.Status.Empty())
	if a.keepsPermits || !a.settlesOthers() && !settles {
		return nil
	}
	w := pendingWriter{pendingVersion}
	w.text(node)
	w.text(r.Name)
	secrets := uint64(1)
	if a.bothSecrets {
		secrets = 2
	}
	w.number(secrets)
	w.number(uint64(len(a.takenPermits)))
	for i := range a.takenPermits {
		w.permit(&a.takenPermits[i])
	}
	var keys []*extractedKey
	for i := range all {
		if k := &all[i]; !k.skip && r.settlesBy(k.spec) {
			keys = append(keys, k)
		}
	}
	w.number(uint64(len(keys)))
	for _, k := range keys {
		w.text(k.spec.Name)
		w = append(append(w, k.Key[:]...), k.previous[:]...)
	}
	return w
}

// restore sets what settling a request needs, and returns its keys. It reports false if b is not of a route that find
// finds by its name. Permits of a window that is not configured any more stay taken.
func (a *admission) restore(b []byte, node string, find func(route string) *limitRoute) (keys []extractedKey, restored bool) {
	r := pendingReader{rest: b}
	if len(r.bytes(1)) == 0 || b[0] != pendingVersion {
		return nil, false
	}
	here := r.text() == node
	if a.route = find(r.text()); a.route == nil {
		return nil, false
	}
	a.bothSecrets = r.number() == 2
	for range r.count() {
		t, by := r.permit(a.route)
		switch own := a.admitter; {
		case by == grantedByFallback:
			t.store = reporting{own.fallback.local, own.fallback}
		case here:
			t.store = own.store
		default: // this node has not recorded the permit for outages of the store
			t.store = own.sharedStore()
		}
		a.takenPermits = append(a.takenPermits, t)
	}
	for range r.count() {
		keys = append(keys, extractedKey{spec: a.route.settlingKey(r.text()), Key: r.key(), previous: r.key()})
	}
	return keys, !r.failed && len(r.rest) == 0
}

// settlesBy reports whether responses of r decide about permits or cooldowns of other routes under a key.
func (r *limitRoute) settlesBy(s *key.Spec) bool { return r.settlingKey(s.Name) == s }

// settlingKey returns the key with this name by which responses of r decide about other routes, or nil.
func (r *limitRoute) settlingKey(name string) *key.Spec {
	for i := range r.cooldownResets {
		if s := r.cooldownResets[i].key; s.Name == name {
			return s
		}
	}
	for i := range r.permitReturns {
		if s := r.permitReturns[i].key; s.Name == name {
			return s
		}
	}
	return nil
}

// A grantor is what granted a permit.
type grantor uint8

const (
	grantedByStore grantor = iota
	grantedByFallback
)

// A pendingWriter encodes a Pending: numbers as varints, texts with their lengths.
type pendingWriter []byte

func (w *pendingWriter) number(n uint64) { *w = binary.AppendUvarint(*w, n) }

func (w *pendingWriter) text(s string) {
	w.number(uint64(len(s)))
	*w = append(*w, s...)
}

// permit encodes a permit and its claims.
func (w *pendingWriter) permit(t *takenPermit) {
	by := grantedByStore
	if t.isByFallback() {
		by = grantedByFallback
	}
	*w = append(append(*w, byte(by)), t.permit.ID[:]...)
	w.number(uint64(t.permit.At.UnixMilli()))
	w.number(uint64(len(t.firstUse)))
	for i := range t.firstUse {
		*w = append(*w, t.firstUse[i].Key[:]...)
	}
	w.number(uint64(len(t.claims)))
	for i := range t.claims {
		c := &t.claims[i]
		w.text(c.Limit.Name)
		w.number(uint64(c.Limit.Rate.Count)) // a key with rates of its own has another one
		w.number(uint64(c.Cost))
		*w = append(append(*w, c.Key[:]...), c.Value[:]...)
		w.text(c.RedissonName)
	}
}

// A pendingReader decodes what a pendingWriter encoded.
type pendingReader struct {
	rest   []byte
	failed bool
}

// bytes returns the next n bytes, none if there are fewer.
func (r *pendingReader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.failed, r.rest = true, nil
		return nil
	}
	next := r.rest[:n]
	r.rest = r.rest[n:]
	return next
}

func (r *pendingReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// count returns the number of entries that follow. Each has at least one byte.
func (r *pendingReader) count() int {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.failed, r.rest = true, nil
		return 0
	}
	return int(n)
}

func (r *pendingReader) text() string { return string(r.bytes(r.count())) }

func (r *pendingReader) key() (k limiter.Key) {
	copy(k[:], r.bytes(len(k)))
	return k
}

// permit decodes a permit of a route, except for its store.
func (r *pendingReader) permit(of *limitRoute) (t takenPermit, by grantor) {
	for _, b := range r.bytes(1) {
		by = grantor(b)
	}
	copy(t.permit.ID[:], r.bytes(len(t.permit.ID)))
	t.permit.At = time.UnixMilli(int64(r.number()))
	for range r.count() {
		if k := r.key(); of.idempotency != nil {
			t.firstUse = append(t.firstUse, limiter.Claim{Limit: &of.idempotency.firstUse, Key: k, Cost: 1})
		}
	}
	for range r.count() {
		name, count := r.text(), r.number()
		c := limiter.Claim{Cost: int64(r.number()), Key: r.key(), Value: r.key(), RedissonName: r.text()}
		i := slices.IndexFunc(of.windows, func(w *window) bool { return w.Name == name && (uint64(w.Limit.Rate.Count) == count || w.isUnit) })
		if i < 0 {
			continue
		}
		w := of.windows[i]
		if w.isUnit {
			w = w.withCount(int64(count))
		}
		c.Limit, c.RedissonFormat = &w.Limit, w.of.RedissonFormat
		t.claims = append(t.claims, c)
	}
	return t, by
}
