package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/upstream"
)

var (
	// ErrSettled reports that the outcome of a request was reported before.
	ErrSettled = errors.New("the outcome of this request is known already")
	// ErrNotPending reports that Settle was called with something else than a Pending, or that the
	// configuration has no such route any more.
	ErrNotPending = errors.New("no outcome of this request is expected")
)

// pendingVersion is the first byte of a Pending. Nodes of another version refuse it.
const pendingVersion = 1

// An OutcomeReport is what a peer, or the application behind it, reports about a request that Decide allowed.
type OutcomeReport struct {
	Pending []byte        // of the Answer
	Status  int           // the status of the response
	Refund  bool          // the permits are refunded, whatever the status; it may be 0
	Cost    int64         // what the request has cost after all, or 0; then the status may be 0
	Less    int64         // how much less than Decide took for it, or 0; then the status may be 0
	Valid   time.Duration // the time for which the caller accepts reports of a request; whole milliseconds
}

// Settle does what the status of a response does: it refunds by refund_on and count, resets cooldowns,
// returns permits by return_on, and releases concurrent permits. Any node of a cluster can do so, once
// for each Pending: the store remembers that for r.Valid. Other errors than ErrSettled and ErrNotPending
// wrap limiter.ErrUnavailable; then r may be repeated.
//
// With r.Refund the request did not happen: all its permits are refunded, and nothing else is done. With r.Cost or r.Less
// each of its limits that counts requests gets back what is too much, or gives what is missing as far as it has it; of
// what takes a price all is refunded with r.Less. Concurrent permits are released.
func (p *Proxy) Settle(ctx context.Context, r OutcomeReport) error {
	x := p.exchanges.Get().(*exchange)
	p.enter(x)
	defer func() {
		x.generation.release(x.enteredBy)
		x.reset()
		p.exchanges.Put(x)
	}()
	if !x.restore(r.Pending, p.shared.pseudonym) {
		return ErrNotPending
	}
	once := &limiter.Limit{Name: "decide.outcome:once", Rate: limiter.Rate{Count: 1, Window: r.Valid}}
	first := []limiter.Claim{{Limit: once, Key: limiter.KeyOf("outcome", string(r.Pending)), Cost: 1}}
	var d limiter.Decision
	store := p.admitter.sharedStore()
	if err := store.Take(ctx, first, &d); err != nil {
		return err
	}
	if !d.Allowed {
		return ErrSettled
	}
	if r.Cost > 0 || r.Less > 0 {
		return p.admitter.settleCost(ctx, &x.admission, &r, func() error { return store.Refund(context.WithoutCancel(ctx), first, d.Permit) })
	}
	x.outcome = forwardOutcome{known: true, refund: r.Refund, result: upstream.Result{Target: "peer", Status: r.Status}}
	if !r.Refund {
		x.settleHead(r.Status)
	}
	p.admitter.settle(ctx, &x.admission, &x.outcome)
	p.admitter.countSends(x.sends)
	if x.err != nil { // what was refunded is not refunded again
		return errors.Join(limiter.ErrUnavailable, x.err, store.Refund(context.WithoutCancel(ctx), first, d.Permit))
	}
	return nil
}

// settleCost makes the permits of q as many as r says. If a refund fails, mayRepeat allows r again; what was refunded is
// not refunded again. What is missing is not taken twice.
func (a *admitter) settleCost(ctx context.Context, q *admission, r *OutcomeReport, mayRepeat func() error) error {
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
func (r *OutcomeReport) tooMuch(c *limiter.Claim, of *limit) int64 {
	switch counts := of.Prices == nil && !c.Limit.Algorithm.HasValues() && !c.Limit.Algorithm.HasSteps(); {
	case concurrent(c), r.Less > 0 && !counts:
		return c.Cost
	case r.Less > 0:
		return min(r.Less, c.Cost)
	case !counts:
		return 0
	}
	return c.Cost - r.Cost
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

// pending returns what restore needs to settle x on any node, nil if its outcome changes nothing. Keys
// are in it as stores have them.
func (x *exchange) pending(node string) []byte {
	r := x.route
	others := len(r.cooldownResets)+len(r.permitReturns) > 0 && !x.exempt && !x.isRepeat
	settles := len(x.takenPermits) > 0 && (r.settles || !r.RefundOn.Status.Empty())
	if x.keepsPermits || !others && !settles {
		return nil
	}
	w := pendingWriter{pendingVersion}
	w.text(node)
	w.text(r.Name)
	secrets := uint64(1)
	if x.bothSecrets {
		secrets = 2
	}
	w.number(secrets)
	w.number(uint64(len(x.takenPermits)))
	for i := range x.takenPermits {
		w.permit(&x.takenPermits[i])
	}
	var keys []*extractedKey
	for i := range x.extracted.keys {
		if k := &x.extracted.keys[i]; !k.skip && r.settlesBy(k.spec) {
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

// restore sets what settling a request needs. It reports false if b is not of a route of this generation.
// Permits of a window that is not configured any more stay taken.
func (x *exchange) restore(b []byte, node string) bool {
	r := pendingReader{rest: b}
	if len(r.bytes(1)) == 0 || b[0] != pendingVersion {
		return false
	}
	here := r.text() == node
	name := r.text()
	i := slices.IndexFunc(x.generation.routes, func(r *route) bool { return r.Name == name })
	if i < 0 {
		return false
	}
	x.route, x.bothSecrets = x.generation.routes[i], r.number() == 2
	for range r.count() {
		t, by := r.permit(x.route)
		switch a := x.admitter; {
		case by == grantedByFallback:
			t.store = reporting{a.fallback.local, a.fallback}
		case here:
			t.store = a.store
		default: // this node has not recorded the permit for outages of the store
			t.store = a.sharedStore()
		}
		x.takenPermits = append(x.takenPermits, t)
	}
	for range r.count() {
		k := extractedKey{spec: x.route.settlingKey(r.text()), Key: r.key(), previous: r.key()}
		x.extracted.keys = append(x.extracted.keys, k)
	}
	return !r.failed && len(r.rest) == 0
}

// settlesBy reports whether responses of r decide about permits or cooldowns of other routes under a key.
func (r *route) settlesBy(s *key.Spec) bool { return r.settlingKey(s.Name) == s }

// settlingKey returns the key with this name by which responses of r decide about other routes, or nil.
func (r *route) settlingKey(name string) *key.Spec {
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
func (r *pendingReader) permit(of *route) (t takenPermit, by grantor) {
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
