package key

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"sync"
)

// An affix is a sequence of digits that can be dialled before a number: the national
// prefix, with or without a carrier code, or an international prefix.
type affix struct {
	quick *automaton // nil if there is no affix
	exact func() *regexp.Regexp
	rule  string // what takes the place of an affix of which a group is captured; "" for nothing
	// empty is true if a group can capture the empty string.
	empty bool
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
		quick: quick, rule: rule, empty: capturesEmpty(parsed),
		exact: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^(?:" + expression + ")") }),
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

// cut returns digits without the affix, and whether they had one. If only one beginning of
// the digits can be an affix and nothing replaces it, the affix is that beginning,
// whichever one package regexp would prefer.
func (a *affix) cut(digits string) (rest string, found bool) {
	if a.quick == nil {
		return digits, false
	}
	count, length := a.quick.begins(digits)
	sure := !a.quick.loose && (a.rule == "" || length == 0 && !a.empty)
	switch {
	case count == 0:
		return digits, false
	case count == 1 && sure:
		return digits[length:], true
	}
	at := a.exact().FindStringSubmatchIndex(digits)
	if at == nil {
		return digits, false
	}
	rest = digits[at[1]:]
	if lastGroup := at[len(at)-2]; a.rule != "" && lastGroup >= 0 {
		rest = string(a.exact().ExpandString(nil, a.rule, digits, at)) + rest
	}
	return rest, true
}
