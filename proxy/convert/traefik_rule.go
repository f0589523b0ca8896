package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A ruleMatch is the match of a route for a rule of Traefik.
type ruleMatch struct {
	fields mapping
	prefix string // of a PathPrefix that also takes what is not below it; may be empty
}

// A matcher is one condition of a rule, as in PathPrefix(`/api`).
type matcher struct {
	name string
	args []string
}

// maxMatches bounds the routes of one rule.
const maxMatches = 64

// errRule reports a rule that is not one.
var errRule = errors.New("it is not understood")

// parseRule returns the matches of a rule, one for each alternative.
func parseRule(rule string) ([]ruleMatch, error) {
	p := &ruleParser{rest: rule}
	alternatives, err := p.either(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.rest != "" {
		return nil, errRule
	}
	var made []ruleMatch
	for _, a := range alternatives {
		matches, err := matchesOf(a)
		if err != nil {
			return nil, err
		}
		made = append(made, matches...)
	}
	if len(made) > maxMatches {
		return nil, fmt.Errorf("it has more than %d alternatives", maxMatches)
	}
	return made, nil
}

// A ruleParser parses conditions joined by && and ||, and returns them as alternatives of
// conditions that all hold.
type ruleParser struct{ rest string }

func (p *ruleParser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// take skips a token and reports whether it was there.
func (p *ruleParser) take(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return ok
}

// either parses alternatives.
func (p *ruleParser) either(depth int) ([][]matcher, error) {
	all, err := p.both(depth)
	for err == nil && p.take("||") {
		var more [][]matcher
		more, err = p.both(depth)
		all = append(all, more...)
	}
	return all, err
}

// both parses conditions that all hold.
func (p *ruleParser) both(depth int) ([][]matcher, error) {
	all, err := p.one(depth)
	for err == nil && p.take("&&") {
		var more, joined [][]matcher
		if more, err = p.one(depth); err != nil {
			break
		}
		for _, a := range all {
			for _, b := range more {
				joined = append(joined, slices.Concat(a, b))
			}
		}
		if len(joined) > maxMatches {
			return nil, fmt.Errorf("it has more than %d alternatives", maxMatches)
		}
		all = joined
	}
	return all, err
}

// one parses a condition, or a rule in parentheses.
func (p *ruleParser) one(depth int) ([][]matcher, error) {
	switch {
	case depth > maxDepth:
		return nil, errRule
	case p.take("!"):
		return nil, errors.New("routes have no condition with !")
	case p.take("("):
		all, err := p.either(depth + 1)
		if err == nil && !p.take(")") {
			err = errRule
		}
		return all, err
	}
	name, rest, ok := strings.Cut(p.rest, "(")
	if !ok {
		return nil, errRule
	}
	m := matcher{name: strings.TrimSpace(name)}
	p.rest = rest
	for !p.take(")") {
		p.take(",")
		p.space()
		if p.rest == "" || strings.IndexByte("`\"'", p.rest[0]) < 0 {
			return nil, errRule
		}
		value, rest, ok := strings.Cut(p.rest[1:], p.rest[:1])
		if !ok {
			return nil, errRule
		}
		m.args, p.rest = append(m.args, value), rest
	}
	if len(m.args) == 0 {
		return nil, errRule
	}
	return [][]matcher{{m}}, nil
}

// matchesOf returns the matches for conditions that all hold: one for each host and path.
func matchesOf(all []matcher) ([]ruleMatch, error) {
	hosts, paths, prefix := []string{""}, []string{"/*"}, false
	var methods []string
	var headers, query mapping
	seen := map[string]bool{}
	for _, m := range all {
		kind := strings.TrimSuffix(m.name, "Prefix")
		if seen[kind] && kind != "Header" && kind != "Headers" && kind != "Query" {
			return nil, fmt.Errorf("it has two conditions on %s", kind)
		}
		seen[kind] = true
		switch m.name {
		case "Host":
			hosts = m.args
		case "Method":
			methods = m.args
		case "Path", "PathPrefix":
			paths, prefix = rulePaths(m), m.name == "PathPrefix"
		case "Header", "Headers":
			if len(m.args) != 2 {
				return nil, errRule
			}
			headers.set(text(m.args[0]), text(m.args[1]))
		case "Query":
			for _, arg := range queryArgs(m.args) {
				name, value, _ := strings.Cut(arg, "=")
				query.set(text(name), text(value))
			}
		default:
			return nil, fmt.Errorf("routes have no condition %s", m.name)
		}
	}
	if len(paths) == 0 {
		return nil, errors.New("Weir has no such path")
	}
	var made []ruleMatch
	for _, host := range hosts {
		for _, path := range paths {
			var f mapping
			f.set("methods", texts(methods))
			f.set("host", quoted(host))
			f.set("path", text(path))
			if len(headers) > 0 {
				f.set("headers", headers.flow())
			}
			if len(query) > 0 {
				f.set("query", query.flow())
			}
			one := ruleMatch{fields: f}
			if prefix && !strings.HasSuffix(path, "*") {
				one.prefix = path
			}
			made = append(made, one)
		}
	}
	return made, nil
}

// rulePaths returns the paths of Path or PathPrefix; none if Weir has none.
func rulePaths(m matcher) []string {
	var paths []string
	for _, arg := range m.args {
		modifier := "="
		if m.name == "PathPrefix" {
			modifier = "^~"
		}
		own, why := nginxPaths([]string{modifier, arg})
		if why != "" {
			return nil
		}
		paths = append(paths, own...)
	}
	return paths
}

// queryArgs returns the arguments of Query as NAME=VALUE, as version 2 of Traefik has them.
func queryArgs(args []string) []string {
	if len(args) == 2 && !strings.Contains(args[0], "=") {
		return []string{args[0] + "=" + args[1]}
	}
	return args
}
