package limit

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

const (
	// maxAheadKeys is the maximum number of keys of which a node takes permits ahead, or counts the requests to find
	// out how many; each takes some hundred bytes.
	maxAheadKeys = 4096
	// leastAhead is the least number of permits that are taken ahead at a time: fewer would not save a call.
	leastAhead = 8
	// leastOfNode is how many permits of a window each node must have on average for some to be taken ahead.
	leastOfNode = 10
)

// An aheadStore is a shared store from which this node takes permits of limits with lease ahead, so that most requests of
// a key that many requests have are decided without a call. Claims of other limits only pass through.
//
// Time is divided into intervals of the length of the lease, for each key by itself. How many permits are taken in one
// follows the number that requests took in the one before. A permit is used within its interval, or given back after
// it, but see giveBack. Stores count by a window that is longer by the lease: permits that are used within a window of the
// rate were taken within the longer one, so that none has more than the rate allows.
type aheadStore struct {
	limiter.AdminStore
	nodes   func() int
	timeout time.Duration // of one decision

	mu    sync.Mutex // guards what follows and the contents of keys; never held over I/O
	keys  map[aheadKey]*aheadPermits
	timer *time.Timer // gives back what is left of keys without requests; nil while there are no keys
}

type aheadKey struct {
	limit *limiter.Limit
	key   limiter.Key
}

// An aheadPermits is what a node has taken ahead of one key.
type aheadPermits struct {
	span   time.Duration  // of an interval
	claim  limiter.Claim  // as the store counts; its cost is what was taken ahead
	permit limiter.Permit // of it
	left   int64
	until  time.Time // end of the interval

	used   int64 // by requests in this interval
	demand int64 // in the one before
	asking bool  // a call that takes ahead is under way
	known  limiter.Outcome
	skew   time.Duration // how far the store's clock is ahead, as far as replies tell
}

// An aheadClaim is what becomes of a claim of group 0.
type aheadClaim struct {
	of      *aheadPermits // nil if the limit has no lease, or there are too many keys
	cost    int64
	at      time.Time       // when it is claimed
	until   time.Time       // of the interval in which that is
	isLocal bool            // it is taken of what is left here
	outcome limiter.Outcome // if so
	skew    time.Duration   // if so
	more    int64           // what the store is asked for besides, if not
}

// isAhead reports whether permits of the limit of c are taken ahead.
func isAhead(c *limiter.Claim) bool {
	w, is := c.Limit.Owner.(*Window)
	return is && w.Of.Ahead > 0
}

// ownAhead returns the claims of group 0 if permits of one of their limits are taken ahead, otherwise nil.
func ownAhead(claims []limiter.Claim) (own, others []limiter.Claim) {
	own, others = limiter.CutDeciding(claims)
	for i := range own {
		if isAhead(&own[i]) {
			return own, others
		}
	}
	return nil, claims
}

// Take implements limiter.Store.
func (s *aheadStore) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	own, others := ownAhead(claims)
	if own == nil {
		return s.AdminStore.Take(ctx, claims, d)
	}
	var room [4]aheadClaim
	planned, ended := s.allot(own, room[:0])
	asked := append(toAsk(own, planned), others...)
	if len(asked) == 0 {
		decideHere(planned, d)
		d.Permit.At = d.At
		binary.NativeEndian.PutUint64(d.Permit.ID[:], rand.Uint64())
		binary.NativeEndian.PutUint64(d.Permit.ID[8:], rand.Uint64())
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	given := s.giveBack(ended)
	err := s.AdminStore.Take(ctx, asked, d)
	if err == nil && !d.Allowed && s.dropMore(planned) { // there may be enough for the request alone
		err = s.AdminStore.Take(ctx, append(toAsk(own, planned), others...), d)
	}
	given = append(given, s.giveBack(s.conclude(planned, d, err))...)
	for _, wait := range given {
		_ = wait() // if it fails, the permits stay taken
	}
	return err
}

