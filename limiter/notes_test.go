package limiter

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"
)

func subjectCell(n int) (id cellID) {
	binary.LittleEndian.PutUint64(id.key[:], uint64(n))
	return id
}

// A note costs no more after very many have expired.
func TestNotes_SweepCostsWhatItRemoves(t *testing.T) {
	const many, some = 30_000, 1000
	adding := func(n *notes, from int) time.Duration {
		began := time.Now()
		for i := range some {
			n.add(2, subjectCell(from+i), noted{expires: 3})
		}
		return time.Since(began)
	}
	full := newNotes(1 << 40)
	for i := range many {
		full.add(0, subjectCell(i), noted{expires: 1})
	}
	for i := range many { // all are swept meanwhile
		full.add(1, subjectCell(many+i%10), noted{expires: 2})
	}
	if len(full.bySubject) > 10 {
		t.Fatalf("%d subjects are left, want 10", len(full.bySubject))
	}
	after, fresh := time.Hour, time.Hour
	for round := range 5 {
		after, fresh = min(after, adding(full, many*(2+round))), min(fresh, adding(newNotes(1<<40), 0))
	}
	if after > 20*fresh {
		t.Errorf("%d notes take %v after %d have expired, and %v without", some, after, many, fresh)
	}
}

// Whatever is noted, returned and forgotten, the list of subjects has each once, and no note is lost or counted twice.
func TestNotes_KnowTheirSubjects(t *testing.T) {
	random, n := rand.New(rand.NewPCG(1, 2)), newNotes(64*noteBytes*notesShare)
	for now := range int64(20_000) {
		id := subjectCell(random.IntN(80))
		switch random.IntN(3) {
		case 0:
			n.setLocked(id, nil)
		default:
			n.add(now, id, noted{permit: Permit{At: time.UnixMilli(1)}, expires: now + random.Int64N(300)})
		}
		entries, listed := 0, map[cellID]bool{}
		for _, all := range n.bySubject {
			entries += len(all)
		}
		for _, id := range n.subjects {
			listed[id] = true
			if _, known := n.bySubject[id]; !known {
				t.Fatalf("%v is listed and not known", id)
			}
		}
		if entries != n.entries || entries > n.maxEntries || len(listed) != len(n.bySubject) || len(n.subjects) != len(listed) {
			t.Fatalf("%d notes of %d, %d counted, of %d subjects, %d of %d in the list", entries, n.maxEntries, n.entries, len(n.bySubject), len(listed), len(n.subjects))
		}
	}
}

// What was added is found until it is removed, and nothing else is, however hashes
// collide and the table grows.
func TestIndex_FindsWhatThereIs(t *testing.T) {
	for _, spread := range []uint64{1, 7, 1 << 20, 1<<64 - 1} { // how many hashes there are
		random := rand.New(rand.NewPCG(spread, 1))
		var x index
		var s slab[uint64]
		hashOf := func(i uint32) uint64 { return hashUnder(0, *s.at(i)%spread) }
		find := func(v uint64) probe {
			return x.find(hashUnder(0, v%spread), func(i uint32) bool { return *s.at(i) == v })
		}
		there := map[uint64]bool{}
		for range 20_000 {
			v := random.Uint64N(300)
			switch p := find(v); {
			case there[v] != (p.item > 0):
				t.Fatalf("of %d hashes: %d is found: %v, want %v", spread, v, p.item > 0, there[v])
			case !there[v]:
				i := s.add()
				*s.at(i) = v
				x.add(hashUnder(0, v%spread), i, hashOf)
				there[v] = true
			default:
				x.remove(p, hashOf)
				s.remove(p.item - 1)
				delete(there, v)
			}
			if x.used != len(there) {
				t.Fatalf("%d used, want %d", x.used, len(there))
			}
		}
	}
}
