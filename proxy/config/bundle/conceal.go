package bundle

import (
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// Conceal returns b with the values of lists and overrides hashed whose keys are sensitive, so
// that it can be stored and sent where others may read it; comments in files of such lists are
// removed. c is
// the result of Unpack. The hash uses privacy.hash_secret or, if there is none, the salt of
// served, or a new one. Addresses and networks are not hashed, because hashed networks
// could not be looked up. Hashed values are unchanged: the same files give the same Bundle.
//
// Problems report values that cannot be replaced at their position.
func (b Bundle) Conceal(c *config.Config, served *Bundle) (Bundle, error) {
	pepper := pepperFor(c.Privacy, served)
	hashed := Bundle{b.Main, maps.Clone(b.Files)}
	byFile := map[string][]config.Value{}
	for _, v := range c.Values() {
		if !v.IsConcealed() || strings.Contains(v.Written, "${") {
			continue
		}
		if v.File != "" {
			hashed.Files[v.File] = pepper.HashList(v.Spec, b.Files[v.File])
			if v.Named {
				hashed.Files[v.File] = pepper.HashNames(v.Spec, b.Files[v.File])
			}
			continue
		}
		byFile[v.Position.File] = append(byFile[v.Position.File], v)
	}
	var problems []config.Problem
	for name, values := range byFile {
		text, faults := concealed(pepper, b.Files[name], values)
		hashed.Files[name] = text
		problems = append(problems, faults...)
	}
	if len(problems) > 0 {
		return Bundle{}, config.Problems(form.Arrange(problems, form.SortedKeys(b.Files)))
	}
	return hashed, nil
}

// pepperFor returns the Pepper for the values.
func pepperFor(p config.Privacy, served *Bundle) key.Pepper {
	if p.HashSecret != "" {
		return key.NewPepper([]byte(p.HashSecret))
	}
	if served != nil {
		for _, name := range form.SortedKeys(served.Files) {
			if salt, ok := key.SaltOf(served.Files[name]); ok {
				return salt
			}
		}
	}
	salt := make([]byte, 16)
	rand.Read(salt)
	return key.Salt(salt)
}

// concealed returns the text of a file with its values hashed in place.
func concealed(pepper key.Pepper, text string, values []config.Value) (string, []config.Problem) {
	lines := strings.SplitAfter(text, "\n")
	slices.SortStableFunc(values, func(a, b config.Value) int { // the last first: places before it stay
		if a.Position.Line != b.Position.Line {
			return b.Position.Line - a.Position.Line
		}
		return b.Position.Column - a.Position.Column
	})
	var problems []config.Problem
	var last config.Value
	for _, v := range values {
		if v.Position == last.Position && v.Spec == last.Spec {
			continue // one value that two lists share
		}
		hash, err := pepper.HashValue(v.Spec, v.Text)
		line := lines[v.Position.Line-1]
		from, to, ok := scalar(line, v)
		if err != nil || !ok || v.Position == last.Position {
			problems = append(problems, config.Problem{Position: v.Position, What: "a value of a list, or one with overridden rates, cannot be hashed where it stands", Instead: "write it out there, in one line, or put the list into a file of its own"})
			continue
		}
		last = v
		if hash != v.Text {
			lines[v.Position.Line-1] = line[:from] + `"` + hash + `"` + line[to:]
		}
	}
	return strings.Join(lines, ""), problems
}

// scalar returns the position of value v in its line, if it ends on that line.
func scalar(line string, v config.Value) (from, to int, ok bool) {
	for range v.Position.Column - 1 {
		_, size := utf8.DecodeRuneInString(line[from:])
		from += size
	}
	if from >= len(line) {
		return 0, 0, false
	}
	if line[from] == '"' || line[from] == '\'' {
		to = quoteEnd(line, from)
		return from, to, to > 0
	}
	rest, ok := strings.CutPrefix(line[from:], v.Text)
	rest = strings.TrimLeft(rest, " \t\r\n")
	ends := ",]}#"
	if v.List == "" {
		ends = ":"
	}
	return from, from + len(v.Text), ok && (rest == "" && v.List != "" || rest != "" && strings.ContainsAny(rest[:1], ends))
}

// quoteEnd returns the end of the quoted scalar that begins at from; 0 if it does not end
// on this line.
func quoteEnd(line string, from int) int {
	for i := from + 1; i < len(line); i++ {
		switch {
		case line[i] == '\\' && line[from] == '"':
			i++
		case line[i] == '\'' && line[from] == '\'' && i+1 < len(line) && line[i+1] == '\'':
			i++
		case line[i] == line[from]:
			return i + 1
		}
	}
	return 0
}
