package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// A topPage is one of the tables that top shows.
type topPage int

// The pages, in their order.
const (
	pageKeys topPage = iota
	pageLimits
	pageRoutes
	pageNodes
	pageUpstreams
	pageCount
)

// title returns the title of the page.
func (p topPage) title() string {
	return [...]string{"Keys", "Limits", "Routes", "Nodes", "Upstreams"}[p]
}

// A topRow is one line of a table.
type topRow struct {
	id    string // identifies the row when the order changes
	cells []string
	bad   bool      // needs attention
	key   *keyOfRow // nil if the row is not about a key
}

// A keyOfRow is a key that can be looked up and changed.
type keyOfRow struct{ name, id, masked string }

// A topTable is the content of a page; the most important columns come first.
type topTable struct {
	columns []string
	rows    []topRow
	empty   string // shown if there are no rows
}

// print writes the first rows as text, each after indent.
func (t topTable) print(out io.Writer, indent string, rows int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s%s\n", indent, strings.Join(t.columns, "\t"))
	for _, row := range t.rows[:min(len(t.rows), rows)] {
		fmt.Fprintf(w, "%s%s\n", indent, strings.Join(row.cells, "\t"))
	}
	return w.Flush()
}

// table returns the table of a page.
func (d topData) table(page topPage, order topOrder) topTable {
	switch page {
	case pageLimits:
		return d.limitTable()
	case pageRoutes:
		return d.routeTable()
	case pageNodes:
		return d.nodeTable()
	case pageUpstreams:
		return d.upstreamTable()
	}
	return d.keyTable(order)
}

// A topOrder is the order of keys.
type topOrder int

// The orders.
const (
	byRefused topOrder = iota
	byRequests
)

// keyTable lists the keys with most requests or most refusals. Of a key that is missing in one of both
// lists its floor is the maximum.
func (d topData) keyTable(order topOrder) topTable {
	t := topTable{columns: []string{"LIMIT", "KEY", "REFUSED", "REQUESTS", "HASH"}, empty: "no requests with a limit in the last minutes"}
	type entry struct {
		topRow
		refused, requests admin.TopKey
	}
	var all []*entry
	for _, l := range d.Top.Limits {
		if l.Requests.Total > 0 {
			t.empty = "no key stands out in the last minutes"
		}
		by := map[string]*entry{}
		find := func(k admin.TopKey) *entry {
			if by[k.ID] == nil {
				by[k.ID] = &entry{
					topRow:   topRow{id: proxy.LimitName(l.Route, l.Limit) + " " + k.ID, key: &keyOfRow{l.Key, k.ID, printable(k.Masked)}},
					refused:  admin.TopKey{Count: l.Refused.Floor, Error: l.Refused.Floor},
					requests: admin.TopKey{Count: l.Requests.Floor, Error: l.Requests.Floor},
				}
				by[k.ID].cells = []string{proxy.LimitName(l.Route, l.Limit) + inMode(l.Mode), printable(k.Masked), "", "", k.Hash}
				all = append(all, by[k.ID])
			}
			return by[k.ID]
		}
		for _, k := range l.Refused.Keys {
			find(k).refused = k
		}
		for _, k := range l.Requests.Keys {
			find(k).requests = k
		}
	}
	slices.SortStableFunc(all, func(a, b *entry) int {
		if order == byRequests {
			return cmp.Compare(leastOf(b.requests), leastOf(a.requests))
		}
		return cmp.Or(cmp.Compare(leastOf(b.refused), leastOf(a.refused)), cmp.Compare(leastOf(b.requests), leastOf(a.requests)))
	})
	for _, e := range all {
		e.cells[2], e.cells[3] = countOf(e.refused), countOf(e.requests)
		t.rows = append(t.rows, e.topRow)
	}
	return t
}

// leastOf returns the minimum of the true count of a key.
func leastOf(k admin.TopKey) int64 { return max(k.Count-k.Error, 0) }

// countOf returns the count of a key: 7, or a range such as 5-7 if it is an
// estimate.
func countOf(k admin.TopKey) string {
	if k.Error > 0 {
		return fmt.Sprintf("%d-%d", leastOf(k), k.Count)
	}
	return fmt.Sprint(k.Count)
}

