package limiter

// A slab keeps values of one size, each at a number that stays its own until it is
// freed. It grows by a chunk at a time, so that growing copies nothing and leaves no
// garbage; it never shrinks. Values without pointers cost the garbage collector
// nothing.
type slab[T any] struct {
	bits   uint8 // a chunk has 1<<bits values
	chunks [][]T
	used   uint32   // numbers that were ever given
	free   []uint32 // of these, the ones that can be given again
}

// at is the value of number i.
func (s *slab[T]) at(i uint32) *T {
	c := s.chunks[i>>s.bits]
	return &c[i&(1<<s.bits-1)]
}

// add gives a number out. Its value is what the last owner of the number has left.
func (s *slab[T]) add() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	if s.used>>s.bits == uint32(len(s.chunks)) {
		s.chunks = append(s.chunks, make([]T, 1<<s.bits))
	}
	s.used++
	return s.used - 1
}

// remove takes a number back, and clears its value.
func (s *slab[T]) remove(i uint32) {
	var zero T
	*s.at(i) = zero
	s.free = append(s.free, i)
}
