package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// An explainText writes an explanation as text.
type explainText struct {
	proxy.Explanation
	palette
}

func (e explainText) print(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\n", e.head(fmt.Sprintf("%s %s://%s%s from %s", e.Method, e.Scheme, e.Host, e.Path, e.Client)))
	e.stages(t)
	e.route(t)
	e.keys(t)
	e.lists(t)
	e.limits(t)
	e.returns(t)
	e.decision(t)
	e.answer(t)
	e.upstream(t)
	t.Flush()
}

// section starts a new section.
func (e explainText) section(t *tabwriter.Writer, title string) {
	t.Flush() // each section has its own columns
	fmt.Fprintf(t, "\n%s\n", e.head(title))
}

func (e explainText) stages(t *tabwriter.Writer) {
	e.section(t, "STAGES")
	for _, s := range e.Stages {
		line := "  " + s.Name + "\t" + s.Result
		if s.Detail != "" {
			line += "\t" + s.Detail
		}
		fmt.Fprintln(t, line)
	}
}

func (e explainText) route(t *tabwriter.Writer) {
	e.section(t, "ROUTE")
	if r := e.Route; r != nil {
		line := fmt.Sprintf("  %s\t%s\t%s", r.Name, matchers(r), r.Position)
		if r.Lenient {
			line += "\tas a lenient upstream would read the request"
		}
		fmt.Fprintln(t, line)
	} else {
		fmt.Fprintf(t, "  %s\n", e.bad("none"))
	}
	for _, o := range e.Others {
		fmt.Fprintf(t, "  not %s\t%s\t%s\n", o.Name, strings.Join(o.Because, "; "), o.Position)
	}
}

// matchers returns the conditions of a route in one line.
func matchers(r *proxy.ExplainedRoute) string {
	words := []string{strings.Join(r.Methods, ","), r.Host + r.Path}
	if words[0] == "" {
		words = words[1:]
	}
	return strings.Join(words, " ")
}

