package limiter

// A mirrorTable holds the mirror entries of one shard. The lock of the shard guards it.
type mirrorTable struct {
	slab      slab[mirrorEntry]
	index     index
	nextSweep uint32 // number of the entry at which the next sweep starts
}

func (t *mirrorTable) hashOf(i uint32) uint64 { return t.slab.at(i).hash }

// find returns the probe of the key with hash h; a probe without an item if there is
// none.
func (t *mirrorTable) find(h uint64) probe {
	p := t.index.first(h)
	for p.item > 0 && t.hashOf(p.item-1) != h {
		p = t.index.next(h, p)
	}
	return p
}

// has reports whether there is an entry of hash h. It is cheap if the table is empty.
func (t *mirrorTable) has(h uint64) bool { return t.index.used > 0 && t.find(h).item > 0 }

// add adds the entry of hash h.
func (t *mirrorTable) add(h uint64, now, horizon int64) *mirrorEntry {
	i := t.slab.add()
	at := t.slab.at(i)
	*at = mirrorEntry{hash: h, horizon: horizon, grantedAt: now, repliedAt: now}
	t.index.add(h, i, t.hashOf)
	return at
}

// remove removes the entry that p has found and returns it.
func (t *mirrorTable) remove(p probe) mirrorEntry {
	was := *t.slab.at(p.item - 1)
	t.index.remove(p, t.hashOf)
	t.slab.remove(p.item - 1)
	return was
}

// sweep removes expired entries among the next count entries and returns how many it
// removed.
func (t *mirrorTable) sweep(now int64, count uint32) (removed int64) {
	for range min(count, t.slab.used) {
		if t.nextSweep >= t.slab.used {
			t.nextSweep = 0
		}
		if at := t.slab.at(t.nextSweep); at.horizon != 0 && at.expiresAt() <= now {
			t.remove(t.find(at.hash))
			removed++
		}
		t.nextSweep++
	}
	return removed
}
