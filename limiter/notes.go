package limiter

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// maxNoted is the number of permits that are noted under one subject for each window; of more
// the oldest are forgotten. They stay taken until they expire.
const maxNoted = 64

// A noted is what one decision took of a Noted limit.
type noted struct {
	key     Key
	cost    int64
	count   int64 // of the limit's rate
	expires int64
	permit  Permit
}

// isNoted reports whether the permits of c are noted under its subject.
func (c *Claim) isNoted() bool { return c.Limit.Noted && c.Value != Key{} }

// checkNoted checks that the permits of l can be noted.
func (l *Limit) checkNoted() error {
	if a := l.Algorithm; l.Noted && (a.HasValues() || a.HasLeases() || a.HasSteps() || l.Scope == PerClient) {
		return fmt.Errorf("%w: %s is noted, so it must have a rate that all clients share", ErrInvalidLimit, l.Name)
	}
	return nil
}

// notes are the permits of Noted limits by subject. They are bounded: if there are too many, new
// ones are not noted, so that their permits stay taken until they expire.
type notes struct {
	maxEntries int

	mu        sync.Mutex // guards what follows
	entries   int
	bySubject map[cellID][]noted // by window, with the subject as the key
}

// noteBytes is the memory of a note, and notesShare the part of a Memory that notes may take.
const (
	noteBytes  = 200
	notesShare = 8
)

func newNotes(maxBytes int64) *notes {
	return &notes{maxEntries: int(max(1, maxBytes/notesShare/noteBytes)), bySubject: map[cellID][]noted{}}
}

// add notes n under id at now.
func (n *notes) add(now int64, id cellID, one noted) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sweepLocked(now)
	all := unexpired(now, n.bySubject[id])
	if len(all) >= maxNoted {
		all = slices.Delete(all, 0, 1)
	} else if n.entries >= n.maxEntries {
		return
	}
	n.setLocked(id, append(all, one))
}

// take removes what is noted under id, and returns what has not expired.
func (n *notes) take(now int64, id cellID) []noted {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.bySubject[id]
	n.setLocked(id, nil)
	return unexpired(now, all)
}

// setLocked replaces what is noted under id.
func (n *notes) setLocked(id cellID, all []noted) {
	n.entries += len(all) - len(n.bySubject[id])
	if len(all) == 0 {
		delete(n.bySubject, id)
		return
	}
	n.bySubject[id] = all
}

// sweepLocked removes expired notes of a few subjects. Go starts at a random one.
func (n *notes) sweepLocked(now int64) {
	seen := 0
	for id, all := range n.bySubject {
		if seen++; seen > sweepStep {
			return
		}
		if all[len(all)-1].expires <= now {
			n.setLocked(id, nil)
		}
	}
}

// unexpired returns those of all, oldest first, that have not expired at now. It may change all.
func unexpired(now int64, all []noted) []noted {
	for len(all) > 0 && all[0].expires <= now {
		all = all[1:]
	}
	return all
}

// note notes what p took for claims at now.
func (m *Memory) note(now int64, claims []Claim, p Permit) {
	for i := range claims {
		if c := &claims[i]; c.isNoted() {
			id := cellID{limit: m.numbers.number(c.Limit), key: c.Value}
			m.notes.add(now, id, noted{c.Key, c.Cost, c.Limit.Rate.Count, now + c.Limit.Horizon().Milliseconds(), p})
		}
	}
}

// Return implements AdminStore.
func (m *Memory) Return(_ context.Context, limits []*Limit, subject Key) (decisions int, err error) {
	for _, l := range limits {
		if err := l.CheckNoted(); err != nil {
			return 0, err
		}
	}
	returned := map[Permit]bool{}
	for _, l := range limits {
		for _, n := range m.notes.take(m.now(), cellID{limit: m.numbers.number(l), key: subject}) {
			of := NotedLimit(limits, l, n.count)
			if m.refund(&Claim{Limit: of, Key: n.key, Cost: n.cost}, n.permit) > 0 {
				returned[n.permit] = true
			}
		}
	}
	return len(returned), nil
}

// CheckNoted returns an error that wraps ErrInvalidLimit if l is not valid or not Noted.
func (l *Limit) CheckNoted() error {
	if !l.Noted {
		return fmt.Errorf("%w: %s is not noted", ErrInvalidLimit, l.Name)
	}
	return l.Check()
}

// NotedLimit returns the one of limits that has the name of l and the rate of this count, under which
// permits were taken, or l if its rate has changed since.
func NotedLimit(limits []*Limit, l *Limit, count int64) *Limit {
	for _, other := range limits {
		if other.Name == l.Name && other.Rate.Count == count {
			return other
		}
	}
	return l
}
