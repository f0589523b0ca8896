package decisions

import (
	"hash/maphash"
	"math"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/view"
)

// A Request is what is recorded of a request whose response has been written. Its strings and keys may
// share the memory of its connection: Record copies what it keeps.
type Request struct {
	Facts
	Place      Place
	ID, Method string
	Began      time.Time
	Status     int
	Err        error  // not of a refusal
	Source     uint64 // a hash of the key that was refused and of the client
	Labels     Labeller

	claims [maxClaims]Claim
}

// Facts are what is recorded of a request as it is.
type Facts struct {
	Took      time.Duration
	Route     *Route // nil if no route matched
	List      string // the list that decided
	NewKeys   string // the result for too many new keys
	Fallback  string // the policy that decided while the store was unreachable
	Listener  string // what the request came by, if another proxy asked about it
	Upstream  string
	Outcome   Outcome
	Challenge Challenge
	Flags     view.Flags
	Personal  bool // the path may contain personal data

	// These are arrays because slices of a recorded value would be allocated.
	moreClaims uint8 // limits that did not fit into claims
	numClaims  uint8
	pathLen    uint8
	path       [maxPath]byte
}

const (
	maxPath   = 96
	maxClaims = 8
)

// AddPath appends text to the path, which should lack parameters that are keys. Of a path, 96 bytes are
// kept.
func (f *Facts) AddPath(text string) { f.pathLen += uint8(copy(f.path[f.pathLen:], text)) }

// AddClaim adds the decision of one rate. Of a request, 8 are kept: of more, the last that did not allow it.
func (r *Request) AddClaim(c *Claim) {
	if r.numClaims < maxClaims {
		r.numClaims++
	} else if r.moreClaims = min(r.moreClaims, math.MaxUint8-1) + 1; c.Flags&(Allowed|NotAsked) != 0 {
		return
	}
	r.claims[r.numClaims-1] = *c
}

// A Labeller sets the texts by which a key of the request is shown.
type Labeller interface {
	FillLabel(l *Label, k limiter.Key)
}

// A Claim is the decision of one rate about a key.
type Claim struct {
	Window    int // index into the windows of the route
	Key       limiter.Key
	Flags     ClaimFlags
	Remaining int64
	Wait      time.Duration
}

// An Outcome is the result of a request.
type Outcome uint8

const (
	Passed          Outcome = iota
	ShadowRefused           // allowed, but a limit in shadow mode would have refused it
	RefusedByLimits         // by a limit, or for too many new keys
	Rejected                // for another reason, before the limits were evaluated or without limits
)

// The names of outcomes and of the results of limits.
const (
	nameAllowed       = "allowed"
	nameShadowRefused = "shadow_refused"
	nameRefused       = "refused"
	nameRejected      = "rejected"
	nameNotAsked      = "not_asked"
)

// String returns the name that operators see.
func (o Outcome) String() string {
	return [...]string{nameAllowed, nameShadowRefused, nameRefused, nameRejected}[o]
}

// A Challenge is the result for a request that limits with step_up refused.
type Challenge uint8

const (
	NoChallenge     Challenge = iota
	ChallengeIssued           // there was no token
	TokenInvalid              // the token was not accepted
	TokenUsed                 // the token was used before
	ChallengePassed
)

// String returns the name that operators see, "" if there was no challenge.
func (c Challenge) String() string {
	return [...]string{"", "issued", "invalid", "used", "passed"}[c]
}

// ClaimFlags are properties of the decision of a rate.
type ClaimFlags uint8

const (
	Allowed ClaimFlags = 1 << iota
	Shadow
	Banned
	NotAsked // another limit was known to refuse
)

// A Place is where a request is recorded.
type Place uint8

const (
	Nowhere       Place = iota
	amongAll            // in the ring of all refusals
	amongItsOwn         // in the part for its key and client
	amongTheOther       // among those that were not refused
)

