package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// A topData is what top shows, and the output of top --json.
type topData struct {
	At        time.Time       `json:"at"`
	Minutes   int             `json:"minutes"`
	Away      string          `json:"redis_unreachable,omitempty"` // why only the node that was asked is known; empty if all are
	Nodes     admin.Nodes     `json:"nodes"`
	Leader    view.Leadership `json:"leader"`
	Statistic view.Statistics `json:"statistics"`
	Limits    view.Limits     `json:"limits"`
	Routes    view.Routes     `json:"routes"`
	Upstreams view.Upstreams  `json:"upstreams"`
	Top       view.Top        `json:"top"`
	query     view.TopQuery   // what the operator asked for
}

// fetch fetches all data concurrently. It returns the first error. While the node that is asked cannot
// reach Redis, the nodes, the leader and the statistics are empty.
func (c topCommand) fetch(ctx context.Context) (topData, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	query := view.TopQuery{Route: c.Route, Limit: c.Limit, Minutes: c.Minutes, N: c.Rows}
	d, client := topData{Minutes: c.Minutes, query: query}, c.client()
	all := []func() error{
		fetch(ctx, client, "/nodes", &d.Nodes), fetch(ctx, client, "/leader", &d.Leader),
		fetch(ctx, client, "/statistics?minutes="+strconv.Itoa(c.Minutes), &d.Statistic),
		fetch(ctx, client, "/limits", &d.Limits), fetch(ctx, client, "/routes", &d.Routes), fetch(ctx, client, "/upstreams", &d.Upstreams),
		func() (err error) { d.Top, err = client.TopOf(ctx, query); return },
	}
	const fromRedis = 3 // the first ones
	errs := make([]error, len(all))
	var asked sync.WaitGroup
	for i, ask := range all {
		asked.Go(func() { errs[i] = ask() })
	}
	asked.Wait()
	d.At = time.Now()
	for i, err := range errs {
		var p *admin.Problem // the node may answer that it cannot know, because Redis is unreachable
		switch {
		case err == nil:
		case i < fromRedis && errors.As(err, &p) && p.Status == http.StatusServiceUnavailable:
			d.Away = cmp.Or(d.Away, err.Error())
		default:
			return topData{}, err
		}
	}
	if d.Away != "" {
		d.Nodes, d.Leader, d.Statistic = admin.Nodes{}, view.Leadership{}, view.Statistics{}
	}
	return d, nil
}

// fetch returns a function that sets to to what the API has at path.
func fetch[A any](ctx context.Context, client admin.Client, path string, to *A) func() error {
	return func() (err error) {
		*to, err = admin.Get[A](ctx, client, path)
		return err
	}
}

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

// A topOrder is the order of keys.
type topOrder int

// The orders.
const (
	byRefused topOrder = iota
	byRequests
)

// table returns the table of a page.
func (d topData) table(page topPage, order topOrder) textTable {
	keys := func() textTable { return d.keyTable(order) }
	return [...]func() textTable{keys, d.limitTable, d.routeTable, d.nodeTable, d.upstreamTable}[page]()
}

// keyTable lists the keys with most requests or most refusals.
func (d topData) keyTable(order topOrder) textTable {
	t := textTable{columns: []string{"LIMIT", "KEY", "REFUSED", "REQUESTS", "HASH"}, empty: "no requests with a limit in the last minutes"}
	type entry struct {
		limit                  view.TopLimit
		key, refused, requests view.TopKey
	}
	var all []entry
	for _, l := range d.Top.Limits {
		if l.Requests.Total > 0 {
			t.empty = "no key stands out in the last minutes"
		}
		all = slices.Concat(all, view.Each(l.Keys(), func(k view.TopKey) entry { return entry{l, k, countIn(l.Refused, k.ID), countIn(l.Requests, k.ID)} }))
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		requests := cmp.Compare(leastOf(b.requests), leastOf(a.requests))
		if order == byRequests {
			return requests
		}
		return cmp.Or(cmp.Compare(leastOf(b.refused), leastOf(a.refused)), requests)
	})
	for _, e := range all {
		name, mode := view.LimitName(e.limit.Route, e.limit.Limit), ""
		if e.limit.Mode != "enforce" {
			mode = " (" + e.limit.Mode + ")"
		}
		key := &keyOfRow{e.limit.Key, e.key.ID, printable(e.key.Masked)}
		t.add(textRow{id: name + " " + key.id, key: key}, name+mode, key.masked, countOf(e.refused), countOf(e.requests), e.key.Hash)
	}
	return t
}

// countIn returns the count of a key in a list. Of one that it lacks, its floor is the maximum.
func countIn(l view.TopList, id string) view.TopKey {
	if k := l.Find(id); k != nil {
		return *k
	}
	return view.TopKey{Count: l.Floor, Error: l.Floor}
}

// leastOf returns the minimum of the true count of a key.
func leastOf(k view.TopKey) int64 { return max(k.Count-k.Error, 0) }

// countOf returns the count of a key: 7, or a range such as 5-7 if it is an
// estimate.
func countOf(k view.TopKey) string {
	if k.Error > 0 {
		return fmt.Sprintf("%d-%d", leastOf(k), k.Count)
	}
	return fmt.Sprint(k.Count)
}

