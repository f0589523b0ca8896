package limiter

import "fmt"

// MaxConcurrent is the largest Rate.Count of a Concurrent limit. Each permit that is held
// is an entry of its own.
const MaxConcurrent = 10_000

// The log of a Concurrent limit has an entry for each held permit. It is the permit log,
// but its entries are never merged, and a refund removes one without a mark.

// checkConcurrent checks what only Concurrent bounds.
func (l *Limit) checkConcurrent() error {
	if l.Rate.Count > MaxConcurrent {
		return fmt.Errorf("%w: %s allows %d concurrent permits; the maximum is %d", ErrInvalidLimit, l.Name, l.Rate.Count, MaxConcurrent)
	}
	return nil
}

// takeConcurrent records the permits of c, which are held from now on, under id.
func (s *keyState) takeConcurrent(now int64, c *Claim, id [16]byte) { s.add(now, id, c.Cost) }

// renew changes the time of the permits under id to now, and reports whether they were
// still held.
func (s *keyState) renew(now int64, id [16]byte) bool {
	n := s.release(id)
	if n == 0 {
		return false
	}
	s.add(now, id, n)
	return true
}
