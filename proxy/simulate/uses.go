package simulate

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/key"
)

// A useTable shows what became of the requests that a limit with return_on or a budget decided, by key.
type useTable struct {
	Title string
	Lines []string // what holds for all keys
	Head  []string // of which the first is text, and the others are numbers
	Rows  [][]string
}

// newUseTable returns the table of a limit; nil if there is nothing to show.
func newUseTable(name string, l *proxy.LimitTally) *useTable {
	u := l.Uses
	if u == nil || u.Sent == 0 {
		return nil
	}
	t := &useTable{Title: name + ", what was sent", Head: []string{"KEY", "SENT"}}
	columns := columnsOf(u)
	for _, c := range columns {
		t.Head = append(t.Head, c.name)
	}
	for _, k := range append([]proxy.KeyUse{{Key: "all", UseCount: u.UseCount}}, u.Keys...) {
		row := []string{k.Key, plain(k.Sent)}
		for _, c := range columns {
			row = append(row, c.of(&k.UseCount))
		}
		t.Rows = append(t.Rows, row)
	}
	if isKnown(u) && u.SubjectsRefused > 0 {
		t.Lines = append(t.Lines, fmt.Sprintf("of %d different values of %s that were refused, %d used what was sent (%s); of all %d, %d did", u.SubjectsRefused, u.Subject, u.SubjectsWrong, percentage(u.SubjectsWrong, u.SubjectsRefused), u.Subjects, u.SubjectsUsed))
	}
	return t
}

// isKnown reports whether the log tells what was used.
func isKnown(u *proxy.UseTally) bool { return u.Responses > u.Unread }

// A column is one figure of a useTable.
type column struct {
	name string
	of   func(c *proxy.UseCount) string
}

// columnsOf returns the figures that are known.
func columnsOf(u *proxy.UseTally) (all []column) {
	number := func(name string, of func(c *proxy.UseCount) int64) {
		all = append(all, column{name, func(c *proxy.UseCount) string { return plain(of(c)) }})
	}
	money := func(name string, of func(c *proxy.UseCount) int64) {
		all = append(all, column{name, func(c *proxy.UseCount) string {
			return strings.TrimSpace(key.FormatAmount(of(c), u.Decimals) + " " + u.Unit)
		}})
	}
	isBudget, known, priced := len(u.Floors) == 0, isKnown(u), u.Priced && u.Unpriced == 0
	if known {
		number("USED", func(c *proxy.UseCount) int64 { return c.Used })
		all = append(all, column{"CONVERSION", func(c *proxy.UseCount) string { return percentage(c.Used, c.Sent) }})
	}
	if known || isBudget { // without uses, a limit with return_on counts what it would not
		number("REFUSED", func(c *proxy.UseCount) int64 { return c.Refused })
	}
	if known {
		number("USED LATER", func(c *proxy.UseCount) int64 { return c.Wrong })
	}
	if known && !isBudget {
		all = append(all, column{"RATES FOR USED", floors(func(f proxy.Floor) int64 { return f.Used })})
	}
	if !isBudget {
		all = append(all, column{"RATES FOR ALL", floors(func(f proxy.Floor) int64 { return f.All })})
	}
	if priced {
		money("COST", func(c *proxy.UseCount) int64 { return c.Cost })
	}
	if priced && (known || isBudget) {
		money("SAVED", func(c *proxy.UseCount) int64 { return c.Saved })
	}
	if priced && isBudget {
		money("SPENT", func(c *proxy.UseCount) int64 { return c.Spent })
	}
	return all
}

// floors formats rates that would have been enough: 12/1h 40/1d.
func floors(of func(f proxy.Floor) int64) func(c *proxy.UseCount) string {
	return func(c *proxy.UseCount) string {
		var rates []string
		for _, f := range c.Floors {
			rates = append(rates, fmt.Sprintf("%d/%s", of(f), f.Window))
		}
		return strings.Join(rates, " ")
	}
}

// writeUses writes what became of the requests that a limit decided.
func writeUses(w *tabwriter.Writer, t *useTable) {
	fmt.Fprintf(w, "\n%s\n", t.Title)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	w.Flush()
	for _, line := range t.Lines {
		fmt.Fprintln(w, "  "+line)
	}
}

// useNotes returns notes about uses that the log does not tell.
func (r *Report) useNotes(result *proxy.ReplayTally) (notes []string) {
	requests := map[string]int64{}
	for _, rt := range result.Routes {
		requests[rt.Name] = rt.Requests
	}
	for _, rt := range result.Routes {
		for _, l := range rt.Limits {
			u := l.Uses
			if u == nil || u.Sent == 0 {
				continue
			}
			name := proxy.LimitName(rt.Name, l.Name)
			switch {
			case u.By == "":
				notes = append(notes, fmt.Sprintf("limit %s: no limit of its route has return_on, so it is unknown what was used of what the budget refuses; write one, with mode: shadow", name))
			case requests[u.By] == 0:
				notes = append(notes, fmt.Sprintf("the log has no request of route %s, whose responses return permits (return_on): what was used is unknown, and the limits of route %s count everything as unused; name the logs that have these requests too", u.By, rt.Name))
			case u.Responses == 0:
				notes = append(notes, fmt.Sprintf("no request of route %s has a status of return_on in the log: nothing was used", u.By))
			case u.Unread > 0:
				notes = append(notes, fmt.Sprintf("of %d of %d responses of route %s the log lacks %s, so that they return nothing; %s", u.Unread, u.Responses, u.By, u.From, r.advice(u.From)))
			}
			if u.Unsent > 0 {
				notes = append(notes, fmt.Sprintf("limit %s: %d of %d requests were refused when the log was written, so that nobody could use what they are for; wrong refusals among them are not known", name, u.Unsent, u.Sent))
			}
			if u.Untracked > 0 {
				notes = append(notes, fmt.Sprintf("limit %s: of %d requests it is unknown whether they were used, because there are too many different subjects", name, u.Untracked))
			}
		}
	}
	return notes
}
