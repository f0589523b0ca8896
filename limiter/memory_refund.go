package limiter

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// newPermit returns the Permit of a decision made at the time at, whose permits are counted in cells of a place.
func newPermit(at time.Time, counted place) (p Permit) {
	binary.LittleEndian.PutUint64(p.ID[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(p.ID[8:], rand.Uint64()&^placeMask|uint64(counted))
	p.At = at
	return p
}

// A place says which cells count the permits of a decision. It is a part of the permit's ID, because a counter cannot tell
// whether it has counted a permit.
type place uint64

const (
	severalPlaces place = iota
	ownCells
	overflowCells       // of all sources
	sourceOverflowCells // of one source
	placeMask           = 3
)

// placeOf returns the place of c, the cell that counts r.
func (r *cellRef) placeOf(c *cell) place {
	switch c.id {
	case r.id:
		return ownCells
	case r.id.overflowID(0):
		return overflowCells
	}
	return sourceOverflowCells
}

// placeOfAll returns the place of the cells of refs.
func (m *Memory) placeOfAll(refs []cellRef) (all place) {
	for i := range refs {
		r := &refs[i]
		one := r.placeOf(m.shards[r.shard].cells.at(r.index))
		if i > 0 && one != all {
			return severalPlaces
		}
		all = one
	}
	return all
}

// mayCount reports whether a cell of a place may have counted the permits of p for c. What is found by its ID may be of
// another store.
func (p *Permit) mayCount(c *Claim, in place) bool {
	counted := place(p.ID[8] & placeMask)
	return counted == in || counted == severalPlaces || !c.Limit.Algorithm.countsPermits()
}

// Refund implements Store.
func (m *Memory) Refund(_ context.Context, claims []Claim, p Permit) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	if p.IsZero() {
		return nil
	}
	for i := range claims {
		c := &claims[i]
		if c.Limit.Algorithm.HasConversion() && !m.notes.remove(cellID{limit: m.numbers.number(c.Limit), key: c.Value}, c.Key, p) {
			continue // returned, or not noted
		}
		m.refund(c, p)
	}
	return nil
}

// refund returns the permits of one claim: to its key, or to the overflow cell that
// counted them. It reports how many it returned.
func (m *Memory) refund(c *Claim, p Permit) (refunded int64) {
	r := m.ref(c)
	s := &m.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	for n, id := range [...]cellID{r.id, r.id.overflowID(0), r.id.overflowID(c.Source)} {
		i := s.findLocked(&id, s.hash(id))
		if i == noCell || !p.mayCount(c, ownCells+place(n)) {
			continue
		}
		s.changeLocked(i, c.Limit, func(t *keyState) {
			t.advance(now, c.Limit)
			refunded = t.refund(now, p, c)
		})
		if refunded > 0 {
			return refunded
		}
	}
	return 0
}
