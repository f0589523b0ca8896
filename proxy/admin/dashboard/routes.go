package dashboard

import (
	"cmp"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// maxBusiest is the maximum number of limits whose busiest key is looked up. Each takes a call to
// the store.
const maxBusiest = 20

// A routesView is the data of the page of routes, with the counts of the last minutes.
type routesView struct {
	Minutes int
	Counts  known[view.Statistics]
	Routes  []*routeRow // of this page
	routeQuery
	Total, Pages int     // of routes that match, and of pages
	Any          bool    // the configuration has routes
	Faults       []fault // besides that of the counts
	Directives   directivesView
}

// A routeRow is one route. That without a name has the limits of several routes.
type routeRow struct {
	view.Route
	Unmatched bool // not a route: the requests that matched none
	Sum, Last sum
	Spark     []int64 // requests by minute
	Rows      []*limitRow
}

// A limitRow is one limit of a route.
type limitRow struct {
	view.Limit
	Sum   view.LimitMinute // of all minutes
	Spark []int64          // refusals by minute, including those by shadow mode
	Near  *nearest
}

// Asked returns the number of decisions.
func (l limitRow) Asked() int64 {
	return l.Sum.Allowed + l.Sum.Refused + l.Sum.ShadowRefused + l.Sum.Unavailable
}

// A nearest is the state of the busiest key of a limit.
type nearest struct {
	view.WindowStanding
	Masked string
	Banned bool
	Share  bool // it is this node's, while the store is unreachable
}

// Full reports whether the key has no permits left.
func (n nearest) Full() bool { return n.Left <= 0 || n.Banned }

func (d *dashboard) showRoutes(r *http.Request) page {
	ctx := r.Context()
	v := routesView{Minutes: spans()[0], routeQuery: routeQueryOf(r), Directives: d.directives(r, "maintenance")}
	s, err := d.Statistics(ctx, v.Minutes+1)
	v.Counts = d.last.minutes.update(s, faultOf("statistics cannot be read", err), time.Now())
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
	if !v.Counts.Old() {
		top, err := d.Top(ctx, view.TopQuery{Minutes: 5, N: 1})
		v.fault("the busiest keys are not known", err)
		v.fault("a key cannot be looked up", d.busiest(r, &v, top))
	}
	return page{name: "routes", title: "Routes & limits", status: v.Directives.Sent.Status, data: v}
}

func (v *routesView) fault(what string, err error) {
	if err != nil {
		v.Faults = append(v.Faults, faultOf(what, err))
	}
}

// routeRows returns the routes with their limits, in the order of the configuration, then the limits of several routes.
func routeRows(routes view.Routes, limits view.Limits, minutes int) []*routeRow {
	by := map[string][]*limitRow{}
	for _, l := range limits.Limits {
		by[l.Route] = append(by[l.Route], &limitRow{Limit: l, Spark: make([]int64, minutes)})
	}
	rows := view.Each(routes.Routes, func(route view.Route) *routeRow {
		return &routeRow{Route: route, Spark: make([]int64, minutes), Rows: by[route.Name]}
	})
	if common := by[""]; len(common) > 0 {
		rows = append(rows, &routeRow{Spark: make([]int64, minutes), Rows: common})
	}
	return rows
}

// countRows adds the counts of the last minutes to rows, and a row of the requests without a route if
// there were any. Counts of routes and limits that no longer exist are ignored.
func countRows(rows []*routeRow, counts known[view.Statistics], minutes int) []*routeRow {
	by := view.By(rows, func(row *routeRow) string { return row.Name })
	if by[unmatched] == nil {
		by[unmatched] = &routeRow{Route: view.Route{Name: unmatched}, Unmatched: true, Spark: make([]int64, minutes)}
	}
	first := counts.At.Unix()/60 - int64(minutes) + 1
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
			row.Last = row.Last.plus(sumOfRoute(r))
		}
	}
	if row := by[unmatched]; row.Unmatched && row.Sum.Requests+row.Last.Requests > 0 {
		rows = append(rows, row)
	}
	return rows
}

// unmatched is the name under which requests are counted that no route matches.
const unmatched = "none"