func inMode(mode string) string {
	if mode == "enforce" {
		return ""
	}
	return " (" + mode + ")"
}

// limitTable lists the limits, those with most refusals first.
func (d topData) limitTable() topTable {
	t := topTable{columns: []string{"LIMIT", "REFUSED", "REQUESTS", "SHARE", "RATES", "REFUSED MOST", "MODE", "KEY"}, empty: "no route has a limit"}
	seen := map[string]admin.TopLimit{}
	for _, l := range d.Top.Limits {
		seen[proxy.LimitName(l.Route, l.Limit)] = l
	}
	limits := slices.Clone(d.Limits.Limits)
	of := func(l admin.Limit) admin.TopLimit { return seen[proxy.LimitName(l.Route, l.Name)] }
	slices.SortStableFunc(limits, func(a, b admin.Limit) int {
		return cmp.Or(cmp.Compare(of(b).Refused.Total, of(a).Refused.Total), cmp.Compare(of(b).Requests.Total, of(a).Requests.Total))
	})
	for _, l := range limits {
		s := of(l)
		worst, key := "-", (*keyOfRow)(nil)
		if len(s.Refused.Keys) > 0 {
			k := s.Refused.Keys[0]
			worst, key = printable(k.Masked), &keyOfRow{s.Key, k.ID, printable(k.Masked)}
		}
		name := proxy.LimitName(l.Route, l.Name)
		t.rows = append(t.rows, topRow{
			id: name, key: key, bad: s.Refused.Total > 0 && l.Mode == "enforce",
			cells: []string{name, fmt.Sprint(s.Refused.Total), fmt.Sprint(s.Requests.Total), share(s.Refused.Total, s.Requests.Total), strings.Join(l.Rates, " "), worst, l.Mode, l.Key},
		})
	}
	return t
}

// share returns a percentage; "-" if whole is 0.
func share(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

// routeTable lists the routes, those with most requests first.
func (d topData) routeTable() topTable {
	t := topTable{columns: []string{"ROUTE", "LAST 60 S", "REQUESTS", "REFUSED", "MATCH", "UPSTREAM", "WITHOUT REDIS"}, empty: "no routes are served"}
	type sums struct{ last, requests, refused, unavailable int64 }
	of := map[string]sums{}
	for _, m := range d.Statistic.Minutes {
		for _, r := range m.Routes {
			s := of[r.Route]
			s.requests += r.Requests
			s.refused += r.Refused
			s.unavailable += r.Unavailable
			of[r.Route] = s
		}
	}
	for _, r := range d.Statistic.Last.Routes {
		s := of[r.Route]
		s.last = r.Requests
		of[r.Route] = s
	}
	routes := slices.Clone(d.Routes.Routes)
	slices.SortStableFunc(routes, func(a, b admin.Route) int { return cmp.Compare(of[b.Name].requests, of[a.Name].requests) })
	for _, r := range routes {
		s := of[r.Name]
		to := cmp.Or(r.Upstream, r.Redirect)
		if to == "" {
			to = fmt.Sprint(r.Respond)
		}
		match := strings.TrimSpace(strings.Join(r.Methods, ",") + " " + r.Host + r.Path)
		t.rows = append(t.rows, topRow{
			id: r.Name, bad: s.unavailable > 0,
			cells: []string{r.Name, d.known(s.last), d.known(s.requests), d.known(s.refused), match, to, d.known(s.unavailable)},
		})
	}
	return t
}

// known formats a count of the statistics, which are unknown without Redis.
func (d topData) known(n int64) string {
	if d.Away != "" {
		return "-"
	}
	return fmt.Sprint(n)
}

// printable replaces control characters in text.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, text)
}

// ago returns the time since at.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return max(now.Sub(at), 0).Round(time.Second).String()
}

// plansOf returns the names of the plans of limits that count by a key.
func (d topData) plansOf(key string) (names []string) {
	for _, l := range d.Limits.Limits {
		if l.Key == key {
			names = append(names, l.Plans...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
