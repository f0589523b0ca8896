package dashboard

import (
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
	Routes  []*routeRow
	Busiest bool // the state of the busiest keys is shown
	Faults  []fault
	At      time.Time
}

// A routeRow is one route.
type routeRow struct {
	admin.Route
	Requests int64
	Spark    []int64 // requests by minute
	Rows     []*limitRow
}

// A limitRow is one limit of a route.
type limitRow struct {
	admin.Limit
	Sum   sum
	Spark []int64 // refusals by minute, including those by shadow mode
	Near  *nearest
}

// A nearest is the state of the busiest key of a limit.
type nearest struct {
	Masked     string
	Used, Most int64
	Banned     bool
}

// Full reports whether the key has no permits left.
func (n nearest) Full() bool { return n.Used >= n.Most || n.Banned }

func (d *dashboard) showRoutes(r *http.Request) view {
	ctx, now := r.Context(), time.Now()
	v := routesView{Minutes: spans()[0], At: now, Busiest: d.Top != nil}
	s, err := d.Statistics(ctx, v.Minutes)
	v.fault("statistics cannot be read", err)
	routes, err := d.Routes(ctx)
	v.fault("routes cannot be read", err)
	limits, err := d.Limits(ctx)
	v.fault("limits cannot be read", err)
	v.Routes = routeRows(routes, limits, v.Minutes)
	first := now.Unix()/60 - int64(v.Minutes-1)
	for _, m := range s.Minutes {
		for _, row := range v.Routes {
			row.count(m, m.At.Unix()/60-first)
		}
	}
	if v.Busiest {
		top, err := d.Top(ctx, admin.TopQuery{Minutes: 5, N: 1})
		v.fault("the busiest keys are not known", err)
		v.fault("a key cannot be looked up", d.busiest(r, &v, top))
	}
	return view{name: "routes", title: "Routes & limits", data: v}
}

func (v *routesView) fault(what string, err error) {
	if err != nil {
		v.Faults = append(v.Faults, faultOf(what, err))
	}
}

// routeRows returns the routes with their limits, in the order of the configuration.
func routeRows(routes admin.Routes, limits admin.Limits, minutes int) []*routeRow {
	var rows []*routeRow
	for _, route := range routes.Routes {
		row := &routeRow{Route: route, Spark: make([]int64, minutes)}
		for _, l := range limits.Limits {
			if l.Route == route.Name {
				row.Rows = append(row.Rows, &limitRow{Limit: l, Spark: make([]int64, minutes)})
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// count adds the counts of the route in the i-th minute shown. Counts of limits that no longer
// exist are ignored.
func (row *routeRow) count(m admin.Minute, i int64) {
	inside := i >= 0 && i < int64(len(row.Spark))
	for _, r := range m.Routes {
		if r.Route != row.Name {
			continue
		}
		row.Requests += r.Requests
		if inside {
			row.Spark[i] += r.Requests
		}
		for _, said := range r.Limits {
			for _, l := range row.Rows {
				if l.Name != said.Limit {
					continue
				}
				l.Sum.addLimit(said)
				if inside {
					l.Spark[i] += said.Refused + said.ShadowRefused
				}
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
				most = &nearest{Masked: masked, Used: w.Used, Most: w.Most, Banned: !l.BannedUntil.IsZero()}
			}
		}
	}
	return most
}