// count adds the counts of a minute, the i-th, of which that part is shown.
func (row *routeRow) count(r view.RouteMinute, part float64, i int64) {
	row.Sum = row.Sum.plus(sumOfRoute(r).part(part))
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
			sum := l.Sum.Counts()
			for result, n := range said.Counts() {
				*sum[result] += some(*n)
			}
			if inside {
				l.Spark[i] += said.Refused + said.ShadowRefused
			}
		}
	}
}

// busiest looks up the state of the busiest key of each limit. It continues after an error, and
// returns the last error.
func (d *dashboard) busiest(r *http.Request, v *routesView, top view.Top) (last error) {
	asked, by := 0, view.By(top.Limits, func(t view.TopLimit) [2]string { return [2]string{t.Route, t.Limit} })
	for _, row := range v.Routes {
		for _, l := range row.Rows {
			keys := by[[2]string{l.Route, l.Name}].Requests.Keys // the busiest first
			if len(keys) == 0 || asked == maxBusiest {
				continue
			}
			asked++
			s, err := d.Standing(r.Context(), view.KeyQuery{Pairs: []view.KeyPair{{Key: l.Key, Value: keys[0].ID}}, Route: l.Route, Limit: l.Name})
			if err != nil {
				last = err
				continue
			}
			l.Near = nearestOf(s, keys[0].Masked)
		}
	}
	return last
}

// nearestOf returns the window that is used most.
func nearestOf(s view.KeyStanding, masked string) *nearest {
	var most *nearest
	for _, l := range s.Limits {
		for _, w := range l.Windows {
			if w.Most > 0 && (most == nil || w.Used*most.Most > most.Used*w.Most) {
				most = &nearest{w, masked, !l.BannedUntil.IsZero(), l.Store == "local"}
			}
		}
	}
	return most
}

// maxRouteRows is how many routes and limits a page shows; a route with more limits than that is a page of
// its own.
const maxRouteRows = 50

// A routeQuery selects routes.
type routeQuery struct {
	Text  string // part of the name of a route, of its path, or of a limit or its key
	Order string
	Page  int // from 1
}

func routeQueryOf(r *http.Request) routeQuery {
	f := r.URL.Query()
	q := routeQuery{Text: strings.TrimSpace(f.Get("q")), Order: f.Get("sort"), Page: pageNumber(f)}
	if !slices.Contains(q.Orders(), q.Order) {
		q.Order = ""
	}
	return q
}

// pageNumber returns the number of the page that an address names, from 1.
func pageNumber(f url.Values) int {
	n, _ := strconv.Atoi(f.Get("page"))
	return max(n, 1)
}

// Orders returns the orders to choose from; the first is that of the configuration.
func (q routeQuery) Orders() []string { return []string{"", "requests", "refused", "name"} }

// URL returns the address of the page that is by so many away.
func (q routeQuery) URL(by int) string {
	page := q.Page + by
	if page <= 1 {
		page = 0 // the first needs no number
	}
	query := admin.QueryOf(map[string]any{"q": q.Text, "sort": q.Order, "page": page})
	return strings.TrimSuffix("/dashboard/routes?"+query, "?")
}

// choose returns the routes of the page, the number of those that match, and the number of pages.
func (q routeQuery) choose(rows []*routeRow) (page []*routeRow, total, pages int) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r *routeRow) bool { return !q.matches(r) })
	slices.SortStableFunc(rows, func(a, b *routeRow) int {
		switch q.Order {
		case "requests":
			return cmp.Compare(b.Sum.Requests, a.Sum.Requests)
		case "refused":
			return cmp.Compare(b.Sum.Refused, a.Sum.Refused)
		case "name":
			return strings.Compare(a.Name, b.Name)
		}
		return 0
	})
	all, room := [][]*routeRow{nil}, maxRouteRows
	for _, r := range rows {
		if room -= 1 + len(r.Rows); room < 0 && len(all[len(all)-1]) > 0 {
			all = append(all, nil)
			room = maxRouteRows - 1 - len(r.Rows)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	return all[min(q.Page, len(all))-1], len(rows), len(all)
}

// matches reports whether a route, or one of its limits, has the text.
func (q routeQuery) matches(r *routeRow) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(q.Text)) }
	return has(r.Name) || has(r.Host+r.Path) || slices.ContainsFunc(r.Rows, func(l *limitRow) bool { return has(l.Name) || has(l.Key) || slices.ContainsFunc(l.Routes, has) })
}
