package cli

import (
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// isTerminal reports whether people read out as it is written.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// A palette colours words for a terminal. The zero palette leaves them as they are.
type palette struct{ on bool }

// newPalette is a palette for out: on a terminal, unless NO_COLOR is set
// (no-color.org), or the terminal says that it is none.
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
