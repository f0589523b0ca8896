package limiter

// notes holds the notes of one shard, whose lock guards it.
type notes struct {
	slab   slab[note]
	index  index
	oldest uint32 // where the sweep continues
}

func (n *notes) hashOf(i uint32) uint64 { return n.slab.at(i).hash() }

// find searches the note with hash h; the probe has no item if there is none.
func (n *notes) find(h uint64) probe {
	h = spread(h)
	p := n.index.first(h)
	for p.item > 0 && n.hashOf(p.item-1) != h {
		p = n.index.next(h, p)
	}
	return p
}

// has reports whether there is a note with hash h. It costs nothing if there are no notes.
func (n *notes) has(h uint64) bool { return n.index.used > 0 && n.find(h).item > 0 }

// add adds the note for hash h.
func (n *notes) add(h uint64, now int64, horizon uint16) *note {
	i := n.slab.add()
	at := n.slab.at(i)
	*at = newNote(now, horizon)
	at.nameLow, at.nameHigh = uint32(h), uint16(h>>32)
	n.index.add(at.hash(), i, n.hashOf)
	return at
}

func newNote(now int64, horizon uint16) (n note) {
	n.horizon = horizon
	n.set(now, 0, 0)
	return n
}

// remove removes the note at p.
func (n *notes) remove(p probe) note {
	was := *n.slab.at(p.item - 1)
	n.index.remove(p, n.hashOf)
	n.slab.remove(p.item - 1)
	return was
}

// sweep checks the next count notes, removes expired ones, and returns their number.
func (n *notes) sweep(now int64, count uint32) (gone int64) {
	for range min(count, n.slab.used) {
		if n.oldest >= n.slab.used {
			n.oldest = 0
		}
		if at := n.slab.at(n.oldest); at.horizon != 0 && at.until() <= now {
			n.remove(n.find(uint64(at.nameHigh)<<32 | uint64(at.nameLow)))
			gone++
		}
		n.oldest++
	}
	return gone
}
