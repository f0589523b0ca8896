package key

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"sync"
)

// An affix is a sequence of digits that can be dialed before a number: the national
// prefix, with or without a carrier code, or an international prefix.
type affix struct {
	automaton   *automaton // nil if there is no affix
	regexp      func() *regexp.Regexp
	replacement string // what takes the place of an affix of which a group is captured; "" for nothing
	// capturesEmpty is true if a group can capture the empty string.
	capturesEmpty bool
}

// newAffix compiles an expression that is matched at the beginning of a number, with the
// syntax and the preferences of package regexp.
func newAffix(expression, rule string) (*affix, error) {
	if expression == "" {
		return &affix{}, nil
	}
	quick, err := newAutomaton(expression)
	if err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("read affix: %w", err)
	}
	return &affix{
		automaton: quick, replacement: rule, capturesEmpty: capturesEmpty(parsed),
		regexp: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^(?:" + expression + ")") }),
	}, nil
}

// capturesEmpty reports whether a group of re matches the empty string.
func capturesEmpty(re *syntax.Regexp) bool {
	if re.Op == syntax.OpCapture {
		inside, err := newAutomaton("(?:" + re.Sub[0].String() + ")")
		if err != nil || inside.match("") != 0 {
			return true
		}
	}
	return slices.ContainsFunc(re.Sub, capturesEmpty)
}

// trim returns digits without the affix, and whether they had one. If only one prefix of
// the digits can be an affix and nothing replaces it, the affix is that prefix, whichever
// one package regexp would prefer.
func (a *affix) trim(digits string) (rest string, found bool) {
	if a.automaton == nil {
		return digits, false
	}
	count, length := a.automaton.countPrefixes(digits)
	sure := !a.automaton.loose && (a.replacement == "" || length == 0 && !a.capturesEmpty)
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