// PlaceFor returns where to record a request that arrived then and had that outcome; Nowhere if Record need
// not be called. source is as in Request. Of refusals in a flood, one in every interval and part is to be
// recorded; of requests that passed, too. Concurrent calls may return a few more.
func (o *Observer) PlaceFor(began time.Time, result Outcome, source uint64) Place {
	switch {
	case result == Passed:
		if o.allowed[shardOfTime(began)].isDue(began, o.Every) {
			return amongTheOther
		}
	case !o.isFlooded(began):
		return amongAll
	case o.earlier[shardOf(source)].isDue(began, floodedEvery):
		return amongItsOwn
	}
	return Nowhere
}

// isDue reports whether the last request that was due was at least an interval ago.
func (p *part) isDue(began time.Time, every time.Duration) bool {
	now := began.UnixNano()
	since := now - p.last.Load()
	if since >= 0 && since < int64(every) { // since is negative if the clock was set back
		return false
	}
	p.last.Store(now)
	return true
}

// isFlooded reports whether a refusal now is one more than enter the ring of all of them in a second.
func (r *ring) isFlooded(now time.Time) bool {
	if second := now.Unix(); r.second.Load() != second {
		r.second.Store(second)
		r.inSecond.Store(0)
	}
	return r.inSecond.Load() > refusedEverySecond || r.inSecond.Add(1) > refusedEverySecond // in a flood nobody writes
}

// Record stores a request.
func (r *ring) Record(q *Request) {
	var p *part
	size := earlierRecent
	switch q.Place {
	case Nowhere:
		return
	case amongItsOwn:
		p = &r.earlier[shardOf(q.Source)]
	case amongTheOther:
		p, size = &r.allowed[shardOfTime(q.Began)], allowedRecent
	default:
		p, size = &r.refused[(r.next.Add(1)-1)%numShards], refusedRecent
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := p.slot(size)
	if q.Place == amongAll && slot.began != 0 { // what leaves the ring of all refusals moves
		own := &r.earlier[slot.shard]
		own.mu.Lock()
		*own.slot(earlierRecent) = *slot
		own.mu.Unlock()
	}
	slot.fill(r, q)
}

// slot returns the next of n records.
func (p *part) slot(n int) *record {
	if p.records == nil {
		p.records = make([]record, n)
	}
	slot := &p.records[p.next]
	p.next = (p.next + 1) % n
	return slot
}

func shardOfTime(began time.Time) uint8 { return shardOf(uint64(began.UnixNano()) >> 10) }

// shardOf maps a hash to the index of a part.
func shardOf(n uint64) uint8 { return uint8(n * 0x9e3779b97f4a7c15 >> 32 % numShards) }

// fill sets r.
func (r *record) fill(of *ring, q *Request) {
	r.Facts, r.began, r.status, r.shard = q.Facts, q.Began.UnixNano(), uint16(q.Status), shardOf(q.Source)
	r.idHash, r.err, r.numKeys = 0, "", 0
	if len(q.ID) > maxID {
		r.idHash = maphash.String(of.seed, q.ID)
	}
	r.methodLen, r.idLen = uint8(copy(r.method[:], q.Method)), uint8(copy(r.id[:], q.ID))
	if q.Err != nil {
		text := q.Err.Error()
		r.err = strings.Clone(text[:min(len(text), maxMessage)])
	}
	for i := range q.numClaims {
		c := &q.claims[i]
		r.claims[i] = claim{
			window: uint16(c.Window), key: r.keyIndex(q, &c.Key), flags: c.Flags,
			remaining: int32(min(c.Remaining, math.MaxInt32)), wait: float32(c.Wait.Milliseconds()),
		}
	}
}

// keyIndex returns the index of k among the keys of r, and adds it if it is missing. It returns
// maxKeys if there is no space.
func (r *record) keyIndex(q *Request, k *limiter.Key) uint8 {
	for i := range r.numKeys {
		if r.keys[i].key == *k {
			return i
		}
	}
	if r.numKeys == maxKeys {
		return maxKeys
	}
	to := &r.keys[r.numKeys]
	to.key = *k
	to.label.Reset()
	q.Labels.FillLabel(&to.label, *k)
	r.numKeys++
	return r.numKeys - 1
}
