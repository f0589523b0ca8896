package limiter

// A slab stores values of one size, each with a number that is stable until it is freed. It
// grows by chunks, so that growing copies nothing; it never shrinks. Values without
// pointers cost the garbage collector nothing.
type slab[T any] struct {
	bits   uint8 // a chunk has 1<<bits values
	chunks [][]T
	used   uint32   // numbers assigned so far
	free   []uint32 // those of them that are free
}

// at returns the value with number i.
func (s *slab[T]) at(i uint32) *T {
	c := s.chunks[i>>s.bits]
	return &c[i&(1<<s.bits-1)]
}

// add assigns a number. Its value is that of the previous owner.
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

// remove frees a number and clears its value.
func (s *slab[T]) remove(i uint32) {
	var zero T
	*s.at(i) = zero
	s.free = append(s.free, i)
}
