package key

import (
	"encoding/binary"
	"fmt"
	"regexp/syntax"
	"slices"
)

// maxStates bounds an automaton. The numbering plans of today need 500 at most.
const maxStates = 1 << 14

// An automaton matches strings of ASCII digits with up to 16 regular expressions at once:
// a deterministic finite automaton, built by the subset construction. A digit costs it one
// look-up, where package regexp, which matches any text, needs a hundred times as long.
type automaton struct {
	states []state // the first is dead, the second the start
	// loose says that an expression has an assertion, such as $. It is taken to be true
	// everywhere, so that more may be matched than the expression matches, never less.
	loose bool
}

type state struct {
	next  [10]uint16 // by digit; 0 when no longer string can match
	match uint16     // which expressions match what was read, a bit of each
}

const start = 1

// newAutomaton builds an automaton of expressions in the syntax of package regexp. An
// empty one matches nothing.
func newAutomaton(expressions ...string) (*automaton, error) {
	b := builder{known: map[string]uint16{}, out: &automaton{states: make([]state, 1)}}
	var starts []uint32
	for i, e := range expressions {
		if e == "" {
			continue
		}
		parsed, err := syntax.Parse(e, syntax.Perl)
		if err != nil {
			return nil, fmt.Errorf("read expression %d: %w", i, err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			return nil, fmt.Errorf("compile expression %d: %w", i, err)
		}
		starts = append(starts, b.load(program, i))
	}
	b.visited = make([]bool, len(b.program))
	if err := b.build(starts); err != nil {
		return nil, err
	}
	b.out.states = slices.Clone(b.out.states) // no larger than it is
	return b.out, nil
}

// match says which expressions match all of s, a bit of each.
func (a *automaton) match(s string) uint16 {
	at := uint16(start)
	for i := 0; i < len(s) && at != 0; i++ {
		at = a.states[at].next[s[i]-'0']
	}
	return a.states[at].match
}

// begins says how many beginnings of s, from the empty one to all of s, are matched, and
// how long the last of them is.
func (a *automaton) begins(s string) (count, longest int) {
	at := uint16(start)
	for i := 0; at != 0; i++ {
		if a.states[at].match != 0 {
			count, longest = count+1, i
		}
		if i == len(s) {
			break
		}
		at = a.states[at].next[s[i]-'0']
	}
	return count, longest
}

// A builder builds an automaton: each of its states stands for a set of instructions at
// which the compiled expressions may be.
type builder struct {
	program []syntax.Inst // of all expressions
	of      []int         // the expression of each instruction
	known   map[string]uint16
	sets    [][]uint32 // of each state behind the dead one
	out     *automaton

	// Of the state that is being made, kept for the next.
	visited []bool
	reached []uint32
	set     []uint32
	match   uint16
	name    []byte
}

// load takes up the instructions of an expression, and returns where it starts.
func (b *builder) load(p *syntax.Prog, of int) uint32 {
	base := uint32(len(b.program))
	for _, in := range p.Inst {
		in.Out += base
		if in.Op == syntax.InstAlt || in.Op == syntax.InstAltMatch {
			in.Arg += base
		}
		b.program, b.of = append(b.program, in), append(b.of, of)
	}
	return base + uint32(p.Start)
}

func (b *builder) build(starts []uint32) error {
	b.state(starts)
	for i := 0; i < len(b.sets); i++ {
		if len(b.sets) > maxStates {
			return fmt.Errorf("an automaton of more than %d states", maxStates)
		}
		for digit := range rune(10) {
			b.reached = b.reached[:0]
			for _, pc := range b.sets[i] {
				if b.program[pc].MatchRune('0' + digit) {
					b.reached = append(b.reached, b.program[pc].Out)
				}
			}
			b.out.states[i+1].next[digit] = b.state(b.reached)
		}
	}
	return nil
}

// state is the state in which the instructions at pcs, and all that follow of them without
// a digit, may be next.
func (b *builder) state(pcs []uint32) uint16 {
	clear(b.visited)
	b.set, b.match = b.set[:0], 0
	for _, pc := range pcs {
		b.closure(pc)
	}
	if len(b.set) == 0 && b.match == 0 && len(b.sets) > 0 {
		return 0
	}
	slices.Sort(b.set)
	b.name = binary.LittleEndian.AppendUint16(b.name[:0], b.match)
	for _, pc := range b.set {
		b.name = binary.LittleEndian.AppendUint32(b.name, pc)
	}
	at, made := b.known[string(b.name)]
	if !made {
		at = uint16(len(b.out.states))
		b.known[string(b.name)] = at
		b.sets = append(b.sets, slices.Clone(b.set))
		b.out.states = append(b.out.states, state{match: b.match})
	}
	return at
}

// closure adds the instruction at pc, or those that follow without a digit, to the set.
func (b *builder) closure(pc uint32) {
	if b.visited[pc] {
		return
	}
	b.visited[pc] = true
	switch in := b.program[pc]; in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		b.closure(in.Out)
		b.closure(in.Arg)
	case syntax.InstEmptyWidth:
		b.out.loose = true
		b.closure(in.Out)
	case syntax.InstCapture, syntax.InstNop:
		b.closure(in.Out)
	case syntax.InstMatch:
		b.match |= 1 << b.of[pc]
	case syntax.InstFail:
	default:
		b.set = append(b.set, pc)
	}
}
