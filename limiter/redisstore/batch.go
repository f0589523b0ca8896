package redisstore

import (
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
	"github.com/weir-proxy/weir/limiter/reuse"
)

// maxClaims is the maximum number of claims in a batch of several requests. It bounds the
// time for which Redis does nothing else to about half a millisecond.
const maxClaims = 128

// maxRefunds is the maximum number of refunds in one script call, which each cost more than a claim.
const maxRefunds = 32

// A batch is a number of requests that are sent to one Redis together: in one script
// call, or in one for each key of a cluster and for each limiter shared with Redisson. It
// is reused when all are answered.
type batch struct {
	store      *Store
	groups     []*slotBatch // the script calls, in the order in which they are sent
	changes    int          // how many of groups are changes, which come first
	freeGroups []*slotBatch // for reuse
	sentAt     time.Time
	version    uint64        // of cached refusals, when the batch was sent
	pong       chan struct{} // closed when a ping is replied to; nil for calls
	crossSlot  bool          // one script call has all requests, whatever their slots

	scratch limiter.Decision // for calls whose callers have given up
	late    []lateGrant      // to these calls
}

// A slotBatch is the part of a batch that one script call contains.
type slotBatch struct {
	slot     slot // of all its claims; empty if they may have several
	payload  payload
	redisson limiter.Claim  // the first of those on a limiter shared with Redisson, of which payload has the requests only
	change   *changeCommand // instead of payload, for a change that is no refund
	refunds  bool           // payload has refunds
	calls    []*call
}

// newBatch returns an empty batch.
func (s *Store) newBatch() *batch { return s.batches.Get().(*batch) }

// reuseBatch releases a batch that nobody refers to.
func (s *Store) reuseBatch(b *batch) {
	b.reset()
	s.batches.Put(b)
}

// reset empties b. It names all that is kept for the next requests.
func (b *batch) reset() {
	for _, g := range b.groups {
		g.reset()
	}
	free := append(b.freeGroups, b.groups...)
	clear(b.groups)
	clear(b.scratch.Outcomes)
	*b = batch{
		store: b.store, groups: reuse.Memory(b.groups), freeGroups: free,
		scratch: limiter.Decision{Outcomes: reuse.Memory(b.scratch.Outcomes)},
	}
}

// reset empties b. It names all that is kept.
func (b *slotBatch) reset() {
	clear(b.calls)
	*b = slotBatch{payload: b.payload.emptied(), calls: reuse.Memory(b.calls)}
}

// add adds c. It returns false if c must be sent in the next batch:
// c has another version of a limit that is in the batch, as happens during a reload, or only one of both is for a call
// for each slot.
func (b *batch) add(c *call) bool {
	if c.change != nil {
		b.addChange(c)
		return true
	}
	if len(b.groups) == b.changes {
		b.crossSlot = c.crossSlot
	} else if b.crossSlot != c.crossSlot {
		return false
	}
	g := b.group(&c.claims[0])
	if g.payload.conflicts(c.claims) {
		return false
	}
	g.calls = append(g.calls, c)
	if c.claims[0].RedissonName != "" {
		g.addRedisson(c)
		return true
	}
	b.addRequests(g, c)
	return true
}

// addRequest adds a request of c for claims.
func (b *batch) addRequest(g *slotBatch, c *call, claims []limiter.Claim) {
	p := &g.payload
	p.request(c.id, len(claims))
	for i := range claims {
		p.claim(&claims[i], p.window(b.store.names, &claims[i]))
		p.crossSlot = p.crossSlot || b.crossSlot && p.index[0].slot != slotOf(&claims[i])
	}
	if c.notes {
		p.note(b.store.names, c.id, claims)
	}
}