// Peek implements limiter.Store.
func (s *aheadStore) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	own, others := ownAhead(claims)
	if own == nil {
		return s.AdminStore.Peek(ctx, claims, d)
	}
	planned := make([]aheadClaim, len(own))
	s.mu.Lock()
	now := time.Now()
	for i, c := range own {
		if a := s.keys[aheadKey{c.Limit, c.Key}]; a != nil && now.Before(a.until) && a.left >= c.Cost {
			planned[i] = aheadClaim{of: a, at: now, isLocal: true, outcome: a.outcomeLocked(), skew: a.skew}
		}
	}
	s.mu.Unlock()
	asked := append(toAsk(own, planned), others...)
	if len(asked) == 0 {
		decideHere(planned, d)
		return nil
	}
	err := s.AdminStore.Peek(ctx, asked, d)
	if err == nil {
		addLocal(planned, d)
	}
	return err
}

// allot decides of each claim whether it is taken of what is left here, and how much is taken ahead otherwise. ended is what
// is left of intervals that are over.
func (s *aheadStore) allot(own []limiter.Claim, planned []aheadClaim) (all []aheadClaim, ended []aheadPermits) {
	nodes := int64(s.nodes())
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range own {
		c := &own[i]
		a := s.ofLocked(c)
		if a == nil {
			planned = append(planned, aheadClaim{})
			continue
		}
		if !now.Before(a.until) {
			ended = a.endLocked(ended)
			a.beginLocked(now)
		}
		a.used += c.Cost
		p := aheadClaim{of: a, cost: c.Cost, at: now, until: a.until, isLocal: a.left >= c.Cost}
		if p.isLocal {
			a.left -= c.Cost
			p.outcome, p.skew = a.outcomeLocked(), a.skew
		} else if !a.asking {
			p.more = a.moreLocked(c, nodes)
			a.asking = p.more > 0
		}
		planned = append(planned, p)
	}
	return planned, ended
}

// ofLocked returns what is known of the key of c; nil if its permits are not taken ahead, or there are too many keys.
func (s *aheadStore) ofLocked(c *limiter.Claim) *aheadPermits {
	if !isAhead(c) {
		return nil
	}
	k := aheadKey{c.Limit, c.Key}
	a := s.keys[k]
	if a == nil && len(s.keys) < maxAheadKeys {
		a = &aheadPermits{span: c.Limit.Owner.(*Window).Of.Ahead, claim: limiter.Claim{Limit: c.Limit, Key: c.Key}}
		s.keys[k] = a
		if s.timer == nil {
			s.timer = time.AfterFunc(a.span, s.sweep)
		}
	}
	return a
}

// outcomeLocked returns the outcome of a claim that was taken of what is left here.
func (a *aheadPermits) outcomeLocked() limiter.Outcome {
	o := limiter.Outcome{Allowed: true, Remaining: a.known.Remaining + a.left}
	if o.Remaining == 0 {
		o.Wait = a.known.Wait
	}
	return o
}

// beginLocked begins an interval.
func (a *aheadPermits) beginLocked(now time.Time) {
	if a.demand = a.used; now.Sub(a.until) > a.span {
		a.demand = 0 // there were no requests in the interval before this one
	}
	a.used, a.until = 0, now.Add(a.span)
}

// endLocked ends an interval, and adds what is left of it to ended.
func (a *aheadPermits) endLocked(ended []aheadPermits) []aheadPermits {
	if a.left > 0 {
		ended = append(ended, *a)
	}
	a.left, a.claim.Cost = 0, 0
	return ended
}

// moreLocked returns how many permits are taken ahead with c: what the last interval used and this one has not, or as many
// as this one has used already, but never more than this node's part of half of what the store had left.
func (a *aheadPermits) moreLocked(c *limiter.Claim, nodes int64) int64 {
	more := min(max(a.demand-a.used, a.used), a.known.Remaining/(2*nodes), c.Limit.Capacity()-c.Cost)
	if more < leastAhead || c.Limit.Rate.Count < leastOfNode*nodes {
		return 0
	}
	return more
}

// toAsk returns the claims that the store decides, as it counts them.
func toAsk(own []limiter.Claim, planned []aheadClaim) []limiter.Claim {
	var asked []limiter.Claim
	for i, c := range own {
		if planned[i].isLocal {
			continue
		}
		c.Cost += planned[i].more
		asked = append(asked, c)
	}
	return asked
}

