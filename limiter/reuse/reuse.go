// Package reuse is how memory goes from one request to the next, which may be another client's.
package reuse

// Memory ends the use of s, whose content was valid only for one request. It returns s with length 0,
// for the next one. With the build tag poison it overwrites all of s, so that a later use of its
// content is noticed, and returns nil.
func Memory[S ~[]E, E any](s S) S {
	if !Poisoned {
		return s[:0]
	}
	s = s[:cap(s)]
	clear(s)
	if b, ok := any([]E(s)).([]byte); ok {
		for i := range b {
			b[i] = 0xDB
		}
	}
	return nil
}
