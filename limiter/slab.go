package limiter

// A slab allocates values of one type and identifies each by a number until it is
// removed. It grows by one chunk at a time, so that growing copies nothing and leaves no
// garbage; it never shrinks. The garbage collector does not scan values without pointers.
type slab[T any] struct {
	chunks []*[chunkSize]T
	used   uint32   // numbers that were ever allocated
	free   []uint32 // removed numbers, for reuse
}

// chunkSize is the number of values in a chunk.
const chunkSize = 128

// at returns the value of number i.
func (s *slab[T]) at(i uint32) *T { return &s.chunks[i/chunkSize][i%chunkSize] }

// add allocates a number. Its value is zero.
func (s *slab[T]) add() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	if s.used/chunkSize == uint32(len(s.chunks)) {
		s.chunks = append(s.chunks, new([chunkSize]T))
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
