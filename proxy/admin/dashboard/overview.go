package dashboard

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// spans returns the selectable time spans of the overview in minutes. The first is the default, the
// last is the retention of statistics.
func spans() []int { return []int{15, 60, 6 * 60, 24 * 60} }

// minutesOf returns the span that r selects.
func minutesOf(r *http.Request) int {
	n, err := strconv.Atoi(r.URL.Query().Get("minutes"))
	if err != nil || !slices.Contains(spans(), n) {
		return spans()[0]
	}
	return n
}

// An overviewView is the data of the overview.
type overviewView struct {
	Minutes     int
	Spans       []int
	All         sum // sum over all nodes
	Fault       fault
	Node        Rates
	NodeFault   fault
	Checks      []check
	Ready       bool
	Leader      admin.Leadership
	LeaderFault fault
	At          time.Time
}

// A check is one check of readiness.
type check struct{ Name, Said string }

// OK reports whether the check succeeded.
func (c check) OK() bool { return c.Said == "ok" }

// State returns all checks as a sentence. Screen readers announce it when it changes.
func (v overviewView) State() string {
	said := "All is well"
	if !v.Ready {
		said = "This node is not ready"
	}
	for _, c := range v.Checks {
		if !c.OK() {
			said += "; " + c.Name + ": " + c.Said
			if v.Ready {
				said = "Degraded; " + c.Name + ": " + c.Said
			}
		}
	}
	return said
}

func (d *dashboard) showOverview(r *http.Request) view {
	now := time.Now()
	v := overviewView{Minutes: minutesOf(r), Spans: spans(), At: now}
	s, err := d.Statistics(r.Context(), v.Minutes)
	v.Fault = faultOf("statistics cannot be read", err)
	v.All = sumOf(s)
	v.Node, err = d.gauge.read(now)
	v.NodeFault = faultOf("the metrics of this node cannot be read", err)
	ready := d.Ready(r.Context())
	v.Ready = ready.Ready
	for _, name := range slices.Sorted(maps.Keys(ready.Checks)) {
		v.Checks = append(v.Checks, check{name, ready.Checks[name]})
	}
	v.Leader, err = d.Leader(r.Context())
	v.LeaderFault = faultOf("the leader is not known", err)
	return view{name: "overview", title: "Overview", data: v}
}

// A sum has the counts of some minutes. A request is counted once for each limit that was
// evaluated.
type sum struct {
	Requests, Allowed, Refused, Shadow, Unavailable int64
}

func (s *sum) add(r admin.RouteMinute) {
	s.Requests += r.Requests
	for _, l := range r.Limits {
		s.addLimit(l)
	}
}

func (s *sum) addLimit(l admin.LimitMinute) {
	s.Allowed += l.Allowed
	s.Refused += l.Refused
	s.Shadow += l.ShadowRefused
	s.Unavailable += l.Unavailable
}

// Decisions returns the number of decisions of limits.
func (s sum) Decisions() int64 { return s.Allowed + s.Refused + s.Shadow + s.Unavailable }

func sumOf(s admin.Statistics) sum {
	var all sum
	for _, m := range s.Minutes {
		for _, r := range m.Routes {
			all.add(r)
		}
	}
	return all
}

// A series is the data of a chart: a value for each minute, including those without requests.
type series struct {
	At          []int64 `json:"at"` // in seconds since 1970
	Requests    []int64 `json:"requests"`
	Allowed     []int64 `json:"allowed"`
	Refused     []int64 `json:"refused"`
	Shadow      []int64 `json:"shadow"`
	Unavailable []int64 `json:"unavailable"`
}

// serveSeries responds with the data of the charts.
func (d *dashboard) serveSeries(w http.ResponseWriter, r *http.Request) {
	n := minutesOf(r)
	s, err := d.Statistics(r.Context(), n)
	if err != nil {
		http.Error(w, string(faultOf("statistics cannot be read", err)), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(seriesOf(s, n, time.Now()))
}

func seriesOf(s admin.Statistics, minutes int, now time.Time) series {
	by := map[int64]sum{}
	for _, m := range s.Minutes {
		one := by[m.At.Unix()]
		for _, r := range m.Routes {
			one.add(r)
		}
		by[m.At.Unix()] = one
	}
	var out series
	last := now.Unix() / 60 * 60
	for at := last - int64(minutes-1)*60; at <= last; at += 60 {
		one := by[at]
		out.At = append(out.At, at)
		out.Requests = append(out.Requests, one.Requests)
		out.Allowed = append(out.Allowed, one.Allowed)
		out.Refused = append(out.Refused, one.Refused)
		out.Shadow = append(out.Shadow, one.Shadow)
		out.Unavailable = append(out.Unavailable, one.Unavailable)
	}
	return out
}
