package limiter

import (
	"math/rand/v2"
	"testing"
)

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
