package dashboard

import (
	"encoding/json"
	"maps"
	"math"
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
	All         known[totals] // of all nodes
	Fault       fault
	Node        Rates
	NodeFault   fault
	Checks      []check
	Ready       bool
	Leader      known[admin.Leadership]
	LeaderFault fault
	At          time.Time
}

// totals are the requests of all routes together.
type totals struct {
	Span   sum       // of the selected time
	Last   sum       // of the last 60 seconds
	Limits []refuser // those that refused most in the selected time
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
	s, err := d.Statistics(r.Context(), v.Minutes+1)
	v.Fault = faultOf("statistics cannot be read", err)
	since := now.Add(-time.Duration(v.Minutes) * time.Minute)
	v.All = d.last.overview[slices.Index(spans(), v.Minutes)].update(totals{sumSince(s, since), sumOf(s.Last), refusersSince(s, since)}, err, now)
	v.Node, err = d.gauge.read(now)
	v.NodeFault = faultOf("the metrics of this node cannot be read", err)
	ready := d.Ready(r.Context())
	v.Ready = ready.Ready
	for _, name := range slices.Sorted(maps.Keys(ready.Checks)) {
		v.Checks = append(v.Checks, check{name, ready.Checks[name]})
	}
	leader, err := d.Leader(r.Context())
	v.Leader = d.last.leader.update(leader, err, now)
	v.LeaderFault = faultOf("the leader is not known", err)
	return view{name: "overview", title: "Overview", data: v}
}

// A sum has the requests of some minutes, each counted once: they were allowed, refused by limits,
// rejected for another reason, or not decided.
type sum struct {
	Requests, Allowed, Refused, Rejected, Unavailable int64
	Shadow                                            int64 // of those allowed: limits in shadow mode would have refused them
}

func (s *sum) add(r admin.RouteMinute) {
	s.Requests += r.Requests
	s.Allowed += r.Allowed + r.ShadowRefused
	s.Shadow += r.ShadowRefused
	s.Refused += r.Refused
	s.Rejected += r.Rejected
	s.Unavailable += r.Unavailable
}

// PerSecond returns the rate of requests, if s is of the last 60 seconds.
func (s sum) PerSecond() float64 { return float64(s.Requests) / 60 }

func sumOf(m admin.Minute) (all sum) {
	for _, r := range m.Routes {
		all.add(r)
	}
	return all
}

// sumSince returns the sum of the minutes since that time.
func sumSince(s admin.Statistics, since time.Time) (all sum) {
	for _, m := range s.Minutes {
		all = all.plus(sumOf(m).part(partSince(m, since)))
	}
	return all
}

// partSince returns which part of m is after that time, from 0 to 1.
func partSince(m admin.Minute, since time.Time) float64 {
	return min(max(float64(m.At.Add(time.Minute).Sub(since))/float64(time.Minute), 0), 1)
}

func (s sum) plus(o sum) sum {
	return sum{s.Requests + o.Requests, s.Allowed + o.Allowed, s.Refused + o.Refused, s.Rejected + o.Rejected, s.Unavailable + o.Unavailable, s.Shadow + o.Shadow}
}

// part returns a part of s, of which the outcomes add up to the requests.
func (s sum) part(of float64) sum {
	some := func(n int64) int64 { return int64(math.Round(of * float64(n))) }
	p := sum{0, some(s.Allowed), some(s.Refused), some(s.Rejected), some(s.Unavailable), some(s.Shadow)}
	others := s.Requests - s.Allowed - s.Refused - s.Rejected - s.Unavailable // counted by an older version
	p.Requests = p.Allowed + p.Refused + p.Rejected + p.Unavailable + some(others)
	return p
}

// A series is the data of a chart: requests for each minute, including those without any.
type series struct {
	At          []int64 `json:"at"` // in seconds since 1970
	Requests    []int64 `json:"requests"`
	Allowed     []int64 `json:"allowed"`
	Refused     []int64 `json:"refused"`
	Shadow      []int64 `json:"shadow"`
	Unavailable []int64 `json:"unavailable"`
	// Old is when the data was had, in seconds since 1970, if it cannot be had now.
	Old int64 `json:"old,omitempty"`
}

// serveSeries responds with the data of the charts, or with that which this node served last.
func (d *dashboard) serveSeries(w http.ResponseWriter, r *http.Request) {
	n, now := minutesOf(r), time.Now()
	s, err := d.Statistics(r.Context(), n+2)
	all := d.last.series[slices.Index(spans(), n)].update(seriesOf(s, n, now), err, now)
	if !all.Any() {
		http.Error(w, string(faultOf("statistics cannot be read", err)), http.StatusServiceUnavailable)
		return
	}
	if all.Old {
		all.Value.Old = all.At.Unix()
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(all.Value)
}

// settled is how long after the end of a minute all nodes have reported it, and the leader has added it
// up.
const settled = 12 * time.Second

// seriesOf returns the last minutes that are over. The minute that is not would look like a fall.
func seriesOf(s admin.Statistics, minutes int, now time.Time) series {
	by := map[int64]sum{}
	for _, m := range s.Minutes {
		by[m.At.Unix()] = by[m.At.Unix()].plus(sumOf(m))
	}
	var out series
	end := now.Add(-settled).Unix() / 60 * 60
	for at := end - int64(minutes)*60; at < end; at += 60 {
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
