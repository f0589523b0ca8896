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
	// recentShards is the number of parts of the ring, each with its own lock. A refused request is
	// stored in the part of its key and client, so that a flood by one client does not overwrite
	// the requests of the others.
	recentShards = 64
	// refusedRecent and allowedRecent are the numbers of requests stored in a part: in all 6144
	// that were refused, or would have been in shadow mode, and 4096 others. A full ring uses about
	// 6 MB. A part uses no memory before its first request.
	refusedRecent = 96
	allowedRecent = 64

	// allowedEvery is the minimum interval between allowed requests stored in a part. Above about
	// 3000 requests per second only a sample is stored.
	allowedEvery = 20 * time.Millisecond

	maxRecentClaims = 8
	maxRecentKeys   = 4
	recentID        = 48 // bytes of a request id; longer ones are truncated
	recentPath      = 96
	recentMethod    = 12
	recentError     = 200
)

// A recentRing stores the decisions about recent requests, so that an operator can find out why a
// certain request was refused. Storing a request copies a fixed size of about 600 bytes under a
// lock with little contention, without allocating. The data is formatted when it is read.
type recentRing struct {
	seed   maphash.Seed
	every  time.Duration // allowedEvery, except in tests
	shards [recentShards]recentShard
}

type recentShard struct {
	last atomic.Int64 // when the last allowed request was stored, in nanoseconds since 1970

	mu               sync.Mutex // guards what follows; never held over I/O
	refused, allowed recentPart
}

// A recentPart is a ring of records. The oldest record is overwritten.
type recentPart struct {
	records []recentRecord
	next    int
}

func newRecentRing() *recentRing { return &recentRing{seed: maphash.MakeSeed(), every: allowedEvery} }

// A recentRecord is one request.
type recentRecord struct {
	began      int64 // nanoseconds since 1970; 0 if the record is empty
	took       time.Duration
	idHash     uint64            // hash of a request id that is truncated; otherwise 0
	route      *routeDescription // nil if no route matched
	list       string
	newKeys    string
	fallback   string
	upstream   string
	err        string
	status     uint16
	outcome    outcomeKind
	flags      recentFlags
	moreClaims uint8 // limits that did not fit into claim
	numClaims  uint8
	numKeys    uint8
	methodLen  uint8
	idLen      uint8
	pathLen    uint8
	method     [recentMethod]byte
	id         [recentID]byte
	path       [recentPath]byte
	claims     [maxRecentClaims]recentClaim
	keys       [maxRecentKeys]recentKey
}

// A recentClaim is the decision of one rate.
type recentClaim struct {
	window    uint16 // index into the windows of the route
	key       uint8  // index into the keys of the record; maxRecentKeys if the key did not fit
	flags     claimFlags
	remaining int32
	wait      uint32 // milliseconds
}

// A recentKey is one key of a request.
type recentKey struct {
	key   limiter.Key
	label label
}

type outcomeKind uint8

const (
	outcomeAllowed  outcomeKind = iota
	outcomeShadow               // allowed, but a limit in shadow mode would have refused it
	outcomeRefused              // by a limit, or for too many new keys
	outcomeRejected             // for another reason, before the limits were evaluated or without limits
	numOutcomes
)

// String returns the name that operators see.
func (k outcomeKind) String() string {
	return [...]string{"allowed", "shadow_refused", "refused", "rejected"}[k]
}

type recentFlags uint8

const (
	flagRepeated recentFlags = 1 << iota
	flagWaited
	flagExempt
	flagBanBegan
	flagPersonal // the path may contain personal data
)

type claimFlags uint8

const (
	claimAllowed claimFlags = 1 << iota
	claimShadow
	claimBanned
	claimUnknown
)

// A routeDescription describes a route in records. It outlives the generation and does not reference it.
type routeDescription struct {
	name    string
	windows []windowDescription
}

type windowDescription struct {
	limit, rate string
	permits     string // 20/10m
	key         string
	shapes      []key.Shape
}

// describe sets the description of r for records, and the parts of its joined keys.
func (r *route) describe() {
	r.description, r.leaves = &routeDescription{name: r.Name, windows: make([]windowDescription, len(r.windows))}, map[*key.Spec][]*key.Spec{}
	for i, w := range r.windows {
		r.description.windows[i] = windowDescription{limit: w.of.Name, rate: w.rate, permits: permits(w), key: w.of.Key.Name, shapes: w.of.Key.Shapes()}
		if w.of.Key.Join != nil {
			r.leaves[w.of.Key] = w.of.Key.Components()
		}
	}
}
