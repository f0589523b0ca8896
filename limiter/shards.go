package limiter

import "math/bits"

// inlineClaims is how many claims of one decision need no memory from the heap.
const inlineClaims = 16

// A cellRef leads from a claim to its cell.
type cellRef struct {
	id    cellID
	hash  uint64
	shard uint32
	index uint32 // in the shard's cells; nowhere when there is no cell
}

// ref is where what claims c asks for is counted, without the number of a cell.
func (m *Memory) ref(c *Claim) cellRef {
	h := m.seed.hash(&c.Key)
	id := cellID{limit: m.limitNumber(c.Limit.Name), key: c.Key}
	return cellRef{id: id, hash: hashUnder(id.limit, h), shard: uint32(h>>48) & uint32(len(m.shards)-1), index: noCell}
}

// refs returns one ref a claim, in the order of the claims.
func (m *Memory) refs(claims []Claim, room []cellRef) []cellRef {
	for i := range claims {
		room = append(room, m.ref(&claims[i]))
	}
	return room
}

// A shardSet are shards, a bit each.
type shardSet uint64

// lock locks the shards of refs, each once, in ascending order, so that two
// decisions never wait for each other.
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

// findOrAddLocked finds or makes the cells of refs.
func (m *Memory) findOrAddLocked(claims []Claim, refs []cellRef, now int64) {
	for i := range refs {
		r, s := &refs[i], &m.shards[refs[i].shard]
		r.index = s.findOrAddLocked(r.id, r.hash, claims[i].Source, now)
		s.expandMirroredLocked(r, &claims[i], now)
	}
}
