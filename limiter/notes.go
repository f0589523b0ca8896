package limiter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxNoted is the number of permits that are noted under one subject for each window; of more
// the oldest are forgotten. They stay taken until they expire.
const maxNoted = 64

// A noted is what one decision took of a Noted limit. One without a permit records that its subject is
// counted as confirmed for the key until then.
type noted struct {
	key     Key
	cost    int64
	count   int64 // of the limit's rate
	until   int64 // only of a record
	expires int64
	source  uint32 // of the claim
	permit  Permit
}

// isRecord reports whether n records a confirmed subject.
func (n *noted) isRecord() bool { return n.permit.IsZero() }

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
	bySubject map[cellID][]noted // by window, with the subject as the key; empty ones wait for a sweep
	subjects  []cellID           // the keys of bySubject
	nextSweep int                // index in subjects
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
		oldest := slices.IndexFunc(all, func(e noted) bool { return !e.isRecord() })
		if oldest < 0 {
			return
		}
		all = slices.Delete(all, oldest, oldest+1)
	} else if n.entries >= n.maxEntries {
		return
	}
	n.setLocked(id, append(all, one))
}

// remove removes what p took for a key under id, and reports whether it was noted. A permit is known by its ID: the caller
// may have got its time by another way.
func (n *notes) remove(id cellID, k Key, p Permit) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.bySubject[id]
	i := slices.IndexFunc(all, func(e noted) bool { return e.key == k && e.permit.ID == p.ID })
	if i >= 0 {
		n.setLocked(id, slices.Delete(slices.Clone(all), i, i+1))
	}
	return i >= 0
}

// setLocked replaces what is noted under id.
func (n *notes) setLocked(id cellID, all []noted) {
	before, known := n.bySubject[id]
	if !known {
		if len(all) == 0 {
			return
		}
		n.subjects = append(n.subjects, id)
	}
	n.entries += len(all) - len(before)
	n.bySubject[id] = all
}

// sweepLocked removes expired notes of the next few subjects, and those that have none. It goes through a list,
// because to find any entry of a map that many were deleted from takes as long as the map once was.
func (n *notes) sweepLocked(now int64) {
	for range min(sweepStep, len(n.subjects)) {
		if n.nextSweep >= len(n.subjects) {
			n.nextSweep = 0
		}
		id := n.subjects[n.nextSweep]
		all := unexpired(now, n.bySubject[id])
		n.setLocked(id, all)
		if len(all) > 0 {
			n.nextSweep++
			continue
		}
		delete(n.bySubject, id)
		last := len(n.subjects) - 1
		n.subjects[n.nextSweep] = n.subjects[last]
		n.subjects = n.subjects[:last]
	}
}

// unexpired returns those of all that have not expired at now.
func unexpired(now int64, all []noted) []noted {
	isOver := func(e noted) bool { return e.expires <= now }
	if !slices.ContainsFunc(all, isOver) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), isOver)
}

// note notes what d took for claims, of the groups that it granted.
func (m *Memory) note(claims []Claim, d *Decision) {
	now, outcomes := d.At.UnixMilli(), d.Outcomes
	for len(claims) > 0 {
		var group []Claim
		group, claims = CutGroup(claims)
		isRefused := slices.ContainsFunc(outcomes[:len(group)], func(o Outcome) bool { return !o.Allowed })
		outcomes = outcomes[len(group):]
		for i := range group {
			if c := &group[i]; c.isNoted() && !isRefused {
				id := cellID{limit: m.numbers.number(c.Limit), key: c.Value}
				m.notes.add(now, id, noted{key: c.Key, cost: c.Cost, count: c.Limit.Rate.Count, expires: now + c.Limit.Horizon().Milliseconds(), source: c.Source, permit: d.Permit})
			}
		}
	}
}

// Return implements AdminStore.
func (m *Memory) Return(_ context.Context, limits []*Limit, subject Key) (decisions int, err error) {
	returned := map[[16]byte]bool{}
	err = m.ReturnEach(limits, subject, func(_ Claim, p Permit) { returned[p.ID] = true })
	return len(returned), err
}

// ReturnEach is Return that calls each for the claim and the permit of all that it returns. each must not call m.
func (m *Memory) ReturnEach(limits []*Limit, subject Key, each func(Claim, Permit)) error {
	for _, l := range limits {
		if err := l.CheckNoted(); err != nil {
			return err
		}
	}
	for _, l := range limits {
		m.returnWindow(limits, l, subject, each)
	}
	return nil
}

// returnWindow returns what is noted under subject in the window l, and calls each for it. Other returns wait meanwhile, so that a subject is not confirmed twice.
func (m *Memory) returnWindow(limits []*Limit, l *Limit, subject Key, each func(Claim, Permit)) {
	id := cellID{limit: m.numbers.number(l), key: subject}
	m.notes.mu.Lock()
	defer m.notes.mu.Unlock()
	now := m.now()
	all := unexpired(now, m.notes.bySubject[id])
	records := recordsOf(m.notes.bySubject[id], now, windowMillis(l))
	for i := range all {
		n := &all[i]
		c := Claim{Limit: NotedLimit(limits, l, n.count), Key: n.key, Cost: n.cost, Source: n.source}
		if n.isRecord() || m.refund(&c, n.permit) == 0 {
			continue
		}
		each(c, n.permit)
		if l.Algorithm.HasConversion() {
			records = m.confirm(&c, records)
		}
	}
	m.notes.setLocked(id, records)
}

// confirm counts a subject as confirmed for the key of c, from now on for a window, and records that. What cannot be
// recorded is not confirmed.
func (m *Memory) confirm(c *Claim, records []noted) []noted {
	i := slices.IndexFunc(records, func(r noted) bool { return r.key == c.Key })
	if i < 0 {
		if i = len(records); i >= maxNoted {
			return records
		}
		records = append(records, noted{key: c.Key, count: c.Limit.Rate.Count})
	}
	r, length := &records[i], windowMillis(c.Limit)
	now := m.now()
	before := r.until - length
	if r.until <= now { // it has left the window
		before = 0
	}
	m.change(*c, ignoreAbsent, func(t *keyState, later int64) {
		now = later
		t.confirm(now, c.Limit, before)
	})
	r.until = now + length
	r.expires = r.until + min(length, maxSpare)
	return records
}

// maxSpare is how long a record stays after its end, at most its window.
const maxSpare = int64(time.Hour / time.Millisecond)

// recordsOf returns the records of all. A key that was not changed since one is over counts its subject again if the
// clock is set back: so a record stays for maxSpare, and for two windows if it is seen then.
func recordsOf(all []noted, now, window int64) (records []noted) {
	for _, r := range all {
		if r.isRecord() && r.until+2*window > now {
			if r.until <= now {
				r.expires = r.until + 2*window
			}
			records = append(records, r)
		}
	}
	return records
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
