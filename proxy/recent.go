package proxy

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

const (
	// recentSets is how many parts the ring has, each with a lock of its own. What is
	// refused goes to the part of its key and client, so that a flood by one of them
	// pushes out nobody else's requests.
	recentSets = 64
	// refusedRecent and allowedRecent are how many requests of a part are remembered: in
	// all 6144 that were refused, or would have been in shadow mode, and 4096 others. A
	// full ring takes about 6 MB; a part takes nothing before its first request.
	refusedRecent = 96
	allowedRecent = 64

	// allowedEvery is how often a part notes a request that was allowed: with more than
	// some 3000 a second, only some of them are there.
	allowedEvery = 20 * time.Millisecond

	maxRecentClaims = 8
	maxRecentKeys   = 4
	recentID        = 48 // bytes of a request's id; of a longer one its beginning
	recentPath      = 96
	recentMethod    = 12
	recentError     = 200
)

// A recentRing remembers what was decided about the last requests: what an operator asks
// who wants to know why this very request was refused. A request costs it one copy of
// fixed size, about 600 bytes, under a lock that few others want at that moment, and no
// allocation; what people are shown is made when they look.
type recentRing struct {
	seed  maphash.Seed
	every time.Duration // allowedEvery
	sets  [recentSets]recentSet
}

type recentSet struct {
	last atomic.Int64 // when a request that was allowed was noted, in nanoseconds since 1970

	mu               sync.Mutex // guards what follows; never held over I/O
	refused, allowed recentPart
}

// A recentPart is a ring of records, the oldest of which is overwritten.
type recentPart struct {
	records []recentRecord
	next    int
}

func newRecentRing() *recentRing { return &recentRing{seed: maphash.MakeSeed(), every: allowedEvery} }

// A recentRecord is one request.
type recentRecord struct {
	began     int64 // nanoseconds since 1970; 0 for no request
	took      time.Duration
	idHash    uint64
	route     *routeNote // nil: no route matched
	list      string
	newKeys   string
	fallback  string
	upstream  string
	fault     string
	status    uint16
	outcome   outcomeKind
	flags     recentFlags
	more      uint8 // limits beyond those
	claims    uint8
	keys      uint8
	methodLen uint8
	idLen     uint8
	pathLen   uint8
	method    [recentMethod]byte
	id        [recentID]byte
	path      [recentPath]byte
	claim     [maxRecentClaims]recentClaim
	keyOf     [maxRecentKeys]recentKey
}

// A recentClaim is what one rate said.
type recentClaim struct {
	window uint16 // of the route
	key    uint8  // of the record; maxRecentKeys for one beyond those
	flags  claimFlags
	left   int32
	wait   uint32 // milliseconds
}

// A recentKey is one key of a request.
type recentKey struct {
	key   limiter.Key
	label label
}

type outcomeKind uint8

const (
	outcomeAllowed  outcomeKind = iota
	outcomeShadow               // it passed, and a limit in shadow mode would have refused it
	outcomeRefused              // by a limit, or for too many new keys
	outcomeRejected             // for another reason, before any limit or without one
)

// String is what people call it.
func (k outcomeKind) String() string {
	return [...]string{"allowed", "shadow_refused", "refused", "rejected"}[k]
}

type recentFlags uint8

const (
	flagRepeated recentFlags = 1 << iota
	flagWaited
	flagExempt
	flagBanBegan
	flagPersonal // the path may tell of persons
)

type claimFlags uint8

const (
	claimAllowed claimFlags = 1 << iota
	claimShadow
	claimBanned
	claimUnknown
)

// A routeNote is what is remembered of a route, without all that serves requests: it
// outlives the generation.
type routeNote struct {
	name    string
	windows []windowNote
}

type windowNote struct {
	limit, rate string
	key         string
	shapes      []key.Shape
}

// remember makes what is remembered of r, and finds what its joined keys are made of.
func (r *route) remember() {
	r.note, r.leaves = &routeNote{name: r.Name, windows: make([]windowNote, len(r.windows))}, map[*key.Spec][]*key.Spec{}
	for i, w := range r.windows {
		r.note.windows[i] = windowNote{limit: w.of.Name, rate: w.rate, key: w.of.Key.Name, shapes: w.of.Key.Shapes()}
		if w.of.Key.Join != nil {
			r.leaves[w.of.Key] = w.of.Key.Leaves()
		}
	}
}
