package simulate

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// manyKeys is the number of keys from which new keys may share counts in a memory store.
const manyKeys = 500_000

// A Report is the result of a simulation.
type Report struct {
	Counts
	Took   time.Duration     `json:"-"`
	Config string            `json:"config"` // the file of the configuration
	Result proxy.ReplayTally `json:"result"`
	// Against is the result of the other configuration, and Other its file.
	Other   string             `json:"other,omitempty"`
	Against *proxy.ReplayTally `json:"against,omitempty"`
	own     bool               // a line is of Weir's own log
	Notes   []string           `json:"notes"` // limitations of the result, and what to log to avoid them
}

// IsUnordered reports whether so many requests are evaluated later than they arrived, more than 1 %,
// that the result is wrong.
func (r *Report) IsUnordered() bool { return r.Late*100 > r.Requests }

func newReport(o Options, read *mergeReader, replays []*proxy.Replay, took time.Duration) *Report {
	r := &Report{Counts: read.Counts, Took: took, own: read.own, Config: o.Configs[0].Files[0], Result: replays[0].Finish()}
	if len(o.Configs) > 1 {
		r.Other, r.Against = o.Configs[1].Files[0], new(replays[1].Finish())
	}
	r.Notes = r.notes(o, read.origins)
	return r
}

// notes returns what data the log lacks, and what to do about it. seen are the origins of the data that it has.
func (r *Report) notes(o Options, seen map[key.Origin]bool) []string {
	switch {
	case r.Lines == 0:
		return []string{"the log is empty"}
	case r.Requests == 0:
		return []string{"no line is a request: is this an access log? If its JSON has other field names, name them with --field method=NAME, uri=NAME, time=NAME and so on"}
	}
	notes := view.Holding(
		view.Fact{Holds: r.IsUnordered(), Text: "the result is wrong: " + r.late()}, // first: Text prints it above the result
		view.Fact{Holds: r.Malformed > 0, Text: fmt.Sprintf("%d lines cannot be parsed and are ignored", r.Malformed)},
		view.Fact{Holds: r.Late > 0 && !r.IsUnordered(), Text: r.late()},
		view.Fact{Holds: r.Samples > 0, Text: fmt.Sprintf("%d lines stand for several requests each (access_log.sample), of which one is evaluated: limits would refuse more", r.Samples)},
		view.Fact{Holds: r.TooMany > 0, Text: fmt.Sprintf("%d requests have the status 429 in the log; if they are allowed here, that counts as the response of the upstream", r.TooMany)},
	)
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	missing := map[string]int64{}
	for i, t := range r.Results() {
		if o.Configs[i].Store == config.StoreMemory && t.Keys > manyKeys {
			say("%s: %d keys have counts at the end; with store: memory, new keys share counts when memory is full, and may be refused because of other keys: see go doc ./limiter Memory", t.File, t.Keys)
		}
		if o.MaxKeys > 0 && t.Keys >= o.MaxKeys/2 { // from here on a client's new keys share counts
			say("%s: %d keys have counts at the end, which almost fills the memory of this simulation: new keys may share counts, and be refused because of other keys; weir simulate on the command line has more memory", t.File, t.Keys)
		}
		own := map[string]int64{}
		for _, rt := range t.Routes {
			for _, l := range rt.Limits {
				if l.Unknown > 0 {
					own[strings.Join(l.Missing, ", ")] += l.Unknown
				}
			}
			if rt.Unlisted > 0 {
				say("route %s: %d requests are not checked against all its lists, because the log lacks their keys", rt.Name, rt.Unlisted)
			}
		}
		for places, n := range own { // of both configurations, not added
			missing[places] = max(missing[places], n)
		}
	}
	lacks := map[string][]string{} // by what to do about it
	for _, places := range slices.Sorted(maps.Keys(missing)) {
		lacks[r.advice(places)] = append(lacks[r.advice(places)], fmt.Sprintf("%s: %d", places, missing[places]))
	}
	for _, advice := range slices.Sorted(maps.Keys(lacks)) {
		say("the log lacks %s decisions of limits are unknown; %s", strings.Join(lacks[advice], "; "), advice)
	}
	return slices.Compact(slices.Concat(notes, r.missingFields(o), unmatchedRoutes(o, seen)))
}