// addChange adds a change, behind the others. Refunds that follow one another are one script call, or in a cluster that
// takes keys of one slot only, those of a slot.
func (b *batch) addChange(c *call) {
	isRefund := !c.change.refund.IsZero()
	var g *slotBatch
	if b.changes > 0 {
		g = b.groups[b.changes-1]
	}
	isOther := g != nil && b.store.isCluster && slotOf(&g.calls[0].claims[0]) != slotOf(&c.claims[0])
	if g == nil || !isRefund || g.change != nil || isOther && !c.crossSlot || len(g.calls) == maxRefunds {
		g = b.newGroup()
		b.groups = slices.Insert(b.groups, b.changes, g)
		b.changes++
	}
	g.calls = append(g.calls, c)
	if !isRefund {
		g.change = c.change
		return
	}
	g.refunds = true
	g.payload.refund(b.store.names, c.claims, c.change.refund)
	g.payload.crossSlot = g.payload.crossSlot || isOther
}

// addRedisson adds a call about a limiter shared with Redisson, which has one claim.
func (b *slotBatch) addRedisson(c *call) {
	if len(b.payload.index) == 0 {
		b.redisson = c.claims[0]
		b.payload.index = append(b.payload.index, indexedWindow{limit: b.redisson.Limit, slot: b.slot})
	}
	b.payload.redissonRequest(c.id, c.claims[0].Cost)
}

// group returns the slotBatch for c, which contains all calls that are decided in the
// same slot.
func (b *batch) group(c *limiter.Claim) *slotBatch {
	var s slot
	if !b.crossSlot || c.RedissonName != "" {
		s = b.store.partSlot(c)
	}
	for _, g := range b.groups[b.changes:] {
		if g.slot == s {
			return g
		}
	}
	g := b.newGroup()
	g.slot = s
	b.groups = append(b.groups, g)
	return g
}

// newGroup returns an empty slotBatch.
func (b *batch) newGroup() *slotBatch {
	n := len(b.freeGroups)
	if n == 0 {
		return &slotBatch{}
	}
	g := b.freeGroups[n-1]
	b.freeGroups = b.freeGroups[:n-1]
	return g
}

// command returns the script call of b.
func (b *slotBatch) command(s *Store) changeCommand {
	if b.change != nil {
		return *b.change
	}
	if b.redisson.RedissonName != "" {
		return s.changeOf("take", []limiter.Claim{b.redisson}, b.payload.requests)
	}
	p := &b.payload
	c := changeCommand{script: b.script(s), keys: p.keyNames(), args: p.args()}
	if p.crossSlot {
		before := []any{len(c.keys)}
		for _, k := range c.keys {
			before = append(before, k)
		}
		c.keys, c.args = nil, append(before, c.args...)
	}
	return c
}

// script returns the script of what payload has.
func (b *slotBatch) script(s *Store) *script {
	if b.refunds {
		return s.scripts.get(scriptName{"refund", b.payload.algorithms, b.payload.crossSlot})
	}
	return s.scripts.choose(&b.payload)
}

// finishCalls reads the reply to calls, and finishes those that were claimed. What the reply says of one call
// fails that call alone.
func (b *batch) finishCalls(calls []*call, p *wire.Reply) {
	if len(calls) > 0 && calls[0].change != nil {
		b.finishChanges(calls, p)
		return
	}
	at, rest, err := readTime(p.Ints, p.Err)
	want := 0
	for _, c := range calls {
		want += c.groups() + 2*len(c.claims)
	}
	err = b.replyError(err, len(rest), want)
	for _, c := range calls {
		d := &b.scratch
		if c.state == callAnswered {
			d = &c.decision
		}
		own := err
		if err == nil {
			rest, own = b.readCall(rest, at, c, d)
		}
		if c.state == callAnswered {
			c.finish(own)
		}
	}
}

// replyError returns what fails all calls of a reply of n numbers instead of want, which has the error err; nil if nothing.
func (b *batch) replyError(err error, n, want int) error {
	if err == nil && n != want {
		err = wire.ErrReply
	}
	if err == nil {
		return nil
	}
	b.store.reloadCluster()
	return redissonError(err)
}

