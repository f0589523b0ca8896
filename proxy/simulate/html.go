package simulate

import (
	_ "embed"
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
	}).Parse(pageText)
	if err != nil {
		return err
	}
	p := page{Report: r, Sides: []pageSide{newPageSide(r.Config, &r.Result)}}
	if r.Against != nil {
		p.Sides = append(p.Sides, newPageSide(r.Other, r.Against))
		p.Both = r.Differences()
	}
	return t.Execute(out, p)
}

// A page is the data of the template.
type page struct {
	*Report
	Sides []pageSide // one or two configurations
	Both  []view.SimulatedDifference
}

type pageSide struct {
	File string
	*proxy.ReplayTally
	Parts []pageRoute
}

type pageRoute struct {
	proxy.RouteTally
	More  []string
	Chart chart
	Rows  []pageLimit
}

type pageLimit struct {
	proxy.LimitTally
	Chart chart
}

func newPageSide(file string, t *proxy.ReplayTally) pageSide {
	s := pageSide{File: file, ReplayTally: t}
	steps := int(t.To.Sub(t.Start)/max(t.Step, 1)) + 1
	for _, rt := range t.Routes {
		part := pageRoute{RouteTally: rt, More: furtherResults(&rt), Chart: newChart(rt.Name, rt.Series, steps, t)}
		for _, l := range rt.Limits {
			name := view.LimitName(rt.Name, l.Name)
			part.Rows = append(part.Rows, pageLimit{l, newChart(name, l.Series, steps, t)})
		}
		s.Parts = append(s.Parts, part)
	}
	return s
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

func newChart(name string, s proxy.ReplaySeries, steps int, t *proxy.ReplayTally) chart {
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
	for i := range steps {
		low, high := at(s.Passed, i), at(s.Passed, i)+at(s.Refused, i)
		passed.WriteString(bar{x(i), x(i + 1), y(0), y(low)}.String())
		refused.WriteString(bar{x(i), x(i + 1), y(low), y(high)}.String())
	}
	c.Passed, c.Refused = passed.String(), refused.String()
	return c
}

// A bar is a rectangle; y increases downwards.
type bar struct{ left, right, bottom, top float64 }

// String returns the bar as an SVG path, or "" if it has no height.
func (b bar) String() string {
	if b.top >= b.bottom {
		return ""
	}
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	return "M" + f(b.left) + " " + f(b.bottom) + "V" + f(b.top) + "H" + f(b.right) + "V" + f(b.bottom) + "Z"
}

// groupDigits returns n with its digits in groups of three.
func groupDigits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}
