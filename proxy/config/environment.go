package config

import (
	"fmt"
	"regexp"

	"gopkg.in/yaml.v3"
)

// dollar finds what may be meant for the environment, variable what is.
var (
	dollar   = regexp.MustCompile(`\$\$|\$\{[^}]*\}?|\$[A-Za-z0-9_]+`)
	variable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^${}]*))?\}$`)
	unquoted = regexp.MustCompile(`\$[{A-Za-z_]`)
)

// expand is the value of a scalar with the environment filled in: inside quotes
// ${NAME} is a variable, ${NAME:-text} one with a default for when it is unset
// or empty, and $$ a dollar. Whatever else looks like a variable is a problem:
// a secret that was meant to be one must not become the text "$TOKEN". What a
// variable holds is never looked at again, so it cannot add fields or variables.
func (d *decoder) expand(n *yaml.Node, p place) (string, bool) {
	if !quoted(n) {
		if unquoted.MatchString(n.Value) {
			d.add(p, "environment variables are replaced only in quotes", `write "${NAME}", or "$$" for a dollar`)
			return "", false
		}
		return n.Value, true
	}
	ok := true
	s := dollar.ReplaceAllStringFunc(n.Value, func(s string) string {
		if s == "$$" {
			return "$"
		}
		m := variable.FindStringSubmatch(s)
		if m == nil {
			d.add(p, fmt.Sprintf("%q is not the syntax of a variable", s), "write ${NAME} or ${NAME:-default}, or $$ for a dollar")
			ok = false
			return ""
		}
		value, set := d.env(m[1])
		switch {
		case m[2] != "" && value == "":
			return m[3]
		case !set:
			d.add(p, "the environment variable "+m[1]+" is not set", "set it, or write ${"+m[1]+":-default}")
			ok = false
		}
		return value
	})
	return s, ok
}

// quoted reports whether n stands in quotes.
func quoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
}
