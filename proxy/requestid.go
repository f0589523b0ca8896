package proxy

import (
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
)

const (
	// idLength is how many characters an id has. Each is 5 bits of chance: together as
	// hard to guess as a key of 128 bits.
	idLength = 26
	// idsAtOnce is how many ids share one allocation, and how many are lost at most when
	// the garbage collector takes an unused source.
	idsAtOnce = 64
)

// requestIDs makes the ids of requests. They come from a generator that nobody can
// predict, seeded by the operating system: asking that one for each would take a
// system call. It is safe for concurrent use, and the zero requestIDs is ready.
type requestIDs struct{ sources sync.Pool } // of *idSource

// An idSource is used by one goroutine at a time.
type idSource struct {
	random *rand.ChaCha8
	ids    string // made and not handed out
}

// next is an id that no other request has: letters and the digits 2 to 7.
func (r *requestIDs) next() string {
	s, ok := r.sources.Get().(*idSource)
	if !ok {
		var seed [32]byte
		_, _ = crand.Read(seed[:]) // never fails
		s = &idSource{random: rand.NewChaCha8(seed)}
	}
	if s.ids == "" {
		s.fill()
	}
	id := s.ids[:idLength]
	s.ids = s.ids[idLength:]
	r.sources.Put(s)
	return id
}

// fill makes more ids.
func (s *idSource) fill() {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	var text [idsAtOnce * idLength]byte
	_, _ = s.random.Read(text[:]) // never fails
	for i, b := range text {
		text[i] = letters[b%32]
	}
	s.ids = string(text[:])
}