// decideHere fills d with a decision by what is left here alone.
func decideHere(planned []aheadClaim, d *limiter.Decision) {
	*d = limiter.Decision{Allowed: true, At: planned[0].at.Add(planned[0].skew), Outcomes: d.Outcomes[:0]}
	addLocal(planned, d)
}

// addLocal adds the outcomes of what is taken of what is left here.
func addLocal(planned []aheadClaim, d *limiter.Decision) {
	for i := range planned {
		if planned[i].isLocal {
			d.Outcomes = slices.Insert(d.Outcomes, i, planned[i].outcome)
		}
	}
}

// dropMore takes nothing ahead, and reports whether something would have been.
func (s *aheadStore) dropMore(planned []aheadClaim) (dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range planned {
		if p := &planned[i]; p.more > 0 {
			p.of.asking, p.more, dropped = false, 0, true
		}
	}
	return dropped
}

// conclude does what follows a call of the store, which has returned err or decided what was asked of planned, and adds
// the other outcomes to d. ended is what was taken ahead for an interval that is over.
func (s *aheadStore) conclude(planned []aheadClaim, d *limiter.Decision, err error) (ended []aheadPermits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := 0
	for i := range planned {
		p, a := &planned[i], planned[i].of
		if p.isLocal {
			if (err != nil || !d.Allowed) && p.until.Equal(a.until) {
				a.left += p.cost
			}
			continue
		}
		if p.more > 0 {
			a.asking = false
		}
		if a != nil && err == nil {
			ended = a.learnLocked(p, &d.Outcomes[next], d, ended)
		}
		next++
	}
	if err == nil {
		addLocal(planned, d)
	}
	return ended
}

// learnLocked remembers the outcome o of p, and has what was taken ahead with it, or adds it to ended if the interval is over.
func (a *aheadPermits) learnLocked(p *aheadClaim, o *limiter.Outcome, d *limiter.Decision, ended []aheadPermits) []aheadPermits {
	now := time.Now()
	if !o.Unknown {
		a.known, a.skew = *o, min(max(a.skew, d.At.Sub(now)), d.At.Sub(p.at)) // the store decided between the two
	}
	if p.more == 0 || !d.Allowed {
		return ended
	}
	taken := aheadPermits{claim: a.claim, permit: d.Permit, left: p.more}
	taken.claim.Cost = p.more
	if !p.until.Equal(a.until) || !now.Before(a.until) {
		return append(ended, taken)
	}
	a.claim.Cost, a.permit, a.left = p.more, d.Permit, a.left+p.more
	return ended
}

// giveBack starts to give back what is left of intervals. Permits of gcra are not given back: a late refund would also
// return those that have flowed back meanwhile.
func (s *aheadStore) giveBack(ended []aheadPermits) (started []func() error) {
	for i := range ended {
		c := ended[i].claim
		if c.Cost = min(c.Cost, ended[i].left); c.Cost > 0 && !c.Limit.Algorithm.HasBurst() {
			started = append(started, s.StartRefund([]limiter.Claim{c}, ended[i].permit))
		}
	}
	return started
}

// sweep ends the intervals that are over, and forgets keys without requests.
func (s *aheadStore) sweep() { s.end(time.Now()) }

// close gives back what is left.
func (s *aheadStore) close() { s.end(time.Now().Add(limiter.MaxWindow)) }

// end is sweep by another clock.
func (s *aheadStore) end(now time.Time) {
	var ended []aheadPermits
	next := time.Hour
	s.mu.Lock()
	for k, a := range s.keys {
		if next = min(next, a.span); !now.Before(a.until) {
			ended = a.endLocked(ended)
		}
		if now.Sub(a.until) > a.span {
			delete(s.keys, k)
		}
	}
	if len(s.keys) > 0 {
		s.timer.Reset(next)
	} else {
		s.timer = nil
	}
	s.mu.Unlock()
	for _, wait := range s.giveBack(ended) {
		_ = wait() // if it fails, the permits stay taken
	}
}
