package dashboard

import (
	"math"
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// maxBusiest is the maximum number of limits whose busiest key is looked up. Each takes a call to
// the store.
const maxBusiest = 20

// A routesView is the data of the page of routes, with the counts of the last minutes.
type routesView struct {
	Minutes int
	Counts  known[admin.Statistics]
	Routes  []*routeRow // of this page
	routeQuery
	Total, Pages int  // of routes that match, and of pages
	Any          bool // the configuration has routes
	Busiest      bool // the state of the busiest keys is shown
	Faults       []fault
	At           time.Time
	Directives   directivesView
}

// A routeRow is one route. That without a name has the limits of several routes.
type routeRow struct {
	admin.Route
	Unmatched bool // not a route: the requests that matched none
	Sum, Last sum
	Spark     []int64 // requests by minute
	Rows      []*limitRow
}

// A limitRow is one limit of a route.
type limitRow struct {
	admin.Limit
	Sum   decisions
	Spark []int64 // refusals by minute, including those by shadow mode
	Near  *nearest
}

// decisions are what a limit decided: one for each request of which it was asked.
type decisions struct{ Allowed, Refused, Shadow, Unavailable int64 }

// Asked returns the number of decisions.
func (d decisions) Asked() int64 { return d.Allowed + d.Refused + d.Shadow + d.Unavailable }

// A nearest is the state of the busiest key of a limit.
type nearest struct {
	proxy.WindowStanding
	Masked string
	Banned bool
}

// Full reports whether the key has no permits left.
func (n nearest) Full() bool { return n.Used >= n.Most || n.Banned }

func (d *dashboard) showRoutes(r *http.Request) view {
	ctx, now := r.Context(), time.Now()
	v := routesView{Minutes: spans()[0], At: now, Busiest: d.Top != nil, routeQuery: routeQueryOf(r), Directives: d.directives(r, "maintenance")}
	s, err := d.Statistics(ctx, v.Minutes+1)
	v.fault("statistics cannot be read", err)
	v.Counts = d.last.minutes.update(s, err, now)
	routes, err := d.Routes(ctx)
	v.fault("routes cannot be read", err)
	limits, err := d.Limits(ctx)
	v.fault("limits cannot be read", err)
	all := routeRows(routes, limits, v.Minutes)
	v.Any = len(all) > 0
	if v.Counts.Any() {
		all = countRows(all, v.Counts, v.Minutes)
	}
	v.Routes, v.Total, v.Pages = v.choose(all)
	v.Page = min(v.Page, v.Pages)
	if v.Busiest && !v.Counts.Old {
		top, err := d.Top(ctx, admin.TopQuery{Minutes: 5, N: 1})
		v.fault("the busiest keys are not known", err)
		v.fault("a key cannot be looked up", d.busiest(r, &v, top))
	}
	return view{name: "routes", title: "Routes & limits", status: v.Directives.Sent.Status, data: v}
}

func (v *routesView) fault(what string, err error) {
	if err != nil {
		v.Faults = append(v.Faults, faultOf(what, err))
	}
}

// routeRows returns the routes with their limits, in the order of the configuration, then the limits of several routes.
func routeRows(routes admin.Routes, limits admin.Limits, minutes int) []*routeRow {
	by := map[string][]*limitRow{}
	for _, l := range limits.Limits {
		by[l.Route] = append(by[l.Route], &limitRow{Limit: l, Spark: make([]int64, minutes)})
	}
	var rows []*routeRow
	for _, route := range routes.Routes {
		rows = append(rows, &routeRow{Route: route, Spark: make([]int64, minutes), Rows: by[route.Name]})
	}
	if common := by[""]; len(common) > 0 {
		rows = append(rows, &routeRow{Spark: make([]int64, minutes), Rows: common})
	}
	return rows
}

// countRows adds the counts of the last minutes to rows, and a row of the requests without a route if
// there were any. Counts of routes and limits that no longer exist are ignored.
func countRows(rows []*routeRow, counts known[admin.Statistics], minutes int) []*routeRow {
	by := map[string]*routeRow{}
	for _, row := range rows {
		by[row.Name] = row
	}
	if by[unmatched] == nil {
		by[unmatched] = &routeRow{Route: admin.Route{Name: unmatched}, Unmatched: true, Spark: make([]int64, minutes)}
	}
	first := counts.At.Add(-settled).Unix()/60 - int64(minutes)
	for _, m := range counts.Value.Minutes {
		part := partSince(m, counts.At.Add(-time.Duration(minutes)*time.Minute))
		for _, r := range m.Routes {
			if row := by[r.Route]; row != nil {
				row.count(r, part, m.At.Unix()/60-first)
			}
		}
	}
	for _, r := range counts.Value.Last.Routes {
		if row := by[r.Route]; row != nil {
			row.Last.add(r)
		}
	}
	if row := by[unmatched]; row.Unmatched && row.Sum.Requests+row.Last.Requests > 0 {
		rows = append(rows, row)
	}
	return rows
}

// unmatched is the name under which requests are counted that no route matches.
const unmatched = "none"

// count adds the counts of a minute, of which that part is shown, as the i-th of those that are over.
func (row *routeRow) count(r admin.RouteMinute, part float64, i int64) {
	var one sum
	one.add(r)
	row.Sum = row.Sum.plus(one.part(part))
	inside := i >= 0 && i < int64(len(row.Spark))
	if inside {
		row.Spark[i] += r.Requests
	}
	some := func(n int64) int64 { return int64(math.Round(part * float64(n))) }
	for _, said := range r.Limits {
		for _, l := range row.Rows {
			if l.Name != said.Limit {
				continue
			}
			l.Sum.Allowed += some(said.Allowed)
			l.Sum.Refused += some(said.Refused)
			l.Sum.Shadow += some(said.ShadowRefused)
			l.Sum.Unavailable += some(said.Unavailable)
			if inside {
				l.Spark[i] += said.Refused + said.ShadowRefused
			}
		}
	}
}

// busiest looks up the state of the busiest key of each limit. It continues after an error, and
// returns the last error.
func (d *dashboard) busiest(r *http.Request, v *routesView, top admin.Top) (last error) {
	asked := 0
	for _, row := range v.Routes {
		for _, l := range row.Rows {
			key, found := busiestOf(top, l)
			if !found || asked == maxBusiest {
				continue
			}
			asked++
			s, err := d.Standing(r.Context(), proxy.KeyQuery{Pairs: []proxy.KeyPair{{Key: l.Key, Value: key.ID}}, Route: l.Route, Limit: l.Name})
			if err != nil {
				last = err
				continue
			}
			l.Near = nearestOf(s, key.Masked)
		}
	}
	return last
}

// busiestOf returns the key with most requests of a limit.
func busiestOf(top admin.Top, l *limitRow) (admin.TopKey, bool) {
	for _, t := range top.Limits {
		if t.Route == l.Route && t.Limit == l.Name && len(t.Requests.Keys) > 0 {
			return t.Requests.Keys[0], true
		}
	}
	return admin.TopKey{}, false
}

// nearestOf returns the window that is used most.
func nearestOf(s proxy.KeyStanding, masked string) *nearest {
	var most *nearest
	for _, l := range s.Limits {
		for _, w := range l.Windows {
			if w.Most > 0 && (most == nil || w.Used*most.Most > most.Used*w.Most) {
				most = &nearest{w, masked, !l.BannedUntil.IsZero()}
			}
		}
	}
	return most
}
