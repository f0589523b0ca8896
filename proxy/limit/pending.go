package limit

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// pendingVersion is the first byte of a Pending. Nodes of another version refuse it.
const pendingVersion = 1

// A Correction is what a request has cost after all, or how much less than was taken for it. One of both is 0.
type Correction struct{ Cost, Less int64 }

// SettleCost makes the permits of q as many as r says. What is missing is charged whatever is left. If a refund fails,
// mayRepeat allows r again; stores do neither twice.
func (a *Admitter) SettleCost(ctx context.Context, q *Admission, r Correction, mayRepeat func() error) error {
	a.settleCost(ctx, q, r.tooMuch)
	if q.Err != nil {
		return errors.Join(limiter.ErrUnavailable, q.Err, mayRepeat())
	}
	return nil
}

// settleCost refunds what tooMuch says of each claim of q, or charges it if that is below 0.
func (a *Admitter) settleCost(ctx context.Context, q *Admission, tooMuch func(*limiter.Claim, *Limit) int64) {
	for i := range q.TakenPermits {
		t := &q.TakenPermits[i]
		q.Settled.pending = q.Settled.pending[:0]
		var missing []limiter.Claim
		for j, c := range t.Claims {
			n := tooMuch(&c, t.Claims.Window(j).Of)
			t.Claims[j].Cost -= n // for CountSpending
			switch {
			case n > 0:
				c.Taken, c.Cost = c.Cost, n
				q.Settled.pending = append(q.Settled.pending, c)
			case n < 0 && !t.Permit.IsZero():
				c.Cost = min(-n, limiter.MaxCount)
				missing = append(missing, c)
			}
		}
		a.refund(q, t)
		if len(missing) > 0 {
			q.Fail(a.metrics.measure("charge", func() error { return t.Store.Charge(context.WithoutCancel(ctx), missing, t.Permit) }))
		}
	}
}

// tooMuch returns how many permits of a claim are too many; below 0 some are missing.
func (c Correction) tooMuch(claim *limiter.Claim, of *Limit) int64 {
	switch counts := of.countsRequests() && claim.Limit.Algorithm.HasDebt(); {
	case !refundRule{all: true}.applies(of):
		return min(claim.Cost-c.Cost, 0)
	case concurrent(claim), c.Less > 0 && !counts:
		return claim.Cost
	case c.Less > 0:
		return min(c.Less, claim.Cost)
	case !counts, of.IsShared() && claim.Cost < c.Cost: // Java programs know no debt
		return 0
	}
	return claim.Cost - c.Cost
}

// Pending returns what restore needs to settle a, whose request has these keys, on any node; nil if its outcome changes
// nothing. Keys are in it as stores have them.
func (a *Admission) Pending(node string, all []Key) []byte {
	r := a.Route
	settles := len(a.TakenPermits) > 0 && (len(r.settling) > 0 || len(r.RefundOn.Status) > 0)
	if a.KeepsPermits { // only what is concurrent is released
		settles = a.HasConcurrent()
	}
	if !settles && !a.settlesOthers() {
		return nil
	}
	w := pendingWriter{pendingVersion}
	w.text(node)
	w.text(r.Name)
	secrets := uint64(1)
	if a.BothSecrets {
		secrets = 2
	}
	w.number(secrets)
	w.number(uint64(len(a.TakenPermits)))
	for i := range a.TakenPermits {
		t := &a.TakenPermits[i]
		if a.KeepsPermits {
			t = &TakenPermit{Store: t.Store, Permit: t.Permit, Claims: appendConcurrent(nil, t.Claims)}
		}
		w.permit(t)
	}
	var keys []*Key
	for i := range all {
		if k := &all[i]; !a.KeepsPermits && !k.Skip && r.settlingKey(k.Spec.Name) == k.Spec {
			keys = append(keys, k)
		}
	}
	w.number(uint64(len(keys) + 1))
	for _, k := range keys {
		w.text(k.Spec.Name)
		w = append(append(w, k.Key[:]...), k.Previous[:]...)
	}
	w.text(rand.Text()) // a key of no rule, so that also requests without permits have outcomes of their own
	return append(w, make([]byte, 2*len(limiter.Key{}))...)
}

