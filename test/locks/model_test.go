package locks

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// An input is what one call asked for. Owner is a number of its own for each
// acquisition.
type input struct {
	verb  verb
	owner int
	n     int64 // permits of a semaphore
}

type verb int

const (
	acquire verb = iota // exclusively: a mutex, a writer
	share               // as a reader, or permits of a semaphore
	reenter
	release
	// undo is what the lock does by itself after a call without an answer: it
	// gives back what the call may have taken, some time or never.
	undo
)

// An output is what one call brought.
type output struct {
	answer answer
	token  int64
}

type answer int

const (
	done answer = iota
	refusal
	unknown // no answer: it was executed some time, or never
)

// A state is what the lock is. Doubtful holds the owners whose taking was seen
// by nobody, so that undo knows what to give back.
type state struct {
	owner    int // 0: nobody
	count    int
	readers  int
	free     int64 // permits left
	token    int64
	doubtful owners
}

// model is what a kind with so many permits promises when nobody else is there.
func model(permits int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{free: permits} },
		Step: func(s, in, out any) (bool, any) {
			ok, next := step(s.(state), in.(input), out.(output))
			return ok, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	}
}

// fencedModel is model for a lock without permits whose tokens rise.
func fencedModel() porcupine.Model {
	m := model(0)
	unfenced := m.Step
	m.Step = func(s, in, out any) (bool, any) {
		ok, next := unfenced(s, in, out)
		stale := in.(input).verb == acquire && out.(output).answer == done && out.(output).token <= s.(state).token
		return ok && !stale, next
	}
	return m
}

// step says whether what happened can happen in s, and what comes of it.
func step(s state, in input, out output) (bool, state) {
	switch in.verb {
	case acquire:
		return s.acquire(in, out)
	case share:
		return s.share(in, out)
	case reenter:
		next := s
		next.count++
		return s.owner == in.owner, next
	case release:
		return s.release(in)
	default:
		return true, s.undo(in)
	}
}

func (s state) acquire(in input, out output) (bool, state) {
	can := s.owner == 0 && s.readers == 0
	next := s
	next.owner, next.count, next.token = in.owner, 1, max(s.token, out.token)
	switch {
	case out.answer == refusal:
		return !can, s
	case out.answer == unknown && !can:
		return true, s
	}
	return can, next
}

func (s state) share(in input, out output) (bool, state) {
	can := s.owner == 0 && s.free >= in.n
	next := s
	next.readers++
	next.free -= in.n
	switch {
	case out.answer == refusal:
		return !can, s
	case out.answer == unknown && !can:
		return true, s
	case out.answer == unknown:
		next.doubtful = next.doubtful.with(in.owner)
	}
	return can, next
}

func (s state) release(in input) (bool, state) {
	next := s
	if s.owner == in.owner {
		if next.count--; next.count == 0 {
			next.owner = 0
		}
		return true, next
	}
	next.readers--
	next.free += in.n
	return s.readers > 0, next
}

func (s state) undo(in input) state {
	if s.owner == in.owner {
		s.owner, s.count = 0, 0
	}
	if rest, ok := s.doubtful.without(in.owner); ok {
		s.doubtful = rest
		s.readers--
		s.free += in.n
	}
	return s
}

// Owners are some owners in order, so that equal sets are equal states; 0 is
// nobody.
type owners [mishaps]int

func (o owners) with(owner int) owners {
	o[0] = owner // the smallest place is free: there are no more mishaps than places
	slices.Sort(o[:])
	return o
}

func (o owners) without(owner int) (owners, bool) {
	i := slices.Index(o[:], owner)
	if i < 0 {
		return o, false
	}
	o[i] = 0
	slices.Sort(o[:])
	return o, true
}
