package key

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"sync"
)

// An automaton matches strings of ASCII digits with up to 16 regular expressions at once.
// It is a deterministic finite automaton, built by the subset construction. It takes one
// look-up for each digit; package regexp, which matches any text, takes about a hundred
// times as long.
type automaton struct {
	states []state // the first is dead, the second the start
	// loose is true if an expression has an assertion, such as $. Assertions are taken to
	// be true, so that the automaton matches at least what the expression matches.
	loose bool
}

type state struct {
	next  [10]uint16 // by digit; 0 when no longer string can match
	match uint16     // bit set of the expressions that match the input so far
}

const start = 1

// newAutomaton builds an automaton for expressions of plans.txt, in the syntax of package
// regexp. An empty expression matches nothing. Current numbering plans need 500 states at most.
func newAutomaton(expressions ...string) *automaton {
	b := builder{known: map[string]uint16{}, out: &automaton{states: make([]state, 1)}}
	var starts []uint32
	for i, e := range expressions {
		if e == "" {
			continue
		}
		parsed, err := syntax.Parse(e, syntax.Perl)
		if err != nil {
			panic(fmt.Errorf("plans.txt: %w", err)) // tests compile all of them
		}
		program, _ := syntax.Compile(parsed.Simplify()) // what is parsed can be compiled
		starts = append(starts, b.load(program, i))
	}
	b.visited = make([]bool, len(b.program))
	b.build(starts)
	b.out.states = slices.Clone(b.out.states) // without spare capacity
	return b.out
}

// match returns the bit set of the expressions that match all of s.
func (a *automaton) match(s string) uint16 {
	at := uint16(start)
	for i := 0; i < len(s) && at != 0; i++ {
		at = a.states[at].next[s[i]-'0']
	}
	return a.states[at].match
}

// countPrefixes returns the number of prefixes of s that match, including the empty one and s
// itself, and the length of the longest.
func (a *automaton) countPrefixes(s string) (count, longest int) {
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

// A builder builds an automaton. Each state stands for a set of instructions of the
// compiled expressions.
type builder struct {
	program []syntax.Inst // of all expressions
	of      []int         // the expression of each instruction
	known   map[string]uint16
	sets    [][]uint32 // of each state after the dead one
	out     *automaton

	// Scratch space for the state under construction.
	visited []bool
	reached []uint32
	set     []uint32
	match   uint16
	name    []byte
}

// load appends the instructions of an expression and returns the index of the first.
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

func (b *builder) build(starts []uint32) {
	b.state(starts)
	for i := 0; i < len(b.sets); i++ {
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
}

// state returns the state for the instructions at pcs, and all that can be reached from
// them without reading a digit.
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

// closure adds the instruction at pc to the set, or those reachable from it without reading
// a digit.
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

// An affix is a sequence of digits that can be dialed before a number: the national
// prefix, with or without a carrier code, or an international prefix.
type affix struct {
	automaton   *automaton
	regexp      func() *regexp.Regexp
	replacement string // what takes the place of an affix of which a group, never empty, is captured; "" for nothing
}

// newAffix compiles an expression that is matched at the beginning of a number, with the
// syntax and the preferences of package regexp. Nothing has an affix of an empty expression.
func newAffix(expression, rule string) *affix {
	return &affix{
		automaton: newAutomaton(expression), replacement: rule,
		regexp: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^(?:" + expression + ")") }),
	}
}

// trim returns digits without the affix, and whether they had one. If only one prefix of
// the digits can be an affix and nothing replaces it, the affix is that prefix, whichever
// one package regexp would prefer.
func (a *affix) trim(digits string) (rest string, found bool) {
	count, length := a.automaton.countPrefixes(digits)
	sure := !a.automaton.loose && (a.replacement == "" || length == 0)
	switch {
	case count == 0:
		return digits, false
	case count == 1 && sure:
		return digits[length:], true
	}
	at := a.regexp().FindStringSubmatchIndex(digits)
	if at == nil {
		return digits, false
	}
	rest = digits[at[1]:]
	if lastGroup := at[len(at)-2]; a.replacement != "" && lastGroup >= 0 {
		rest = string(a.regexp().ExpandString(nil, a.replacement, digits, at)) + rest
	}
	return rest, true
}
