package proxy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// errLoggedRejection reports that a request was rejected before its limits were evaluated, for a reason
// that its line in Weir's own log does not repeat.
var errLoggedRejection = errors.New("rejected in the log too")

// lineKeys are the keys of a replayed request that its line identifies; empty while serving.
type lineKeys struct {
	line loggedKeys
	// full has the keys with overridden rates, by those of their bytes that lines have. It is nil
	// without privacy.hash_secret, because lines are then salted.
	full map[limiter.Key]limiter.Key
}

// find returns the key that the line has for s.
func (l *lineKeys) find(s *key.Spec) (k extractedKey, found bool) {
	hash, found := l.line.find(s.Name)
	if !found || hash == absentKey {
		return extractedKey{spec: s, skip: true}, found
	}
	id, ok := parseLogKey(hash)
	if !ok {
		return extractedKey{}, false
	}
	if full, is := l.full[id]; is {
		id = full
	}
	return extractedKey{spec: s, Key: id, previous: id, unkeyed: id, text: logName(id)}, true
}

// overriddenKeys returns lineKeys.full for the limits of r.
func (r *route) overriddenKeys(secret string) map[limiter.Key]limiter.Key {
	if secret == "" {
		return nil
	}
	full := map[limiter.Key]limiter.Key{}
	for _, l := range r.limits {
		for k := range l.overrides {
			var id limiter.Key
			copy(id[:logKeyBytes], k[:])
			full[id] = k
		}
	}
	return full
}

// identifies reports whether the line has all keys of l, and which rates they have.
func (l *lineKeys) identifies(of *limit) bool {
	if of.hashed != nil || of.overrides != nil && l.full == nil {
		return false
	}
	k, found := l.find(of.Key)
	if !found || k.skip || of.Distinct == nil {
		return found
	}
	_, found = l.find(of.Distinct)
	return found
}

// loggedRefusal returns the limit of the route, with an unknown key, that refused the request according to
// its line: it refuses here too. It returns nil if there is none.
func (v *visit) loggedRefusal(q *LoggedRequest) *limit {
	for i, l := range v.route.route.limits {
		if q.Limit == l.Name && l.Mode == config.Enforce && v.skipped.has(i) {
			return l
		}
	}
	return nil
}

// loggedList returns the list of the route, with an unknown key, that decided about the request according
// to its line. It returns nil if there is none.
func (v *visit) loggedList(q *LoggedRequest) *config.List {
	first := len(v.route.limitOrigins)
	for i, s := range slices.Concat(v.route.lists, v.route.bodyLists) {
		for _, l := range s.lists {
			if q.List == l.Name && v.skipped.has(first+i) {
				return l
			}
		}
	}
	return nil
}

// repeatLog decides about a request as its line says, where the line does not have what the
// configuration would decide by. decided is false if the stages have to decide.
func (v *visit) repeatLog(q *LoggedRequest) (decided bool, err error) {
	x := &v.x
	if q.List != "" {
		x.list = v.loggedList(q)
	}
	if l := v.loggedRefusal(q); l != nil {
		v.refusedBy = l
		return true, errRefused
	}
	switch {
	case x.list != nil && x.list.Action == config.DenyListed:
		return true, errDenied
	case q.Rejected && x.route.Redirect == nil && x.route.Respond == nil:
		return true, fmt.Errorf("%w, with status %d", errLoggedRejection, q.Status)
	case q.Repeated && x.route.Idempotency != nil:
		x.isRepeat = true
		return true, nil
	}
	return false, nil
}
