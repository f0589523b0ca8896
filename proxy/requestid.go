package proxy

import (
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
)

const (
	// idLength is the number of characters of an id. Each has 5 random bits; an id is as hard to
	// guess as a 128-bit key.
	idLength = 26
	// idBatch is the number of ids that share one allocation. This many are lost at most when the
	// garbage collector frees an unused source.
	idBatch = 64
)

// requestIDs generates request ids. They come from a cryptographic generator that is seeded by the
// operating system; reading from the operating system for each id would take a system call. The
// zero value is ready to use. It is safe for concurrent use.
type requestIDs struct{ sources sync.Pool } // of *idSource

// An idSource generates ids. It is used by one goroutine at a time.
type idSource struct {
	random *rand.ChaCha8
	ids    string // generated ids that have not been used
}

// next returns a unique id of letters and the digits 2 to 7.
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

// fill generates more ids.
func (s *idSource) fill() {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	var text [idBatch * idLength]byte
	_, _ = s.random.Read(text[:]) // never fails
	for i, b := range text {
		text[i] = letters[b%32]
	}
	s.ids = string(text[:])
}
