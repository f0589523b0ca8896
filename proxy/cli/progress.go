package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A progress shows on a terminal how far a command has come; elsewhere it shows nothing.
type progress struct {
	out   io.Writer // nil: nothing is shown
	size  int64     // bytes to be read; 0 if that is not known
	read  int64
	shown time.Time
}

// progressWidth is that of the bar, in characters.
const progressWidth = 30

func newProgress(out io.Writer, size int64) *progress {
	if !isTerminal(out) {
		return &progress{size: size}
	}
	return &progress{out: out, size: size}
}

// A progressReader updates a progress bar with the bytes read.
type progressReader struct {
	io.Reader
	bar *progress
}

func (p progressReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.bar.read += int64(n)
	return n, err
}

// count has what is read from r counted.
func (p *progress) count(r io.Reader) io.Reader { return progressReader{r, p} }

// show shows that so many lines were read, ten times a second at most.
func (p *progress) show(lines int64) {
	if p.out == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	fmt.Fprint(p.out, "\r"+p.line(lines)+"\x1b[K")
}

// line is the bar, or without a known end how many lines there were.
func (p *progress) line(lines int64) string {
	if p.size == 0 {
		return fmt.Sprintf("%d lines", lines)
	}
	done := min(float64(p.read)/float64(p.size), 1)
	full := int(done * progressWidth)
	return fmt.Sprintf("[%s%s] %3.0f %%  %d lines", strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full), 100*done, lines)
}

// end removes the bar.
func (p *progress) end() {
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