// late says what happens to late requests, and what to do about them.
func (r *Report) late() string {
	return fmt.Sprintf("%d of %d requests are more than %s, or %d lines, behind later ones, and are evaluated at the time of the previous line: name each file of the log, in any order, or sort the log by time", r.Late, r.Requests, view.Duration(maxDelay), maxPending)
}

// missingFields returns notes about data that is missing in the whole log.
func (r *Report) missingFields(o Options) []string {
	held, hosts, challenges := false, false, false
	for _, c := range o.Configs {
		for _, rt := range c.Routes {
			hosts = hosts || rt.Match.Host != ""
			for _, l := range rt.Limits {
				held = held || l.Algorithm.HasLeases()
				challenges = challenges || l.Mode == config.Enforce && l.StepUp != nil
			}
		}
	}
	return view.Holding(
		view.Fact{Holds: held && r.Untimed > 0, Text: fmt.Sprintf("the log lacks the duration of %d requests: limits on concurrent requests do not count them; log the duration ($request_time in nginx, %%D in Apache)", r.Untimed)},
		view.Fact{Holds: challenges, Text: "a log does not tell who would have solved a challenge: each request that a limit with step_up refuses counts as refused"},
		view.Fact{Holds: hosts && r.Hostless > 0 && o.Host == "", Text: fmt.Sprintf("the log lacks the host of %d requests, for which localhost is assumed: log it ($host in nginx, %%v in Apache), or set --host NAME", r.Hostless)},
	)
}

// notShown matches what config.Config.Effective has in place of values of sensitive keys.
var notShown = regexp.MustCompile(`# (\d+), not shown`)

// LacksHidden adds a note to r if the configuration that it was compared with lacks values because it was copied from one that
// is shown.
func (r *Report) LacksHidden(text string) {
	hidden := 0
	for _, found := range notShown.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(found[1])
		hidden += n
	}
	if hidden > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("of overrides and lists %d values are not in the other configuration: those of sensitive keys are not shown, and so not copied; it takes these keys for any other", hidden))
	}
}

// unmatchedRoutes returns notes about routes that match data the log does not have.
func unmatchedRoutes(o Options, seen map[key.Origin]bool) (notes []string) {
	for _, c := range o.Configs {
		for _, rt := range c.Routes {
			for _, name := range slices.Sorted(maps.Keys(rt.Match.Headers)) {
				if place := key.HeaderField(name); !seen[place] {
					notes = append(notes, fmt.Sprintf("route %s matches the field %s, which the log lacks: other routes match its requests, or none does; %s", rt.Name, name, advice(place.String())))
				}
			}
		}
	}
	return notes
}

// advice returns how to get a log with the values at places.
func (r *Report) advice(places string) string {
	var all []string
	for place := range strings.SplitSeq(places, ", ") {
		text := advice(place)
		if r.own && place != "client_ip" && place != "host" {
			text = "this log has no costs, and only keys that a limit has read; for a new limit serve it in mode: shadow with access_log: {fields: [standard]}, and replay what is logged from then on"
		}
		all = view.AddNew(all, text)
	}
	return strings.Join(all, "; ")
}

// advice returns how to log the value at a place.
func advice(place string) string {
	source, name, _ := strings.Cut(place, ":")
	return cmp.Or(map[string]string{
		"header":    fmt.Sprintf("log the field %s as JSON ($http_%s in nginx), or name it with --field %s=NAME", name, strings.ReplaceAll(strings.ToLower(name), "-", "_"), place),
		"client_ip": "log the client's whole address (privacy.log_client: full)",
		"query":     "log the query too, or name it with --field " + place + "=NAME",
		"path":      "Weir's own log identifies path parameters that are keys by its field keys; see access_log.fields",
		"plan":      "only Weir's own log has the plan under a limit, in its field keys, if the limit had plans then",
		"jwt":       "only Weir's own log identifies what a token says, by its field keys",
		"host":      "log the host, or name it with --field host=NAME",
	}[source], "log it as a JSON field, and name it with --field "+place+"=NAME")
}

// A Result is that of one configuration.
type Result struct {
	File string
	*proxy.ReplayTally
}

// Results returns the one or two results.
func (r *Report) Results() []Result {
	all := []Result{{r.Config, &r.Result}}
	if r.Against != nil {
		all = append(all, Result{r.Other, r.Against})
	}
	return all
}

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
	if r.Requests == 0 {
		fmt.Fprintln(t, strings.Join(notes, "\n"))
		return
	}
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