// readDecision reads one decision about claims at the start of list, as readDecision does, and
// remembers a refusal.
func (b *batch) readDecision(list []int64, at time.Time, claims []limiter.Claim, d *limiter.Decision) ([]int64, error) {
	rest, err := readDecision(list, at, claims, d)
	if err == nil {
		b.store.refusals.learn(claims, b.sentAt, b.version, d)
	}
	return rest, err
}

// A part is a subset of a request's claims that one script call can decide: a claim of a
// limiter shared with Redisson, all other claims or, in a cluster, those of one key or of one master.
type part struct {
	partID
	claims  []limiter.Claim
	indices []int // of the claims in the request
	limiter.Decision
	err error
}

// A partID says what all claims of a part have in common: the slot, of which a part of a whole master has none, and the
// pipeline, if they are to be taken.
type partID struct {
	slot     slot
	pipeline *pipeline
}

// parts splits claims by their slots.
func (s *Store) parts(claims []limiter.Claim) []*part {
	return splitClaims(claims, func(c *limiter.Claim) partID { return partID{slot: s.partSlot(c)} })
}

func splitClaims(claims []limiter.Claim, idOf func(*limiter.Claim) partID) (all []*part) {
	for i := range claims {
		id := idOf(&claims[i])
		at := slices.IndexFunc(all, func(p *part) bool { return p.partID == id })
		if at < 0 {
			at = len(all)
			all = append(all, &part{partID: id})
		}
		all[at].claims = append(all[at].claims, claims[i])
		all[at].indices = append(all[at].indices, i)
	}
	return all
}

// partSlot returns the slot that identifies the part of c.
func (s *Store) partSlot(c *limiter.Claim) slot {
	if !s.isCluster && c.RedissonName == "" {
		return slot{}
	}
	return slotOf(c)
}

// A call is one request to Redis, which is sent in a batch with others. It has copies of
// its arguments, because its caller may return while it is in progress.
type call struct {
	claims   []limiter.Claim
	id       [16]byte
	change   *changeCommand // instead of a request; nil for a request
	notes    bool           // permits of Noted limits are noted by the call that takes them
	deadline time.Time      // when its caller gives up
	done     chan struct{}  // receives once, when decision and err are set

	crossSlot bool // its keys may be in several slots of one master of a cluster

	decision limiter.Decision
	reply    int64 // of a change
	err      error

	// guarded by queue.mu
	state       callState
	older, next *call // links in the list of unanswered calls
}

// A callState is the state of a call, which determines who may use it. Only a call that
// was answered without an error is reused, because nothing else refers to it.
type callState uint8

const (
	callWaiting   callState = iota // not sent; its caller may withdraw it
	callSent                       // sent; if its caller gives up, the outcome is unknown
	callAnswered                   // claimed by the reader or the writer, which finishes it
	callAbandoned                  // its caller has given up
)

// newCall returns a call, reusing an answered one if possible.
func (s *Store) newCall(claims []limiter.Claim, id [16]byte) *call {
	c := s.calls.Get().(*call)
	c.claims, c.id, c.deadline = append(c.claims, claims...), id, time.Now().Add(s.timeout)
	return c
}

// reuseCall releases a call that was answered without an error.
func (s *Store) reuseCall(c *call) {
	c.reset()
	s.calls.Put(c)
}

// reset makes c the call of nobody. It names all that is kept for the next one, which may be of another client.
func (c *call) reset() {
	clear(c.claims)
	clear(c.decision.Outcomes)
	*c = call{claims: reuse.Memory(c.claims), done: c.done, decision: limiter.Decision{Outcomes: reuse.Memory(c.decision.Outcomes)}}
}

// readInto copies the decision, which c keeps for reuse, to d.
func (c *call) readInto(d *limiter.Decision) {
	outcomes := append(d.Outcomes[:0], c.decision.Outcomes...)
	*d = c.decision
	d.Outcomes = outcomes
	if d.Allowed {
		d.Permit = limiter.Permit{ID: c.id, At: d.At}
	}
}

// finish sets the result and wakes the caller. It is called once, by the goroutine that
// has claimed c.
func (c *call) finish(err error) {
	c.err = err
	c.done <- struct{}{}
}
