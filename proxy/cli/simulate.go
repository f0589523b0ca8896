package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/simulate"
)

type simulateCommand struct {
	Logs    []string `arg:"" name:"log" help:"Access logs, gzipped or not, in any order; - is standard input."`
	Config  string   `short:"c" help:"The configuration file; default: weir.yaml, then config.example.yaml." placeholder:"FILE"`
	Compare string   `help:"A second configuration to compare with." placeholder:"FILE"`
	Format  string   `default:"auto" enum:"auto,json,combined,common" help:"Log format: auto, json, combined or common."`
	Field   []string `sep:"none" help:"Field of JSON lines that holds WHAT: uri, client, header:X-Phone, json:/phone or the name of a key; may be given several times." placeholder:"WHAT=NAME"`
	Host    string   `help:"Host of requests, for logs without one." placeholder:"NAME"`
	Top     int      `default:"5" help:"Number of most refused keys to list for each limit; default: 5." placeholder:"N"`
	JSON    bool     `name:"json" help:"Print JSON." xor:"form"`
	HTML    string   `name:"html" help:"Write one HTML page with charts." placeholder:"FILE" xor:"form"`
}

// Run replays the logs and prints what each limit would have decided.
func (c simulateCommand) Run(ctx context.Context, w Env) error {
	o := simulate.Options{Format: simulate.Format(c.Format), Host: c.Host, Top: max(c.Top, 0)}
	var err error
	for i, file := range []string{c.Config, c.Compare} {
		if i > 0 && file == "" {
			break
		}
		read, err := load(file)
		if err != nil {
			return err
		}
		o.Configs = append(o.Configs, read)
	}
	if o.Names, err = simulate.NewNames(c.Field, o.Configs...); err != nil {
		return misuse{err}
	}
	bar := newProgress(w.Stderr)
	for i, name := range c.Logs {
		if slices.Index(c.Logs, name) < i {
			return misusef("%s is named twice; its requests would count twice", name)
		}
		in, size, err := w.open(name)
		if err != nil {
			return err
		}
		defer in.Close()
		log := io.Reader(in)
		if bar.size += size; size == 0 {
			log, bar.endless = endingWith(ctx, in), true
		}
		o.Logs = append(o.Logs, simulate.Log{Name: name, Reader: io.TeeReader(log, bar)})
	}
	defer debug.SetGCPercent(debug.SetGCPercent(simulateGCPercent))
	o.Progress = func(n simulate.Counts) { bar.show(n.Lines) }
	report, err := simulate.Run(ctx, o)
	bar.end()
	if err != nil {
		return err
	}
	other, _ := os.ReadFile(c.Compare) // it was loaded, if there is one
	report.LacksHidden(string(other))
	if err := c.write(report, w); err != nil {
		return err
	}
	switch {
	case report.Requests == 0:
		return errReported // by the report
	case report.IsUnordered():
		return errDoubt
	}
	return nil
}

// endingWith returns a reader of in that ends when ctx is done, even while in has nothing to read.
func endingWith(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	return r
}

// simulateGCPercent is the garbage that a simulation leaves between two collections, relative to its live
// heap: of millions of lines little but the counts stays, which should be what the memory is for.
const simulateGCPercent = 33

// write writes the report in the requested format.
func (c simulateCommand) write(r *simulate.Report, w Env) error {
	switch {
	case c.JSON:
		return printJSON(w, r, nil)
	case c.HTML != "":
		return writePage(c.HTML, r, w.Stdout)
	}
	r.Text(w.Stdout)
	return nil
}

// writePage writes the HTML page, and prints its path.
func writePage(path string, r *simulate.Report, out io.Writer) error {
	if path == "-" {
		return r.HTML(out)
	}
	f, err := os.Create(path)
	if err == nil {
		err = cmp.Or(r.HTML(f), f.Close())
	}
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	fmt.Fprintf(out, "%s: %d requests\n", path, r.Requests)
	return nil
}

// A progress shows on a terminal how far a command has come; elsewhere it shows nothing.
type progress struct {
	out     io.Writer // nil: nothing is shown
	size    int64     // bytes to be read
	endless bool      // there are more, nobody knows how many
	read    int64
	shown   time.Time
}

// progressWidth is that of the bar, in characters.
const progressWidth = 30

func newProgress(out io.Writer) *progress {
	if !isTerminal(out) {
		out = nil
	}
	return &progress{out: out}
}

// Write counts bytes that were read. It implements io.Writer for an io.TeeReader.
func (p *progress) Write(b []byte) (int, error) {
	p.read += int64(len(b))
	return len(b), nil
}

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
	if p.endless {
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