// Restore sets what settling a request needs, and returns its keys. It reports false if b is not of a route that find
// finds by its name. Permits of a window that is not configured any more stay taken.
func (a *Admission) Restore(b []byte, node string, find func(route string) *Route) (keys []Key, restored bool) {
	r := pendingReader{rest: b}
	if len(r.bytes(1)) == 0 || b[0] != pendingVersion {
		return nil, false
	}
	here := r.text() == node
	if a.Route = find(r.text()); a.Route == nil {
		return nil, false
	}
	a.BothSecrets = r.number() == 2
	for range r.count() {
		t, by := r.permit(a.Route)
		switch own := a.Admitter; {
		case by == grantedByFallback:
			t.Store = own.Fallback.reporting()
		case here:
			t.Store = own.Store
		default: // this node has not recorded the permit for outages of the store
			t.Store = own.SharedStore()
		}
		a.TakenPermits = append(a.TakenPermits, t)
	}
	for range r.count() {
		keys = append(keys, Key{Spec: a.Route.settlingKey(r.text()), Key: r.key(), Previous: r.key()})
	}
	return keys, !r.failed && len(r.rest) == 0
}

// settlingKey returns the key with this name by which responses of r decide about other routes, or nil.
func (r *Route) settlingKey(name string) *key.Spec {
	for i := range r.Others {
		if s := r.Others[i].Key; s.Name == name {
			return s
		}
	}
	return nil
}

// grantedByFallback begins a permit that the fallback granted instead of the store.
const grantedByFallback = 1

// A pendingWriter encodes a Pending: numbers as varints, texts with their lengths.
type pendingWriter []byte

func (w *pendingWriter) number(n uint64) { *w = binary.AppendUvarint(*w, n) }

func (w *pendingWriter) text(s string) {
	w.number(uint64(len(s)))
	*w = append(*w, s...)
}

// permit encodes a permit and its claims.
func (w *pendingWriter) permit(t *TakenPermit) {
	by := uint64(0)
	if t.isByFallback() {
		by = grantedByFallback
	}
	w.number(by)
	*w = append(*w, t.Permit.ID[:]...)
	w.number(uint64(t.Permit.At.UnixMilli()))
	w.number(uint64(len(t.firstUse)))
	for i := range t.firstUse {
		*w = append(*w, t.firstUse[i].Key[:]...)
	}
	w.number(uint64(len(t.Claims)))
	for i := range t.Claims {
		c := &t.Claims[i]
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
func (r *pendingReader) permit(of *Route) (t TakenPermit, by uint64) {
	by = r.number()
	copy(t.Permit.ID[:], r.bytes(len(t.Permit.ID)))
	t.Permit.At = time.UnixMilli(int64(r.number()))
	for range r.count() {
		if k := r.key(); of.Repeats != nil {
			t.firstUse = append(t.firstUse, limiter.Claim{Limit: &of.Repeats.FirstUse, Key: k, Cost: 1})
		}
	}
	for range r.count() {
		name, count := r.text(), r.number()
		c := limiter.Claim{Cost: int64(r.number()), Key: r.key(), Value: r.key(), RedissonName: r.text()}
		i := slices.IndexFunc(of.Windows, func(w *Window) bool { return w.Name == name && (uint64(w.Limit.Rate.Count) == count || w.IsUnit) })
		if i < 0 {
			continue
		}
		w := of.Windows[i]
		if w.IsUnit {
			w = w.withCount(int64(count))
		}
		c.Limit, c.RedissonFormat = &w.Limit, w.Of.RedissonFormat
		t.Claims = append(t.Claims, c)
	}
	return t, by
}
