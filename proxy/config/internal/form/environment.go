package form

import (
	"fmt"
	"regexp"

	"gopkg.in/yaml.v3"
)

// dollar matches everything that could be meant as a variable, variable the valid syntax.
var (
	dollar   = regexp.MustCompile(`\$\$|\$\{[^}]*\}?|\$[A-Za-z0-9_]+`)
	variable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^${}]*))?\}$`)
	unquoted = regexp.MustCompile(`\$[{A-Za-z_]`)
)

// expand returns the value of a scalar with environment variables replaced: in quotes,
// ${NAME} is a variable, ${NAME:-text} one with a default if it is unset or empty, and $$ a
// dollar sign. Everything else that looks like a variable is a problem, so that a secret is
// not silently set to the text "$TOKEN". Values of variables are not expanded or parsed
// again, so they cannot add fields.
func (d *decoder) expand(n *yaml.Node, p Location) (string, bool) {
	if !quoted(n) {
		if unquoted.MatchString(n.Value) {
			d.Add(p, "environment variables are replaced only in quotes", `write "${NAME}", or "$$" for a dollar`)
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
			d.Add(p, fmt.Sprintf("%q is not the syntax of a variable", s), "write ${NAME} or ${NAME:-default}, or $$ for a dollar")
			ok = false
			return ""
		}
		value, set := d.env(m[1])
		switch {
		case m[2] != "" && value == "":
			return m[3]
		case !set:
			d.Add(p, "the environment variable "+m[1]+" is not set", "set it, or write ${"+m[1]+":-default}")
			ok = false
		}
		return value
	})
	return s, ok
}

// quoted reports whether n is quoted.
func quoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
}
