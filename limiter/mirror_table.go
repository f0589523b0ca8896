package limiter

// mirrorTable are those of one shard. They have the shard's lock.
type mirrorTable struct {
	slab      slab[mirrorEntry]
	index     index
	nextSweep uint32 // where the sweep goes on
}

func (n *mirrorTable) hashOf(i uint32) uint64 { return n.slab.at(i).indexHash() }

// find is where the note of a key is whose hash is h; a probe without an item if there
// is none.
func (n *mirrorTable) find(h uint64) probe {
	h = spread(h)
	p := n.index.first(h)
	for p.item > 0 && n.hashOf(p.item-1) != h {
		p = n.index.next(h, p)
	}
	return p
}

// has reports whether there is a note of hash h. It costs nothing where there are none.
func (n *mirrorTable) has(h uint64) bool { return n.index.used > 0 && n.find(h).item > 0 }

// add makes the note of hash h.
func (n *mirrorTable) add(h uint64, now int64, horizon uint16) *mirrorEntry {
	i := n.slab.add()
	at := n.slab.at(i)
	*at = newMirrorEntry(now, horizon)
	at.hashLow, at.hashHigh = uint32(h), uint16(h>>32)
	n.index.add(at.indexHash(), i, n.hashOf)
	return at
}

func newMirrorEntry(now int64, horizon uint16) (n mirrorEntry) {
	n.horizon = horizon
	n.setTimes(now, 0, 0)
	return n
}

// remove takes the note out that p has found.
func (n *mirrorTable) remove(p probe) mirrorEntry {
	was := *n.slab.at(p.item - 1)
	n.index.remove(p, n.hashOf)
	n.slab.remove(p.item - 1)
	return was
}

// sweep looks at the next count notes, forgets those that are over, and returns how many.
func (n *mirrorTable) sweep(now int64, count uint32) (gone int64) {
	for range min(count, n.slab.used) {
		if n.nextSweep >= n.slab.used {
			n.nextSweep = 0
		}
		if at := n.slab.at(n.nextSweep); at.horizon != 0 && at.expiresAt() <= now {
			n.remove(n.find(uint64(at.hashHigh)<<32 | uint64(at.hashLow)))
			gone++
		}
		n.nextSweep++
	}
	return gone
}
