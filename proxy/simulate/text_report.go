package simulate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// Text writes the report as text for a terminal.
func (r *Report) Text(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintf(t, "%d lines, %d requests", r.Lines, r.Requests)
	if r.Requests > 0 {
		fmt.Fprintf(t, " from %s to %s", r.Result.From.UTC().Format(time.RFC3339), r.Result.To.UTC().Format(time.RFC3339))
	}
	fmt.Fprintln(t)
	if r.Others > 0 {
		fmt.Fprintf(t, "%d lines are not requests\n", r.Others)
	}
	notes := r.Notes
	if r.IsUnordered() {
		fmt.Fprintf(t, "warning: %s\n", notes[0])
		notes = notes[1:]
	}
	if r.Against == nil {
		r.writeOne(t, &r.Result)
	} else {
		r.writeComparison(t)
	}
	t.Flush()
	if len(notes) > 0 {
		fmt.Fprintln(t)
	}
	for _, n := range notes {
		fmt.Fprintf(t, "note: %s\n", n)
	}
}

// known formats n, to which an unknown number of requests may have to be added: 7, or ? if nothing is
// known, or 7+? for at least 7.
func known(n, unknown int64, format func(int64) string) string {
	switch {
	case unknown == 0:
		return format(n)
	case n == 0:
		return "?"
	}
	return format(n) + "+?"
}

// change formats b-a with its sign; ? if it is unknown.
func change(a, b, unknown int64, format func(int64) string) string {
	switch {
	case unknown > 0:
		return "?"
	case b > a:
		return "+" + format(b-a)
	}
	return format(b - a)
}

func plain(n int64) string { return strconv.FormatInt(n, 10) }

// writeOne writes the result of one configuration.
func (r *Report) writeOne(t *tabwriter.Writer, tally *proxy.ReplayTally) {
	if tally.Unknown == 0 {
		fmt.Fprintf(t, "%d passed, %d refused by limits (%s)\n", tally.Passed, tally.Refused, percentage(tally.Refused, tally.Requests))
	} else {
		fmt.Fprintf(t, "no total: of %d requests the log does not tell whether a limit refuses them (?); at least %d passed, %d refused by limits\n", tally.Unknown, tally.Passed-tally.Unknown, tally.Refused)
	}
	fmt.Fprintf(t, "\nROUTE\tLIMIT\tRATE\tMODE\tPASSED\tREFUSED\tSHADOWED\tSKIPPED\tUNKNOWN\n")
	for _, rt := range tally.Routes {
		if rt.Name == "" {
			fmt.Fprintf(t, "of several routes\t\t\t\t\t\t\t\t\n")
		} else {
			fmt.Fprintf(t, "%s\t\t\t\t%s\t%s\t\t\t\n", rt.Name, known(rt.Passed-rt.Unknown, rt.Unknown, plain), known(rt.Refused, rt.Unknown, plain))
		}
		for _, l := range rt.Limits {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", shortly(l.Routes), l.Name, strings.Join(l.Rates, " "), l.Mode,
				known(l.Passed, l.Unknown, plain), known(l.Refused, l.Unknown, plain), known(l.Shadowed, l.Unknown, plain), l.Skipped, l.Unknown)
		}
	}
	t.Flush()
	for _, rt := range tally.Routes {
		for _, line := range furtherResults(&rt) {
			fmt.Fprintf(t, "%s: %s\n", rt.Name, line)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(tally.Unmatched)) {
		fmt.Fprintf(t, "no route: %d: %s\n", tally.Unmatched[reason], reason)
	}
	for _, rt := range tally.Routes {
		for _, l := range rt.Limits {
			writeTopKeys(t, proxy.LimitName(rt.Name, l.Name), &l)
		}
	}
}

// maxRoutes is the number of routes of a limit that are named.
const maxRoutes = 3

// shortly returns the first of the routes of a limit.
func shortly(routes []string) string {
	if len(routes) <= maxRoutes {
		return strings.Join(routes, ", ")
	}
	return strings.Join(routes[:maxRoutes], ", ") + fmt.Sprintf(" and %d more", len(routes)-maxRoutes)
}

