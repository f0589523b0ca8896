package redisstore

import (
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// A windowID identifies the window of a key under a limit.
type windowID struct {
	limit     string
	algorithm limiter.Algorithm
	scope     limiter.Scope
	slot      slot
}

// A slot identifies what is in one slot of a cluster: a key, or the keys of one limiter
// shared with Redisson.
type slot struct {
	key      limiter.Key
	redisson string
}

func slotOf(c *limiter.Claim) slot {
	if c.RedissonName != "" {
		return slot{redisson: c.RedissonName}
	}
	return slot{key: c.Key}
}

// windowIDOf returns the window of c. All claims with the same Redisson limiter have the
// same window, because the limiter's config decides.
func windowIDOf(c *limiter.Claim) windowID {
	if c.RedissonName != "" {
		return windowID{slot: slotOf(c)}
	}
	return windowID{c.Limit.Name, c.Limit.Algorithm, c.Limit.Scope, slotOf(c)}
}

func sameLimit(a, b *limiter.Limit) bool {
	return a == b || a.Rate == b.Rate && a.Burst == b.Burst && a.Conversion == b.Conversion && slices.Equal(a.Steps, b.Steps)
}

// A windowIndex has the windows of a batch, at most maxClaims: too few for anything faster than looking at each.
type windowIndex []batchedWindow

// A batchedWindow is a window in a script call.
type batchedWindow struct {
	limit    *limiter.Limit
	slot     slot
	batch    *slotBatch
	number   int // counted from 1
	firstKey int // number of its first key
}

// A lookup is the result of find; a field is nil if there is no such window.
type lookup struct {
	window    *batchedWindow // the window of the claim
	box       *batchedWindow // a window in the same Redis key
	neighbour *batchedWindow // a window in the same slot
}

func (x windowIndex) find(c *limiter.Claim) (f lookup) {
	s := slotOf(c)
	for i := range x {
		w := &x[i]
		if w.slot != s {
			continue
		}
		f.neighbour = w
		if isSameWindow(w.limit, c) {
			f.window = w
			return f
		}
		if f.box == nil && sameBox(w.limit, c.Limit) {
			f.box = w
		}
	}
	return f
}

// isSameWindow reports whether the window of l in the slot of c is the window of c.
func isSameWindow(l *limiter.Limit, c *limiter.Claim) bool {
	if c.RedissonName != "" || l == c.Limit {
		return true
	}
	return l.Algorithm == c.Limit.Algorithm && l.Scope == c.Limit.Scope && l.Name == c.Limit.Name
}

// sameBox reports whether the windows that two limits have of one key are stored in the
// same string.
func sameBox(a, b *limiter.Limit) bool {
	if a.Algorithm != b.Algorithm || a.Scope != b.Scope || !isPacked(a.Algorithm) {
		return false
	}
	boxA, _ := splitName(a.Name)
	boxB, _ := splitName(b.Name)
	return boxA == boxB
}
