package proxy

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// record stores x, whose response has been written. Strings of x may share the buffer of the
// connection, so they are copied.
func (ring *recentRing) record(x *exchange) {
	outcome := outcomeOf(x)
	set := &ring.shards[ring.shardOf(x, outcome)]
	if outcome == outcomeAllowed && !set.due(x.began.UnixNano(), ring.every) {
		return
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	part, size := &set.allowed, allowedRecent
	if outcome != outcomeAllowed {
		part, size = &set.refused, refusedRecent
	}
	if part.records == nil {
		part.records = make([]recentRecord, size)
	}
	r := &part.records[part.next]
	part.next = (part.next + 1) % len(part.records)
	r.outcome, r.idHash = outcome, 0
	if len(x.id) > recentID {
		r.idHash = maphash.String(ring.seed, x.id)
	}
	r.fill(x)
	r.fillClaims(x)
}

// due reports whether another allowed request is to be stored. Two concurrent calls may both return
// true.
func (s *recentShard) due(now int64, every time.Duration) bool {
	since := now - s.last.Load()
	if since >= 0 && since < int64(every) { // since is negative if the clock was set back
		return false
	}
	s.last.Store(now)
	return true
}

// outcomeOf returns the outcome of x.
func outcomeOf(x *exchange) outcomeKind {
	switch {
	case x.isRefused(), x.newKeys == refused:
		return outcomeRefused
	case !x.outcome.known:
		return outcomeRejected
	case len(x.shadowRefusals)+len(x.shadowErrors) > 0, x.newKeys == shadowRefused:
		return outcomeShadow
	}
	return outcomeAllowed
}

// shardOf returns the index of the part of the ring that stores x.
func (ring *recentRing) shardOf(x *exchange, outcome outcomeKind) uint64 {
	if outcome == outcomeAllowed || outcome == outcomeShadow {
		return shardIndex(uint64(x.began.UnixNano()) >> 10)
	}
	n := uint64(x.source)
	if n == 0 { // no claim was made
		n = maphash.Comparable(ring.seed, x.client.network)
	}
	if i, refused := x.firstRefused(); outcome == outcomeRefused && refused && i < len(x.claims.claims) {
		n ^= binary.LittleEndian.Uint64(x.claims.claims[i].Key[:8])
	}
	return shardIndex(n)
}

// shardIndex maps a hash to the index of a part.
func shardIndex(n uint64) uint64 { return n * 0x9e3779b97f4a7c15 >> 32 % recentShards }

// fill sets the fields that every request has.
func (r *recentRecord) fill(x *exchange) {
	r.began, r.took, r.status = x.began.UnixNano(), x.duration, uint16(x.response.status)
	r.route, r.list, r.newKeys, r.fallback, r.upstream, r.err = nil, "", x.newKeys, x.fallback, x.outcome.result.Target, ""
	if x.route != nil {
		r.route = x.route.description
	}
	if x.list != nil {
		r.list = x.list.Name
	}
	r.flags = x.recentFlags()
	r.methodLen, r.idLen = uint8(copy(r.method[:], x.request.Method)), uint8(copy(r.id[:], x.id))
	r.pathLen = x.copyPath(&r.path)
	if x.err != nil && !x.isRefused() {
		text := x.err.Error()
		r.err = strings.Clone(text[:min(len(text), recentError)])
	}
}

// recentFlags returns the flags of the record of x.
func (x *exchange) recentFlags() (f recentFlags) {
	if x.isRepeat {
		f |= flagRepeated
	}
	if x.waited {
		f |= flagWaited
	}
	if x.exempt {
		f |= flagExempt
	}
	if x.banned {
		f |= flagBanBegan
	}
	if x.route == nil || x.route.redactsPaths() {
		f |= flagPersonal
	}
	return f
}

// copyPath copies the path like redactedPath, as far as that is cheap: parameters that are keys are
// hidden. Other personal data is redacted when the record is read.
func (x *exchange) copyPath(to *[recentPath]byte) uint8 {
	path, n := x.request.Path, 0
	if x.route != nil && (len(x.route.keyParams) > 0 || x.route.redactsPaths()) {
		for name, value := range x.request.Params() {
			at := strings.Index(path, "/"+value)
			if at < 0 || !x.route.hidesParam(name) {
				continue
			}
			n += copy(to[n:], path[:at])
			n += copy(to[n:], "/*")
			path = path[at+1+len(value):]
		}
	}
	return uint8(n + copy(to[n:], path))
}

// fillClaims adds the decision of each rate, with its key.
func (r *recentRecord) fillClaims(x *exchange) {
	r.numClaims, r.numKeys, r.moreClaims = 0, 0, 0
	if x.decided {
		for i := range min(len(x.claims.claims), len(x.decision.Outcomes)) {
			if x.bothSecrets && x.claims.currentIndex(i) != i {
				continue // one entry for both secrets
			}
			o := &x.decision.Outcomes[i]
			r.add(x, recentClaim{
				window:    uint16(x.claims.windows[i].number),
				flags:     flagsOf(o),
				remaining: int32(min(o.Remaining, math.MaxInt32)),
				wait:      shortWait(o.Wait),
			}, &x.claims.claims[i].Key)
		}
	}
	for i := range x.takenPermits {
		if t := &x.takenPermits[i]; x.shadowLimit(t) != nil {
			r.fillShadow(x, t)
		}
	}
}

// fillShadow adds the decision of a limit in shadow mode, which has a taken permit of its own.
func (r *recentRecord) fillShadow(x *exchange, t *takenPermit) {
	for i, w := range t.claims.windows {
		if t.claims.currentIndex(i) != i {
			continue // one entry for both secrets
		}
		c := recentClaim{window: uint16(w.number), flags: claimShadow | claimAllowed}
		for _, s := range x.shadowRefusals {
			if s.window == w {
				c.flags, c.wait = claimShadow, shortWait(s.wait)
				if s.banned {
					c.flags |= claimBanned
				}
			}
		}
		r.add(x, c, &t.claims.claims[i].Key)
	}
}

// flagsOf returns the flags of an outcome in enforce mode.
func flagsOf(o *limiter.Outcome) (f claimFlags) {
	if o.Allowed {
		f |= claimAllowed
	}
	if o.Banned {
		f |= claimBanned
	}
	if o.Unknown {
		f |= claimUnknown
	}
	return f
}

// shortWait returns d in milliseconds.
func shortWait(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxUint32)) }

// add adds the decision of one rate about a key.
func (r *recentRecord) add(x *exchange, c recentClaim, k *limiter.Key) {
	if r.numClaims == maxRecentClaims {
		r.moreClaims++
		return
	}
	c.key = r.keyIndex(x, k)
	r.claims[r.numClaims] = c
	r.numClaims++
}

// keyIndex returns the index of k among the keys of r, and adds it if it is missing. It returns
// maxRecentKeys if there is no space.
func (r *recentRecord) keyIndex(x *exchange, k *limiter.Key) uint8 {
	for i := range r.numKeys {
		if r.keys[i].key == *k {
			return i
		}
	}
	if r.numKeys == maxRecentKeys {
		return maxRecentKeys
	}
	to := &r.keys[r.numKeys]
	to.key, to.label.size = *k, 0
	for i := range x.extracted.keys {
		if own := &x.extracted.keys[i]; own.Key == *k && !own.skip {
			x.fillLabel(&to.label, own)
			break
		}
	}
	r.numKeys++
	return r.numKeys - 1
}
