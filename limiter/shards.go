package limiter

import "math/bits"

// inlineClaims is the number of claims of one decision that are processed without a heap
// allocation.
const inlineClaims = 16

// A cellRef locates the cell of a claim.
type cellRef struct {
	id    cellID
	hash  uint64
	shard uint32
	index uint32 // in the shard's cells; noCell if there is no cell
}

// ref locates the key of c, without looking for its cell.
func (m *Memory) ref(c *Claim) cellRef {
	h := m.seed.hash(&c.Key)
	id := cellID{limit: m.numbers.number(c.Limit), key: c.Key}
	return cellRef{id: id, hash: hashUnder(id.limit, h), shard: uint32(h>>48) & uint32(len(m.shards)-1), index: noCell}
}

// refs appends one cellRef for each claim to buf.
func (m *Memory) refs(claims []Claim, buf []cellRef) []cellRef {
	for i := range claims {
		buf = append(buf, m.ref(&claims[i]))
	}
	return buf
}

// A shardSet is a set of shards, one bit for each.
type shardSet uint64

// lock locks the shards of refs, each once and in ascending order, so that concurrent
// decisions cannot deadlock.
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

// findOrAddLocked finds or adds the cells of refs.
func (m *Memory) findOrAddLocked(claims []Claim, refs []cellRef, now int64) {
	for i := range refs {
		r, s := &refs[i], &m.shards[refs[i].shard]
		r.index = s.findOrAddLocked(&r.id, r.hash, claims[i].Source, now)
		s.expandMirroredLocked(r, &claims[i], now)
	}
}
