package proxy

import (
	crand "crypto/rand"
	"encoding/binary"
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

// fill generates more ids, eight characters at a time.
func (s *idSource) fill() {
	var text [idBatch * idLength]byte
	for i := 0; i < len(text); i += 8 {
		binary.LittleEndian.PutUint64(text[i:], idCharacters(s.random.Uint64()))
	}
	s.ids = string(text[:])
}

// idCharacters maps each byte of random to a character of an id by its lowest five bits: 0 to 25 to
// A to Z, 26 to 31 to 2 to 7. No addition carries from one byte into the next.
func idCharacters(random uint64) uint64 {
	const each = 0x0101010101010101 // a 1 in each byte
	values := random & (31 * each)
	digits := (values + (128-26)*each) >> 7 & each // a 1 in each byte with a value from 26
	return values + 'A'*each - digits*('A'+26-'2')
}
