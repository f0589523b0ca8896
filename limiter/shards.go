package limiter

import "math/bits"

// inline is the number of claims of a decision up to which no heap memory is needed.
const inline = 16

// A cellRef refers to the cell of a claim.
type cellRef struct {
	id    cellID
	hash  uint64
	shard uint32
	index uint32 // in the shard's cells; noCell if there is none
}

// ref returns the shard and id for claim c, without the number of the cell.
func (m *Memory) ref(c *Claim) cellRef {
	h := m.seed.hash(&c.Key)
	id := cellID{limit: m.number(c.Limit.Name), key: c.Key}
	return cellRef{id: id, hash: hashUnder(id.limit, h), shard: uint32(h>>48) & uint32(len(m.shards)-1), index: noCell}
}

// refs returns one ref per claim, in the order of the claims.
func (m *Memory) refs(claims []Claim, room []cellRef) []cellRef {
	for i := range claims {
		room = append(room, m.ref(&claims[i]))
	}
	return room
}

// A shardSet is a bit set of shards.
type shardSet uint64

// lock locks the shards of refs, each once and in ascending order, which avoids deadlocks.
func (m *Memory) lock(refs []cellRef) (locked shardSet) {
	for i := range refs {
		locked |= 1 << refs[i].shard
	}
	for rest := locked; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Lock()
	}
	return locked
}

func (m *Memory) unlock(locked shardSet) {
	for rest := locked; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Unlock()
	}
}

// openLocked finds or creates the cells of refs.
func (m *Memory) openLocked(claims []Claim, refs []cellRef, now int64) {
	for i := range refs {
		r, s := &refs[i], &m.shards[refs[i].shard]
		r.index = s.openLocked(r.id, r.hash, claims[i].Source, now)
		s.expandLocked(r, &claims[i], now)
	}
}