// furtherResults returns further results of a route.
func furtherResults(rt *proxy.RouteTally) (lines []string) {
	for _, reason := range slices.Sorted(maps.Keys(rt.Rejected)) {
		lines = append(lines, fmt.Sprintf("%d rejected: %s", rt.Rejected[reason], reason))
	}
	for _, list := range slices.Sorted(maps.Keys(rt.Listed)) {
		lines = append(lines, fmt.Sprintf("%d on the list %s", rt.Listed[list], list))
	}
	for _, c := range []struct {
		n    int64
		what string
	}{
		{rt.Waited, "waited for a permit"}, {rt.Repeated, "repeats that are not counted"},
		{rt.Returned, "refunded because of their outcome"}, {rt.Banned, "started a ban"},
	} {
		if c.n > 0 {
			lines = append(lines, strconv.FormatInt(c.n, 10)+" "+c.what)
		}
	}
	return lines
}

// writeTopKeys writes the keys that a limit refuses most.
func writeTopKeys(t *tabwriter.Writer, name string, l *proxy.LimitTally) {
	if len(l.Top) == 0 {
		return
	}
	fmt.Fprintf(t, "\n%s, most refused", name)
	if l.TopError > 0 {
		fmt.Fprintf(t, " (each may be up to %d more)", l.TopError)
	}
	fmt.Fprintln(t)
	for _, k := range l.Top {
		fmt.Fprintf(t, "  %d\t%s\n", k.Refused, k.Key)
	}
	t.Flush()
}

// writeComparison writes the results of two configurations side by side.
func (r *Report) writeComparison(t *tabwriter.Writer) {
	fmt.Fprintf(t, "A is %s, B is %s\n", r.Config, r.Other)
	fmt.Fprintf(t, "\nROUTE\tLIMIT\tRATE A\tRATE B\tREFUSED A\tREFUSED B\tDIFFERENCE\tSHADOWED A\tSHADOWED B\tDIFFERENCE\tUNKNOWN A\tUNKNOWN B\n")
	all := []Difference{{Route: "all", A: Side{There: true, Refused: r.Result.Refused, Unknown: r.Result.Unknown}, B: Side{There: true, Refused: r.Against.Refused, Unknown: r.Against.Unknown}}}
	for _, d := range append(all, r.Differences()...) {
		a, b := d.A, d.B
		unknown := a.Unknown + b.Unknown
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", d.Route, d.Limit, a.rates(), b.rates(),
			known(a.Refused, a.Unknown, plain), known(b.Refused, b.Unknown, plain), change(a.Refused, b.Refused, unknown, plain),
			known(a.Shadowed, a.Unknown, plain), known(b.Shadowed, b.Unknown, plain), change(a.Shadowed, b.Shadowed, unknown, plain), a.Unknown, b.Unknown)
	}
	t.Flush()
}

// A Difference compares a route, or with Limit set a limit, in two configurations.
type Difference struct {
	Route, Limit string
	A, B         Side
}

// A Side is the result of one configuration.
type Side struct {
	There                              bool // the configuration has this route or limit
	Rates                              []string
	Passed, Refused, Shadowed, Unknown int64
}

func (s Side) rates() string {
	if !s.There {
		return "none"
	}
	return strings.Join(s.Rates, " ")
}

// Differences returns the routes and limits of both configurations, in the order of the first;
// those that only the second has follow.
func (r *Report) Differences() []Difference {
	var all []Difference
	at := map[[2]string]int{}
	for i, t := range r.results() {
		put := func(route, limit string, s Side) {
			k := [2]string{route, limit}
			if _, known := at[k]; !known {
				at[k] = len(all)
				all = append(all, Difference{Route: route, Limit: limit})
			}
			if i == 0 {
				all[at[k]].A = s
			} else {
				all[at[k]].B = s
			}
		}
		for _, rt := range t.Routes {
			if rt.Name != "" {
				put(rt.Name, "", Side{There: true, Passed: rt.Passed - rt.Unknown, Refused: rt.Refused, Unknown: rt.Unknown})
			}
			for _, l := range rt.Limits {
				put(rt.Name, l.Name, Side{true, l.Rates, l.Passed, l.Refused, l.Shadowed, l.Unknown})
			}
		}
	}
	return all
}

// percentage returns n as a percentage of all.
func percentage(n, all int64) string {
	if all == 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*float64(n)/float64(all), 'f', 2, 64) + " %"
}
