package limiter

import (
	"encoding/binary"
	"slices"
)

// inline is how many claims of one decision need no memory from the heap.
const inline = 16

// A cellRef leads from a claim to its cell.
type cellRef struct {
	id    cellID
	shard int32
	index int32 // in the shard's cells; -1 when there is no cell
}

// refs returns one ref a claim, in the order of the claims, without an index.
func (m *Memory) refs(claims []Claim, room []cellRef) []cellRef {
	for _, c := range claims {
		room = append(room, cellRef{
			id:    cellID{limit: m.number(c.Limit.Name), key: c.Key},
			shard: m.shard(c.Key),
			index: -1,
		})
	}
	return room
}

// shard spreads keys evenly, whoever made them: all bytes of a key take part.
func (m *Memory) shard(k Key) int32 {
	h := (binary.LittleEndian.Uint64(k[:8]) ^ binary.LittleEndian.Uint64(k[8:])) * 0x9e3779b97f4a7c15
	return int32((h >> 32) & uint64(len(m.shards)-1))
}

// lock locks the shards of refs, each once, in ascending order, so that two
// decisions never wait for each other.
func (m *Memory) lock(refs []cellRef) {
	var room [inline]int32
	for _, i := range sorted(refs, room[:0]) {
		m.shards[i].mu.Lock()
	}
}

func (m *Memory) unlock(refs []cellRef) {
	var room [inline]int32
	for _, i := range sorted(refs, room[:0]) {
		m.shards[i].mu.Unlock()
	}
}

// sorted returns the shards of refs, each once, ascending.
func sorted(refs []cellRef, room []int32) []int32 {
	for _, r := range refs {
		room = append(room, r.shard)
	}
	slices.Sort(room)
	return slices.Compact(room)
}

// openLocked finds or makes the cells of refs.
func (m *Memory) openLocked(claims []Claim, refs []cellRef, now int64) {
	for i := range refs {
		refs[i].index = m.shards[refs[i].shard].openLocked(refs[i].id, claims[i].Source, now)
	}
}

// cell is the cell of r, or nil.
func (m *Memory) cell(r cellRef) *cell {
	if r.index < 0 {
		return nil
	}
	return &m.shards[r.shard].cells[r.index]
}