// limitTable lists the limits, those with most refusals first.
func (d topData) limitTable() textTable {
	t := textTable{columns: []string{"LIMIT", "REFUSED", "REQUESTS", "SHARE", "RATES", "REFUSED MOST", "MODE", "KEY"}, empty: "no route has a limit"}
	seen := view.By(d.Top.Limits, func(l view.TopLimit) string { return view.LimitName(l.Route, l.Limit) })
	limits := slices.Clone(d.Limits.Limits)
	if d.query.Route+d.query.Limit != "" {
		t.empty = "no limit of that name is in force"
		limits = slices.DeleteFunc(limits, func(l view.Limit) bool { return seen[view.LimitName(l.Route, l.Name)].Limit == "" })
	}
	of := func(l view.Limit) view.TopLimit { return seen[view.LimitName(l.Route, l.Name)] }
	slices.SortStableFunc(limits, func(a, b view.Limit) int {
		return cmp.Or(cmp.Compare(of(b).Refused.Total, of(a).Refused.Total), cmp.Compare(of(b).Requests.Total, of(a).Requests.Total))
	})
	for _, l := range limits {
		s, name, worst, share := of(l), view.LimitName(l.Route, l.Name), "-", "-"
		row := textRow{id: name, bad: of(l).Refused.Total > 0 && l.Mode == "enforce"}
		if len(s.Refused.Keys) > 0 {
			worst = printable(s.Refused.Keys[0].Masked)
			row.key = &keyOfRow{s.Key, s.Refused.Keys[0].ID, worst}
		}
		if s.Requests.Total > 0 {
			share = view.Share(s.Refused.Total, s.Requests.Total)
		}
		t.add(row, name, s.Refused.Total, s.Requests.Total, share, strings.Join(l.Rates, " "), worst, l.Mode, l.Key)
	}
	return t
}

// routeTable lists the routes, those with most requests first. Without Redis the statistics are unknown.
func (d topData) routeTable() textTable {
	t := textTable{columns: []string{"ROUTE", "LAST MINUTE", "REQUESTS", "REFUSED", "MATCH", "UPSTREAM", "NOT DECIDED"}, empty: "no routes are served"}
	last := view.By(d.Statistic.Last.Routes, func(r view.RouteMinute) string { return r.Route })
	of := map[string]view.RouteMinute{}
	for _, m := range d.Statistic.Minutes {
		for _, r := range m.Routes {
			s := of[r.Route]
			of[r.Route] = view.RouteMinute{
				Requests: s.Requests + r.Requests, Refused: s.Refused + r.Refused, Unavailable: s.Unavailable + r.Unavailable,
			}
		}
	}
	routes := slices.DeleteFunc(slices.Clone(d.Routes.Routes), func(r view.Route) bool {
		return d.query.Route != "" && r.Name != d.query.Route || d.query.Limit != "" && !slices.ContainsFunc(d.Top.Limits, func(l view.TopLimit) bool {
			return slices.Contains(r.Limits, l.Limit) && (l.Route == "" || l.Route == r.Name)
		})
	})
	slices.SortStableFunc(routes, func(a, b view.Route) int { return cmp.Compare(of[b.Name].Requests, of[a.Name].Requests) })
	for _, r := range routes {
		s, to := of[r.Name], cmp.Or(r.Upstream, r.Redirect, fmt.Sprint(r.Respond))
		counts := []any{last[r.Name].Requests, s.Requests, s.Refused, s.Unavailable}
		if d.Away != "" {
			counts = []any{"-", "-", "-", "-"}
		}
		match := strings.TrimSpace(strings.Join(r.Methods, ",") + " " + r.Host + r.Path)
		t.add(textRow{id: r.Name, bad: s.Unavailable > 0}, r.Name, counts[0], counts[1], counts[2], match, to, counts[3])
	}
	return t
}

// upstreamTable lists the targets of all upstreams.
func (d topData) upstreamTable() textTable {
	t := textTable{columns: []string{"UPSTREAM", "TARGET", "STATE", "HEALTHY ON", "FAILED", "REQUESTS", "IN FLIGHT", "WAITING"}, empty: "no route forwards to an upstream"}
	for _, u := range d.Upstreams.Upstreams {
		for _, target := range u.Targets {
			healthy := 0
			for _, n := range target.Nodes {
				if n.State == view.Healthy || n.State == view.SlowStart {
					healthy++
				}
			}
			t.add(textRow{id: u.Name + " " + target.Target, bad: healthy < len(target.Nodes)}, u.Name, target.Target, strings.ReplaceAll(target.State, "_", " "),
				fmt.Sprintf("%d of %d", healthy, len(target.Nodes)), target.Errors, target.Requests, target.InFlight, u.Waiting)
		}
	}
	return t
}

// summary returns the overall state in one line.
func (d topData) summary() string {
	if d.Away != "" {
		return printable(d.Away + "; only what this node has seen")
	}
	var requests, refused int64
	for _, r := range d.Statistic.Last.Routes {
		requests += r.Requests
		refused += r.Refused
	}
	parts := []string{plural(len(d.Nodes.Nodes), "node")}
	switch {
	case d.Leader.Node == "":
		parts = append(parts, "no leader")
	case len(d.Nodes.Nodes) > 1:
		parts = append(parts, d.Leader.Node+" leads")
	}
	if drift := d.drift(); drift != "" {
		parts = append(parts, drift)
	} else if len(d.Nodes.Nodes) > 1 {
		parts = append(parts, "all serve one config")
	}
	if n := len(d.Nodes.Lost); n > 0 {
		parts = append(parts, fmt.Sprintf("%d lost, the last %s %s ago", n, d.Nodes.Lost[0].ID, ago(d.Nodes.Lost[0].Seen, d.At)))
	}
	if silent := len(view.NotOK(d.Top.Nodes)); silent > 0 {
		parts = append(parts, fmt.Sprintf("%d did not answer", silent))
	}
	return strings.Join(append(parts, fmt.Sprintf("last minute: %d requests, %d refused", requests, refused)), "; ")
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
