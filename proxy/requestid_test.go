package proxy

import (
	"encoding/binary"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// Each byte is mapped by its five lowest bits, whatever its neighbors are.
func TestRequestIDs_CharactersByValue(t *testing.T) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	for b := range 256 {
		for _, others := range []uint64{0, 0xff, uint64(b), 26, 25} {
			for at := range 8 {
				random := others*0x0101010101010101&^(0xff<<(8*at)) | uint64(b)<<(8*at)
				var got, want [8]byte
				binary.LittleEndian.PutUint64(got[:], idCharacters(random))
				for i := range want {
					want[i] = letters[byte(random>>(8*i))%32]
				}
				if got != want {
					t.Fatalf("%016x: %s, want %s", random, got, want)
				}
			}
		}
	}
}

func TestRequestIDs_NoTwoAreTheSame(t *testing.T) {
	var ids requestIDs
	var mu sync.Mutex
	seen := map[string]bool{}
	form := regexp.MustCompile(`^[A-Z2-7]{26}$`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				for text := range slices.Chunk([]byte(ids.batch()), idLength) {
					id := string(text)
					mu.Lock()
					if seen[id] || !form.MatchString(id) {
						t.Errorf("id %q, seen before: %v", id, seen[id])
					}
					seen[id] = true
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	var other requestIDs
	if len(seen) != 8*100*idBatch {
		t.Errorf("%d ids, want %d", len(seen), 8*100*idBatch)
	}
	if id := other.batch()[:idLength]; seen[id] {
		t.Errorf("another proxy has made %q too", id)
	}
}
