package config

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// A listed is a value of a list or the key of an override, with its position or the file
// that contains it.
type listed struct {
	list          string     // its name, if it is of a list
	limit         *limitForm // whose override it is; nil if it is of a list
	spec          *key.Spec
	at            Position
	text, written string // written is empty unless it names variables
	file          string
}

// secrets returns the secrets with which values of lists may be hashed.
func (p Privacy) secrets() [][]byte {
	var all [][]byte
	for _, secret := range []string{p.HashSecret, p.Previous} {
		if secret != "" {
			all = append(all, []byte(secret))
		}
	}
	return all
}

// Conceal returns b with the values of its lists and overrides hashed, so that it can be
// stored and sent where others may read it; comments in files of lists are removed. c is
// the result of Unpack. The hash uses privacy.hash_secret or, if there is none, the salt of
// served, or a new one. Addresses and networks are not hashed, because hashed networks
// could not be looked up. Hashed values are unchanged: the same files give the same Bundle.
//
// Problems report values that cannot be replaced at their position.
func (b Bundle) Conceal(c *Config, served *Bundle) (Bundle, error) {
	pepper := c.Privacy.pepper(served)
	hashed := Bundle{b.Main, maps.Clone(b.Files)}
	byFile := map[string][]listed{}
	for _, v := range c.values {
		if !v.spec.CanHash() || strings.Contains(v.written, "${") {
			continue
		}
		if v.file != "" {
			hashed.Files[v.file] = pepper.HashList(v.spec, b.Files[v.file])
			continue
		}
		byFile[v.at.File] = append(byFile[v.at.File], v)
	}
	var problems []Problem
	for name, values := range byFile {
		text, faults := concealed(pepper, b.Files[name], values)
		hashed.Files[name] = text
		problems = append(problems, faults...)
	}
	if len(problems) > 0 {
		return Bundle{}, Problems(form.Arrange(problems, form.SortedKeys(b.Files)))
	}
	return hashed, nil
}

// pepper returns the Pepper for the values.
func (p Privacy) pepper(served *Bundle) key.Pepper {
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
func concealed(pepper key.Pepper, text string, values []listed) (string, []Problem) {
	lines := strings.SplitAfter(text, "\n")
	slices.SortStableFunc(values, func(a, b listed) int { // the last first: places before it stay
		if a.at.Line != b.at.Line {
			return b.at.Line - a.at.Line
		}
		return b.at.Column - a.at.Column
	})
	var problems []Problem
	var last listed
	for _, v := range values {
		if v.at == last.at && v.spec == last.spec {
			continue // one value that two lists share
		}
		hash, err := pepper.HashValue(v.spec, v.text)
		line := lines[v.at.Line-1]
		from, to, ok := scalar(line, v)
		if err != nil || !ok || v.at == last.at {
			problems = append(problems, Problem{Position: v.at, What: "a value of a list, or one with overridden rates, cannot be hashed where it stands", Instead: "write it out there, in one line, or put the list into a file of its own"})
			continue
		}
		last = v
		if hash != v.text {
			lines[v.at.Line-1] = line[:from] + `"` + hash + `"` + line[to:]
		}
	}
	return strings.Join(lines, ""), problems
}

// scalar returns the position of value v in its line, if it ends on that line.
func scalar(line string, v listed) (from, to int, ok bool) {
	for range v.at.Column - 1 {
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
	rest, ok := strings.CutPrefix(line[from:], v.text)
	rest = strings.TrimLeft(rest, " \t\r\n")
	ends := ",]}#"
	if v.limit != nil {
		ends = ":"
	}
	return from, from + len(v.text), ok && (rest == "" && v.limit == nil || rest != "" && strings.ContainsAny(rest[:1], ends))
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

// hashedValues returns f for display: values of lists and overrides are hashed, so that the
// result can be loaded with the same effect.
func (c *Config) hashedValues(f file) file {
	salt := sha256.Sum256([]byte("salt of " + c.Hash))
	pepper := key.Salt(salt[:])
	specs, limits := map[string]*key.Spec{}, map[*limitForm]*key.Spec{}
	for _, v := range c.values {
		if v.limit != nil {
			limits[v.limit] = v.spec
		} else {
			specs[v.list] = v.spec
		}
	}
	hash := func(spec *key.Spec, text string) string {
		if spec == nil || !spec.CanHash() {
			return text
		}
		if hash, err := pepper.HashValue(spec, text); err == nil {
			return hash
		}
		return text
	}
	lists := map[string]*listForm{}
	for name, l := range f.Lists {
		shown := *l
		shown.Values = slices.Clone(l.Values)
		for i, text := range l.Values {
			shown.Values[i] = hash(specs[name], text)
		}
		lists[name] = &shown
	}
	f.Lists, f.Routes = lists, slices.Clone(f.Routes)
	for i, r := range f.Routes {
		shown := *r
		shown.Limits = slices.Clone(r.Limits)
		for j, l := range shown.Limits {
			one := *l
			one.Overrides = concealedOverrides(l, limits[l], func(text string) string { return hash(limits[l], text) })
			shown.Limits[j] = &one
		}
		f.Routes[i] = &shown
	}
	return f
}