// change formats b-a with its sign; ? if it is unknown.
func change(a, b, unknown int64, format func(int64) string) string {
	if unknown > 0 {
		return "?"
	}
	return view.Change(a, b, format)
}

func plain(n int64) string { return strconv.FormatInt(n, 10) }

// writeOne writes the result of one configuration.
func (r *Report) writeOne(t *tabwriter.Writer, tally *proxy.ReplayTally) {
	if tally.Unknown == 0 {
		fmt.Fprintf(t, "%d passed, %d refused by limits (%s)\n", tally.Passed, tally.Refused, view.Share(tally.Refused, tally.Requests))
	} else {
		fmt.Fprintf(t, "no total: of %d requests the log does not tell whether a limit refuses them (?); at least %d passed, %d refused by limits\n", tally.Unknown, tally.Passed-tally.Unknown, tally.Refused)
	}
	fmt.Fprintf(t, "\nROUTE\tLIMIT\tRATE\tMODE\tPASSED\tREFUSED\tSHADOWED\tSKIPPED\tUNKNOWN\n")
	for _, rt := range tally.Routes {
		if rt.Name == "" {
			fmt.Fprintf(t, "of several routes\t\t\t\t\t\t\t\t\n")
		} else {
			fmt.Fprintf(t, "%s\t\t\t\t%s\t%s\t\t\t\n", rt.Name, view.AtLeast(rt.Passed-rt.Unknown, rt.Unknown, plain), view.AtLeast(rt.Refused, rt.Unknown, plain))
		}
		for _, l := range rt.Limits {
			s := sideOf(l)
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", shortly(l.Routes), l.Name, strings.Join(l.Rates, " "), l.Mode,
				view.AtLeast(l.Passed, l.Unknown, plain), view.AtLeast(l.Refused, s.MayRefuse(), plain), view.AtLeast(l.Shadowed, s.MayShadow(), plain), l.Skipped, l.Unknown)
		}
	}
	t.Flush()
	for _, rt := range tally.Routes {
		for _, line := range furtherResults(rt) {
			fmt.Fprintf(t, "%s: %s\n", rt.Name, line)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(tally.Unmatched)) {
		fmt.Fprintf(t, "no route: %d: %s\n", tally.Unmatched[reason], reason)
	}
	for _, rt := range tally.Routes {
		for _, l := range rt.Limits {
			writeTopKeys(t, view.LimitName(rt.Name, l.Name), &l)
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
func furtherResults(rt proxy.RouteTally) []string {
	return slices.Concat(
		view.Each(slices.Sorted(maps.Keys(rt.Rejected)), func(reason string) string { return fmt.Sprintf("%d rejected: %s", rt.Rejected[reason], reason) }),
		view.Each(slices.Sorted(maps.Keys(rt.Listed)), func(list string) string { return fmt.Sprintf("%d on the list %s", rt.Listed[list], list) }),
		view.Holding(
			view.Fact{Holds: rt.Waited > 0, Text: fmt.Sprint(rt.Waited, " waited for a permit")},
			view.Fact{Holds: rt.Repeated > 0, Text: fmt.Sprint(rt.Repeated, " repeats that are not counted")},
			view.Fact{Holds: rt.Returned > 0, Text: fmt.Sprint(rt.Returned, " refunded because of their outcome")},
			view.Fact{Holds: rt.Banned > 0, Text: fmt.Sprint(rt.Banned, " started a ban")},
		),
	)
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
	fmt.Fprintf(t, "A is %s, B is %s%s\n", r.Config, r.Other, map[bool]string{true: "; ? is what the log does not tell"}[r.Result.Unknown+r.Against.Unknown > 0])
	fmt.Fprintf(t, "\nROUTE\tLIMIT\tRATE A\tRATE B\tREFUSED A\tREFUSED B\tDIFFERENCE\tSHADOWED A\tSHADOWED B\tDIFFERENCE\tUNKNOWN A\tUNKNOWN B\n")
	all := []view.SimulatedDifference{{Route: "all", A: view.SimulatedSide{There: true, Refused: r.Result.Refused, Unknown: r.Result.Unknown}, B: view.SimulatedSide{There: true, Refused: r.Against.Refused, Unknown: r.Against.Unknown}}}
	for _, d := range append(all, r.Differences()...) {
		a, b := d.A, d.B
		shadowed := "\t\t"
		if d.Limit != "" {
			shadowed = sideBySide(a.Shadowed, b.Shadowed, a.MayShadow(), b.MayShadow())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", d.Route, d.Limit, ratesOf(a), ratesOf(b),
			sideBySide(a.Refused, b.Refused, a.MayRefuse(), b.MayRefuse()), shadowed, a.Unknown, b.Unknown)
	}
	t.Flush()
}

// sideBySide formats numbers of both configurations, to which unknown ones may have to be added, and their difference.
func sideBySide(a, b, moreA, moreB int64) string {
	return view.AtLeast(a, moreA, plain) + "\t" + view.AtLeast(b, moreB, plain) + "\t" + change(a, b, moreA+moreB, plain)
}

func ratesOf(s view.SimulatedSide) string {
	if !s.There {
		return "none"
	}
	return strings.Join(s.Rates, " ")
}

// Differences returns the routes and limits of both configurations, in the order of the first;
// those that only the second has follow.
func (r *Report) Differences() []view.SimulatedDifference {
	var all []view.SimulatedDifference
	at := map[[2]string]int{}
	for i, t := range r.Results() {
		put := func(route, limit string, s view.SimulatedSide) {
			k := [2]string{route, limit}
			if _, known := at[k]; !known {
				at[k] = len(all)
				all = append(all, view.SimulatedDifference{Route: route, Limit: limit})
			}
			if i == 0 {
				all[at[k]].A = s
			} else {
				all[at[k]].B = s
			}
		}
		for _, rt := range t.Routes {
			if rt.Name != "" {
				put(rt.Name, "", view.SimulatedSide{There: true, Passed: rt.Passed - rt.Unknown, Refused: rt.Refused, Unknown: rt.Unknown})
			}
			for _, l := range rt.Limits {
				put(rt.Name, l.Name, sideOf(l))
			}
		}
	}
	return all
}

func sideOf(l proxy.LimitTally) view.SimulatedSide {
	return view.SimulatedSide{There: true, Mode: l.Mode, Rates: l.Rates, Passed: l.Passed, Refused: l.Refused, Shadowed: l.Shadowed, Unknown: l.Unknown}
}

//go:embed page.html
var pageText string

// HTML writes the report as a page without scripts and external resources.
func (r *Report) HTML(out io.Writer) error {
	t := template.Must(template.New("page").Funcs(template.FuncMap{
		"count":  view.Count,
		"known":  func(n, unknown int64) string { return view.AtLeast(n, unknown, view.Count) },
		"signed": func(a, b, unknown int64) string { return change(a, b, unknown, view.Count) }, "side": sideOf,
		"minus": func(a, b int64) int64 { return a - b }, "plus": func(a, b int64) int64 { return a + b },
		"share": view.Share, "join": func(s []string) string { return strings.Join(s, ", ") },
		"when": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"more": furtherResults, "limit": view.LimitName, "chart": newChart,
	}).Parse(pageText))
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
	Most            int64 // maximum of one step; 0 if nothing happened
	Step            time.Duration
	From, To        time.Time
}

// newChart returns the chart of a series of a configuration.
func newChart(of Result, name string, s proxy.ReplaySeries) chart {
	t := of.ReplayTally
	steps := int(t.To.Sub(t.Start)/max(t.Step, 1)) + 1
	c := chart{Name: name, Width: chartWidth, Height: chartHeight, Step: t.Step, From: t.Start, To: t.Start.Add(time.Duration(steps) * t.Step)}
	padded := func(n []int64) []int64 { return append(slices.Clip(n), make([]int64, max(steps-len(n), 0))...) }
	s.Passed, s.Refused = padded(s.Passed), padded(s.Refused)
	for i := range steps {
		c.Most = max(c.Most, s.Passed[i]+s.Refused[i])
	}
	if c.Most == 0 {
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
		bar(&passed, i, 0, s.Passed[i])
		bar(&refused, i, s.Passed[i], s.Passed[i]+s.Refused[i])
	}
	c.Passed, c.Refused = passed.String(), refused.String()
	return c
}
