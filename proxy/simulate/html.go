package simulate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/view"
)

//go:embed page.html
var pageText string

// HTML writes the report as a page without scripts and external resources.
func (r *Report) HTML(out io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"count": groupDigits,
		"known": func(n, unknown int64) string { return known(n, unknown, groupDigits) },
		"signed": func(a, b view.SimulatedSide, n, m int64) string {
			return change(n, m, a.Unknown+b.Unknown, groupDigits)
		},
		"minus": func(a, b int64) int64 { return a - b },
		"share": percentage, "join": func(s []string) string { return strings.Join(s, ", ") },
		"when": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"more": furtherResults, "limit": view.LimitName, "chart": newChart,
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(out, r)
}

const (
	chartWidth  = 720
	chartHeight = 120
)

// A chart is a bar chart over time of allowed and, stacked on top, refused requests, as SVG paths.
type chart struct {
	Name            string
	Passed, Refused string
	Width, Height   int
	Most            int64 // maximum of one step
	Step            time.Duration
	From, To        time.Time
	Empty           bool
}

// newChart returns the chart of a series of a configuration.
func newChart(of Result, name string, s proxy.ReplaySeries) chart {
	t := of.ReplayTally
	steps := int(t.To.Sub(t.Start)/max(t.Step, 1)) + 1
	c := chart{Name: name, Width: chartWidth, Height: chartHeight, Step: t.Step, From: t.Start, To: t.Start.Add(time.Duration(steps) * t.Step)}
	at := func(counts []int64, i int) int64 {
		if i < len(counts) {
			return counts[i]
		}
		return 0
	}
	for i := range steps {
		c.Most = max(c.Most, at(s.Passed, i)+at(s.Refused, i))
	}
	if c.Empty = c.Most == 0; c.Empty {
		return c
	}
	var passed, refused strings.Builder
	x := func(i int) float64 { return float64(i) * chartWidth / float64(steps) }
	y := func(n int64) float64 { return chartHeight - float64(n)*chartHeight/float64(c.Most) }
	bar := func(path *strings.Builder, i int, low, high int64) {
		if low < high {
			fmt.Fprintf(path, "M%.1f %.1fV%.1fH%.1fV%.1fZ", x(i), y(low), y(high), x(i+1), y(low))
		}
	}
	for i := range steps {
		low := at(s.Passed, i)
		bar(&passed, i, 0, low)
		bar(&refused, i, low, low+at(s.Refused, i))
	}
	c.Passed, c.Refused = passed.String(), refused.String()
	return c
}

// groupDigits returns n with its digits in groups of three.
func groupDigits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}