func (e explainText) keys(t *tabwriter.Writer) {
	if len(e.Keys) == 0 {
		return
	}
	e.section(t, "KEYS")
	for _, k := range e.Keys {
		text := k.Value
		switch {
		case k.Error != "":
			text = e.bad(k.Error)
		case k.Skipped:
			text = "missing; limits with it do not apply"
		case k.Hash != "":
			text += "  (" + k.Hash + " in the log)"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", k.Name, k.From, text)
	}
}

func (e explainText) lists(t *tabwriter.Writer) {
	if len(e.Lists) == 0 {
		return
	}
	e.section(t, "LISTS")
	for _, l := range e.Lists {
		hit := "no match"
		if l.Hit {
			hit = e.mild("on it")
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", l.Name, l.Action, l.Key, hit)
	}
}

func (e explainText) limits(t *tabwriter.Writer) {
	if len(e.Limits) == 0 {
		return
	}
	e.section(t, "LIMITS")
	fmt.Fprintln(t, "  NAME\tRATE\tALGORITHM\tMODE\tON STORE FAILURE\tKEY\tRESULT")
	for _, l := range e.Limits {
		if len(l.Windows) == 0 {
			fmt.Fprintf(t, "  %s\t\t%s\t%s\t%s\t%s\tnot asked: %s\n", l.Name, l.Algorithm, l.Mode, l.OnStoreFailure, l.Key, l.Reason)
		}
		for i, w := range l.Windows {
			name := l.Name
			if i > 0 {
				name = ""
			}
			key := l.Value
			if l.Distinct != "" {
				key += " distinct " + l.Distinct
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, w.Rate, l.Algorithm, l.Mode, l.OnStoreFailure, key, e.verdict(l, w))
		}
	}
}

// returns writes which permits of other routes a response returns.
func (e explainText) returns(t *tabwriter.Writer) {
	if len(e.Returns) == 0 {
		return
	}
	e.section(t, "RETURNS")
	for _, r := range e.Returns {
		fmt.Fprintf(t, "  %s\twith a status of %s\tthe permits of the same %s\n", proxy.LimitName(r.Route, r.Limit), strings.Join(r.Status, ", "), r.Key)
	}
}

// verdict returns the result of one rate.
func (e explainText) verdict(l proxy.ExplainedLimit, w proxy.ExplainedWindow) string {
	left := fmt.Sprintf("%d of %d", w.Remaining, w.Most)
	if l.Price != "" {
		left = w.Left
	}
	conversion := ""
	if w.Conversion != nil {
		conversion = w.Conversion.String()
	}
	more := holding(
		fact{l.Price != "", "costs " + l.Price}, fact{l.Price == "" && l.Cost != 1, fmt.Sprint("costs ", l.Cost)},
		fact{true, conversion}, fact{l.Scope != "overall", l.Scope},
		fact{len(l.Routes) > 0, "one count for " + strings.Join(l.Routes, ", ")}, fact{l.Override, "override"},
		fact{l.Plan != "", "plan " + l.Plan + " (" + l.PlanFrom + ")"}, fact{!l.Exposed, "hidden from clients"},
		fact{l.Shared != "", "shared with Redisson"}, fact{true, l.Penalty}, fact{true, l.Returned}, fact{true, l.StepUp},
		fact{l.Wait != "", "waits up to " + l.Wait},
	)
	tail := ""
	if len(more) > 0 {
		tail = "; " + strings.Join(more, ", ")
	}
	if w.Allowed {
		return e.good("allowed") + ", " + left + " left" + tail
	}
	after := (time.Duration(w.WaitMS) * time.Millisecond).String()
	switch {
	case w.Banned:
		return e.bad("banned") + " for " + after + tail
	case l.Mode == "shadow":
		return e.mild("would refuse") + ", passes in " + after + tail
	}
	return e.bad("refused") + ", passes in " + after + tail
}

func (e explainText) decision(t *tabwriter.Writer) {
	d := e.Decision
	if !d.Asked {
		return
	}
	e.section(t, "DECISION")
	how := "all limits in one step (one slot)"
	if d.Slots > 1 {
		how = fmt.Sprintf("in two phases: keys in up to %d slots reserve permits, and return them if one refuses", d.Slots)
	}
	fmt.Fprintf(t, "  store %s, %s\n", d.Store, how)
	if d.Reason != "" {
		fmt.Fprintf(t, "  %s\n", d.Reason)
	}
}

func (e explainText) answer(t *tabwriter.Writer) {
	if e.Answer == nil {
		return
	}
	e.section(t, "ANSWER")
	status := fmt.Sprintf("%d", e.Answer.Status)
	if e.Answer.Status >= 400 {
		status = e.bad(status)
	}
	fmt.Fprintf(t, "  %s %s\n", status, e.Answer.Why)
	for _, name := range slices.Sorted(maps.Keys(e.Answer.Header)) {
		for _, v := range e.Answer.Header[name] {
			fmt.Fprintf(t, "  %s: %s\n", name, v)
		}
	}
	var problem struct{ Title, Detail string }
	if json.Unmarshal([]byte(e.Answer.Body), &problem) == nil && problem.Title != "" {
		fmt.Fprintf(t, "  %s\n", strings.TrimSuffix(problem.Title+": "+problem.Detail, ": "))
	}
}

func (e explainText) upstream(t *tabwriter.Writer) {
	u := e.Upstream
	if u == nil {
		return
	}
	e.section(t, "UPSTREAM")
	where := strings.Join(u.Targets, ", ")
	if u.Echo {
		where = "built in"
	} else if len(u.Targets) > 1 {
		where += " (" + u.Balance + ")"
	}
	fmt.Fprintf(t, "  %s: %s\n  %s %s\n  Host: %s\n", u.Name, where, u.Method, u.Target, u.Host)
	for _, name := range slices.Sorted(maps.Keys(u.Header)) {
		sign := " "
		if slices.Contains(u.Set, name) {
			sign = e.good("+")
		}
		for _, v := range u.Header[name] {
			fmt.Fprintf(t, "%s %s: %s\n", sign, name, v)
		}
	}
	for _, name := range u.Removed {
		fmt.Fprintf(t, "%s %s\n", e.bad("-"), name)
	}
}
