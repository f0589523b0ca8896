package limiter

// A mirrorTable holds the mirror entries of one shard. The lock of the shard guards it.
type mirrorTable struct {
	slab      slab[mirrorEntry]
	index     index
	nextSweep uint32 // number of the entry at which the next sweep starts
}

func (n *mirrorTable) hashOf(i uint32) uint64 { return n.slab.at(i).indexHash() }

// find returns the probe of the key with hash h; a probe without an item if there is
// none.
func (n *mirrorTable) find(h uint64) probe {
	h = spread(h)
	p := n.index.first(h)
	for p.item > 0 && n.hashOf(p.item-1) != h {
		p = n.index.next(h, p)
	}
	return p
}

// has reports whether there is an entry of hash h. It is cheap if the table is empty.
func (n *mirrorTable) has(h uint64) bool { return n.index.used > 0 && n.find(h).item > 0 }

// add adds the entry of hash h.
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

// remove removes the entry that p has found and returns it.
func (n *mirrorTable) remove(p probe) mirrorEntry {
	was := *n.slab.at(p.item - 1)
	n.index.remove(p, n.hashOf)
	n.slab.remove(p.item - 1)
	return was
}

// sweep removes expired entries among the next count entries and returns how many it
// removed.
func (n *mirrorTable) sweep(now int64, count uint32) (removed int64) {
	for range min(count, n.slab.used) {
		if n.nextSweep >= n.slab.used {
			n.nextSweep = 0
		}
		if at := n.slab.at(n.nextSweep); at.horizon != 0 && at.expiresAt() <= now {
			n.remove(n.find(uint64(at.hashHigh)<<32 | uint64(at.hashLow)))
			removed++
		}
		n.nextSweep++
	}
	return removed
}
