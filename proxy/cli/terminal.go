package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// A palette colours text for a terminal. The zero palette leaves it unchanged.
type palette struct{ on bool }

// newPalette returns a palette for out. It is empty if out is not a terminal,
// if NO_COLOR is set (no-color.org) or TERM is dumb.
func newPalette(out io.Writer) palette {
	return palette{isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p palette) good(s string) string { return p.in("32", s) }
func (p palette) bad(s string) string  { return p.in("31", s) }
func (p palette) mild(s string) string { return p.in("33", s) }
func (p palette) head(s string) string { return p.in("1", s) }

func (p palette) in(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// A fact is told if it holds.
type fact struct {
	holds bool
	text  string
}

// holding returns the texts of the facts that hold, without empty ones.
func holding(facts ...fact) (texts []string) {
	for _, f := range facts {
		if f.holds && f.text != "" {
			texts = append(texts, f.text)
		}
	}
	return texts
}

// plural returns n and what, with an s unless n is 1.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}
