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
	// idBatch is the number of ids that share one allocation.
	idBatch = 16
)

// requestIDs generates request ids. They come from a cryptographic generator that is seeded by the
// operating system; reading from the operating system for each id would take a system call. The
// zero value is ready to use. It is safe for concurrent use.
type requestIDs struct{ generators sync.Pool } // of *rand.ChaCha8

// batch returns unique ids of letters and the digits 2 to 7, each of idLength characters, one after the
// other. An exchange keeps those that it does not use for its next requests, so that a request
// seldom needs the generator.
func (r *requestIDs) batch() string {
	random, ok := r.generators.Get().(*rand.ChaCha8)
	if !ok {
		var seed [32]byte
		_, _ = crand.Read(seed[:]) // never fails
		random = rand.NewChaCha8(seed)
	}
	var text [idBatch * idLength]byte
	for i := 0; i < len(text); i += 8 { // eight characters at a time
		binary.LittleEndian.PutUint64(text[i:], idCharacters(random.Uint64()))
	}
	r.generators.Put(random)
	return string(text[:])
}

// idCharacters maps each byte of random to a character of an id by its lowest five bits: 0 to 25 to
// A to Z, 26 to 31 to 2 to 7. No addition carries from one byte into the next.
func idCharacters(random uint64) uint64 {
	const each = 0x0101010101010101 // a 1 in each byte
	values := random & (31 * each)
	digits := (values + (128-26)*each) >> 7 & each // a 1 in each byte with a value from 26
	return values + 'A'*each - digits*('A'+26-'2')
}
