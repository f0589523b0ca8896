package proxy

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// note remembers x, whose answer has been written. Strings of x may be the connection's
// buffer, so what is kept of them is copied.
func (ring *recentRing) note(x *exchange) {
	outcome := outcomeOf(x)
	set := &ring.sets[ring.setOf(x, outcome)]
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
	r.outcome, r.idHash = outcome, maphash.String(ring.seed, x.id)
	r.fill(x)
	r.fillClaims(x)
}

// due reports whether it is time to note another request that was allowed. Of two that
// come at once both may be.
func (s *recentSet) due(now int64, every time.Duration) bool {
	since := now - s.last.Load()
	if since >= 0 && since < int64(every) { // or the clock was set back
		return false
	}
	s.last.Store(now)
	return true
}

// outcomeOf is what became of x.
func outcomeOf(x *exchange) outcomeKind {
	switch {
	case x.decided && !x.decision.Allowed, x.newKeys == refused:
		return outcomeRefused
	case !x.outcome.known:
		return outcomeRejected
	case len(x.shadowed)+len(x.shadowErrors) > 0, x.newKeys == shadowRefused:
		return outcomeShadow
	}
	return outcomeAllowed
}

// setOf is the part of the ring to which x goes.
func (ring *recentRing) setOf(x *exchange, outcome outcomeKind) uint64 {
	if outcome == outcomeAllowed || outcome == outcomeShadow {
		return spread(uint64(x.began.UnixNano()) >> 10)
	}
	n := maphash.Comparable(ring.seed, x.client.network)
	if i, refused := x.refusing(); outcome == outcomeRefused && refused && i < len(x.claims.claims) {
		n ^= binary.LittleEndian.Uint64(x.claims.claims[i].Key[:8])
	}
	return spread(n)
}

// spread is the number of a part.
func spread(n uint64) uint64 { return n * 0x9e3779b97f4a7c15 >> 32 % recentSets }

// fill writes what is known of every request.
func (r *recentRecord) fill(x *exchange) {
	r.began, r.took, r.status = x.began.UnixNano(), x.took, uint16(x.answer.status)
	r.route, r.list, r.newKeys, r.fallback, r.upstream, r.fault = nil, "", x.newKeys, x.fallback, x.outcome.result.Target, ""
	if x.route != nil {
		r.route = x.route.note
	}
	if x.list != nil {
		r.list = x.list.Name
	}
	r.flags = 0
	for flag, is := range [...]bool{x.repeated, x.waited, x.exempt, x.banned, x.route == nil || x.route.redacts()} {
		if is {
			r.flags |= 1 << flag
		}
	}
	r.methodLen, r.idLen = uint8(copy(r.method[:], x.request.Method)), uint8(copy(r.id[:], x.id))
	r.pathLen = x.copyPath(&r.path)
	if x.err != nil && !errors.Is(x.err, errRefused) {
		text := x.err.Error()
		r.fault = strings.Clone(text[:min(len(text), recentError)])
	}
}

// copyPath is redactedPath as far as it costs nothing: parameters that are keys are
// hidden; what else may tell of persons is when somebody looks.
func (x *exchange) copyPath(to *[recentPath]byte) uint8 {
	path, n := x.request.Path, 0
	if x.route != nil && (len(x.route.hidden) > 0 || x.route.redacts()) {
		for name, value := range x.request.Params() {
			at := strings.Index(path, "/"+value)
			if at < 0 || !x.route.hides(name) {
				continue
			}
			n += copy(to[n:], path[:at])
			n += copy(to[n:], "/*")
			path = path[at+1+len(value):]
		}
	}
	return uint8(n + copy(to[n:], path))
}

// fillClaims writes what each rate has said, and under which key.
func (r *recentRecord) fillClaims(x *exchange) {
	r.claims, r.keys, r.more = 0, 0, 0
	if x.decided {
		for i := range min(len(x.claims.claims), len(x.decision.Outcomes)) {
			if x.bothSecrets && x.claims.current(i) != i {
				continue // it is told of once
			}
			o := &x.decision.Outcomes[i]
			c := recentClaim{window: uint16(x.claims.windows[i].number), left: int32(min(o.Remaining, math.MaxInt32)), wait: shortWait(o.Wait)}
			for flag, is := range [...]bool{o.Allowed, false, o.Banned, o.Unknown} {
				if is {
					c.flags |= 1 << flag
				}
			}
			r.add(x, c, x.claims.claims[i].Key)
		}
	}
	for i := range x.taken {
		if t := &x.taken[i]; x.shadowOf(t) != nil {
			r.fillShadow(x, t)
		}
	}
}

// fillShadow writes what a limit in shadow mode has said, which is a taking by itself.
func (r *recentRecord) fillShadow(x *exchange, t *takenPermit) {
	for i, w := range t.asked.windows {
		if t.asked.current(i) != i {
			continue // it is told of once
		}
		c := recentClaim{window: uint16(w.number), flags: claimShadow | claimAllowed}
		for _, s := range x.shadowed {
			if s.window == w {
				c.flags, c.wait = claimShadow, shortWait(s.wait)
				if s.banned {
					c.flags |= claimBanned
				}
			}
		}
		r.add(x, c, t.asked.claims[i].Key)
	}
}

// shortWait is d in milliseconds.
func shortWait(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxUint32)) }

// add writes what one rate has said of a key.
func (r *recentRecord) add(x *exchange, c recentClaim, k limiter.Key) {
	if r.claims == maxRecentClaims {
		r.more++
		return
	}
	c.key = r.learn(x, k)
	r.claim[r.claims] = c
	r.claims++
}

// learn is the number of k among the keys of r; maxRecentKeys where there is no room.
func (r *recentRecord) learn(x *exchange, k limiter.Key) uint8 {
	for i := range r.keys {
		if r.keyOf[i].key == k {
			return i
		}
	}
	if r.keys == maxRecentKeys {
		return maxRecentKeys
	}
	to := &r.keyOf[r.keys]
	to.key, to.label.size = k, 0
	for i := range x.extracted.keys {
		if own := &x.extracted.keys[i]; own.Key == k && !own.skip {
			x.fillLabel(&to.label, own)
			break
		}
	}
	r.keys++
	return r.keys - 1
}
