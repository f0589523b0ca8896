package scripts

import (
	"regexp"
	"strings"
	"unicode"
)

// A chunk of a text is a function with the comment above it, or what stands between two functions.
type chunk struct {
	name   string // of the function; empty for what is none
	text   string
	body   string
	inline bool // it has no parameters, and returns nothing
}

var head = regexp.MustCompile(`^(?:local function |function functions\.)(\w+)\((.*?)\)(.*)\n$`)

// split splits text into chunks.
func split(text string) (all []chunk) {
	var comments string
	var c chunk
	for line := range strings.Lines(text) {
		switch {
		case c.name != "" && line != "end\n":
			c.text, c.body = c.text+line, c.body+line
		case c.name != "":
			all, c = append(all, c.end(line)), chunk{}
		case strings.HasPrefix(line, "--"):
			comments += line
		case strings.HasPrefix(line, "local function "), strings.HasPrefix(line, "function functions."):
			found := head.FindStringSubmatch(line)
			all, c = append(all, c), chunk{name: found[1], text: comments + line, inline: found[2] == ""}
			if body, one := strings.CutSuffix(found[3], " end"); one {
				c.body = " " + body + "\n"
				all, c = append(all, c.end("")), chunk{}
			}
			comments = ""
		default:
			c.text, c.body, comments = c.text+comments+line, c.body+line, ""
		}
	}
	return append(all, c)
}

// end returns c, whose last line is line.
func (c chunk) end(line string) chunk {
	c.text += line
	c.inline = c.inline && !strings.Contains(c.body, "return ")
	return c
}

// inline puts the bodies of functions without parameters in place of the lines that call them. The text does the
// same without that, but slower: a call that passes values costs as much as the work that it does. A function that
// returns something stays one.
func inline(text string) string {
	bodies := map[string]string{}
	expand := func(text string) string {
		var out strings.Builder
		for line := range strings.Lines(text) {
			name := strings.TrimLeft(line, " ")
			indent := line[:len(line)-len(name)]
			if body, known := bodies[strings.TrimSuffix(name, "()\n")]; known {
				line = indent + "do\n" + indent + strings.ReplaceAll(body, "\n", "\n"+indent) + "end\n"
			}
			out.WriteString(line)
		}
		return out.String()
	}
	for _, c := range split(text) {
		if c.inline {
			bodies[c.name] = expand(c.body)
		}
	}
	return expand(text)
}

// used returns text without the functions that it never calls.
func used(text string) string {
	chunks, bodies, known := split(text), map[string]string{}, map[string]bool{}
	for _, c := range chunks {
		bodies[c.name] += c.body
	}
	for pending := []string{""}; len(pending) > 0; pending = pending[1:] {
		for line := range strings.Lines(bodies[pending[0]]) {
			line, _, _ = strings.Cut(line, "--")
			if names, values, _ := strings.Cut(line, "="); strings.HasPrefix(names, "local ") {
				line = values // to declare is not to call
			}
			for _, word := range strings.FieldsFunc(line, isBetweenWords) {
				if !known[word] {
					known[word], pending = true, append(pending, word)
				}
			}
		}
	}
	var out strings.Builder
	for _, c := range chunks {
		if c.name == "" || known[c.name] {
			out.WriteString(c.text)
		}
	}
	return out.String()
}

func isBetweenWords(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }
