package dashboard

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// spans returns the selectable time spans of the overview in minutes. The first is the default, the
// last is the retention of statistics.
func spans() []int { return []int{15, 60, 6 * 60, 24 * 60} }

// minutesOf returns which of these spans r selects; otherwise the other one.
func minutesOf(r *http.Request, spans []int, otherwise int) int {
	n, err := strconv.Atoi(r.URL.Query().Get("minutes"))
	if err != nil || !slices.Contains(spans, n) {
		return otherwise
	}
	return n
}

// An overviewView is the data of the overview.
type overviewView struct {
	Minutes   int
	Spans     []int
	All       known[totals] // of all nodes
	Node      Rates
	NodeFault fault
	Checks    map[string]string // of readiness: ok, or what is wrong
	Ready     bool
	Leader    known[view.Leadership]
}

// totals are the requests of all routes together.
type totals struct {
	Span   sum       // of the selected time
	Last   sum       // of the last 60 seconds
	Limits []refuser // those that refused most in the selected time
}

// State returns all checks as a sentence. Screen readers announce it when it changes.
func (v overviewView) State() string {
	said := map[bool]string{true: "All is well", false: "This node is not ready"}[v.Ready]
	for _, name := range slices.Sorted(maps.Keys(v.Checks)) {
		if v.Checks[name] != "ok" {
			said = strings.Replace(said, "All is well", "Degraded", 1) + "; " + name + ": " + v.Checks[name]
		}
	}
	return said
}

func (d *dashboard) showOverview(r *http.Request) page {
	now := time.Now()
	v := overviewView{Minutes: minutesOf(r, spans(), spans()[0]), Spans: spans()}
	s, err := d.Statistics(r.Context(), v.Minutes+1)
	since := now.Add(-time.Duration(v.Minutes) * time.Minute)
	all := totals{sumSince(s, since), sumOf(s.Last), refusersSince(s, since)}
	v.All = d.last.overview[slices.Index(spans(), v.Minutes)].update(all, faultOf("statistics cannot be read", err), now)
	v.Node, err = d.gauge.read(now)
	v.NodeFault = faultOf("the metrics of this node cannot be read", err)
	ready := d.Ready(r.Context())
	v.Ready, v.Checks = ready.Ready, ready.Checks
	leader, err := d.Leader(r.Context())
	v.Leader = d.last.leader.update(leader, faultOf("who leads now is not known", err), now)
	return page{name: "overview", title: "Overview", data: v}
}

// A sum has the requests of some minutes, each counted once: they were allowed, refused by limits,
// rejected for another reason, or not decided.
type sum struct {
	Requests, Allowed, Refused, Rejected, Unavailable int64
	Shadow                                            int64 // of those allowed: limits in shadow mode would have refused them
}

// sumOfRoute returns the requests of one route.
func sumOfRoute(r view.RouteMinute) sum {
	return sum{r.Requests, r.Allowed + r.ShadowRefused, r.Refused, r.Rejected, r.Unavailable, r.ShadowRefused}
}

// PerSecond returns the rate of requests, if s is of the last 60 seconds.
func (s sum) PerSecond() float64 { return float64(s.Requests) / 60 }

func sumOf(m view.Minute) (all sum) {
	for _, r := range m.Routes {
		all = all.plus(sumOfRoute(r))
	}
	return all
}

// sumSince returns the sum of the minutes since that time.
func sumSince(s view.Statistics, since time.Time) (all sum) {
	for _, m := range s.Minutes {
		all = all.plus(sumOf(m).part(partSince(m, since)))
	}
	return all
}

// partSince returns which part of m is after that time, from 0 to 1.
func partSince(m view.Minute, since time.Time) float64 {
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

// A series is the data of a chart: requests for each minute that is over, including those without any. One that is not
// would look like a fall.
type series struct {
	At   []int64 `json:"at"` // in seconds since 1970
	Sums []sum   `json:"sums"`
	// Old is when the data was had, in seconds since 1970, if it cannot be had now.
	Old int64 `json:"old,omitempty"`
}

// serveSeries responds with the data of the charts, or with that which this node served last.
func (d *dashboard) serveSeries(w http.ResponseWriter, r *http.Request) {
	n, now := minutesOf(r, spans(), spans()[0]), time.Now()
	s, err := d.Statistics(r.Context(), n+2)
	all := d.last.series[slices.Index(spans(), n)].update(seriesOf(s, n, now), faultOf("statistics cannot be read", err), now)
	if !all.Any() {
		http.Error(w, string(all.Fault), http.StatusServiceUnavailable)
		return
	}
	if all.Old() {
		all.Value.Old = all.At.Unix()
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(all.Value)
}

// reported is how long after the end of a minute all nodes have reported it, and the leader has added it
// up.
const reported = 12 * time.Second

// seriesOf returns the last minutes that are over.
func seriesOf(s view.Statistics, minutes int, now time.Time) series {
	by := map[int64]sum{}
	for _, m := range s.Minutes {
		by[m.At.Unix()] = by[m.At.Unix()].plus(sumOf(m))
	}
	end, out := now.Add(-reported).Unix()/60*60, series{}
	for at := end - int64(minutes)*60; at < end; at += 60 {
		out.At, out.Sums = append(out.At, at), append(out.Sums, by[at])
	}
	return out
}

const (
	// gaugeInterval is the minimum interval between two readings of the metrics, for all viewers
	// together; gaugeWindow is the time over which rates are computed.
	gaugeInterval = time.Second
	gaugeWindow   = time.Minute
)

// A rateGauge computes this node's own rates from its metrics.
type rateGauge struct {
	from prometheus.Gatherer

	mu       sync.Mutex // guards what follows; held while metrics are gathered, so that they are gathered once
	readings []reading  // oldest first: that of the start, or those of gaugeWindow and one before
}

// A reading holds the counters of this node at one moment, or their differences in some time.
type reading struct {
	At        time.Time
	Requests  int64
	Errors    int64   // responses with status 5xx
	Calls     int64   // to the shared store
	Seconds   float64 // that those took
	CallFails int64
	Fallbacks int64 // requests decided without the store
}

// Rates are the rates of this node in the last seconds, or if nobody has looked for longer, since somebody did.
type Rates struct {
	Total, Lately reading       // since the start, and between the readings
	Over          time.Duration // the time between the readings
}

// PerSecond returns the requests a second.
func (r Rates) PerSecond() float64 { return float64(r.Lately.Requests) / max(r.Over.Seconds(), 1e-9) }

// StoreMS returns the mean duration of the calls to the store, if there were any.
func (r Rates) StoreMS() float64 { return 1000 * r.Lately.Seconds / float64(r.Lately.Calls) }

// read returns the current rates.
func (g *rateGauge) read(now time.Time) (Rates, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.readings[len(g.readings)-1].At) >= gaugeInterval {
		families, err := g.from.Gather()
		if err != nil {
			return Rates{}, err
		}
		g.readings = append(g.readings, readingOf(now, families))
		for len(g.readings) > 2 && now.Sub(g.readings[1].At) >= gaugeWindow {
			g.readings = g.readings[1:]
		}
	}
	return g.readings[len(g.readings)-1].since(g.readings[0]), nil
}

// since returns the rates since an earlier reading.
func (r reading) since(then reading) Rates {
	return Rates{Total: r, Over: r.At.Sub(then.At), Lately: reading{
		Requests: r.Requests - then.Requests, Errors: r.Errors - then.Errors, Fallbacks: r.Fallbacks - then.Fallbacks,
		Calls: r.Calls - then.Calls, Seconds: r.Seconds - then.Seconds, CallFails: r.CallFails - then.CallFails,
	}}
}

// readingOf adds up the metrics.
func readingOf(now time.Time, families []*dto.MetricFamily) reading {
	r := reading{At: now}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "weir_requests_total":
				r.Requests += int64(m.GetCounter().GetValue())
				if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "code" && l.GetValue() >= "5" }) {
					r.Errors += int64(m.GetCounter().GetValue())
				}
			case "weir_store_duration_seconds":
				r.Calls += int64(m.GetHistogram().GetSampleCount())
				r.Seconds += m.GetHistogram().GetSampleSum()
			case "weir_store_errors_total":
				r.CallFails += int64(m.GetCounter().GetValue())
			case "weir_store_fallback_total":
				r.Fallbacks += int64(m.GetCounter().GetValue())
			}
		}
	}
	return r
}

// The size of a sparkline, in pixels.
const sparkWidth, sparkHeight = 120, 24

// spark draws values as bars. It is hidden from screen readers, because the number beside it has
// the same information.
func spark(values []int64) template.HTML {
	most := slices.Max(append([]int64{1}, values...))
	step := float64(sparkWidth) / float64(len(values))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" width="%d" height="%d" viewBox="0 0 %d %d" aria-hidden="true" focusable="false">`, sparkWidth, sparkHeight, sparkWidth, sparkHeight)
	b.WriteString(`<path d="`) // one element for all bars
	for i, v := range values {
		if v <= 0 {
			continue
		}
		h := max(float64(v)/float64(most)*sparkHeight, 1.5)
		fmt.Fprintf(&b, "M%.1f %dv-%.1fh%.1fv%.1fz", float64(i)*step+0.5, sparkHeight, h, max(step-1, 0.5), h)
	}
	b.WriteString(`"/>`)
	fmt.Fprintf(&b, `<line x1="0" x2="%d" y1="%d" y2="%d"/></svg>`, sparkWidth, sparkHeight, sparkHeight)
	return template.HTML(b.String()) // #nosec G203 -- it contains only numbers
}

// A nodesView is the data of the page of nodes.
type nodesView struct {
	Nodes  known[admin.Nodes]
	Leader known[view.Leadership]
	Drift  int // number of nodes with another configuration
}

func (d *dashboard) showNodes(r *http.Request) page {
	now := time.Now()
	var v nodesView
	nodes, err := d.Nodes(r.Context())
	v.Nodes = d.last.nodes.update(nodes, faultOf("nodes cannot be listed", err), now)
	if all := &v.Nodes.Value; err != nil && d.Self != nil { // a node always knows of itself
		self := d.Self()
		others := slices.DeleteFunc(slices.Clone(all.Nodes), func(m view.Member) bool { return m.ID == self.ID })
		all.Self, all.Nodes = self.ID, append([]view.Member{self}, others...)
	}
	leader, err := d.Leader(r.Context())
	v.Leader = d.last.leader.update(leader, faultOf("who leads now is not known", err), now)
	v.Drift = len(slices.DeleteFunc(slices.Clone(v.Nodes.Value.Nodes), func(n view.Member) bool { return !n.Drift }))
	return page{name: "nodes", title: "Nodes", data: v}
}

// An upstreamsView is the data of the page of upstreams.
type upstreamsView struct {
	Said  view.Upstreams
	Fault fault
	Sick  int // targets that are not healthy on some node
	All   int // targets
}

func (d *dashboard) showUpstreams(r *http.Request) page {
	said, err := d.Upstreams(r.Context())
	v := upstreamsView{Said: said, Fault: faultOf("upstreams cannot be read", err)}
	for _, u := range v.Said.Upstreams {
		for _, t := range u.Targets {
			v.All++
			if t.State != view.Healthy {
				v.Sick++
			}
		}
	}
	return page{name: "upstreams", title: "Upstreams", data: v}
}

// auditShown is the number of entries of a page.
const auditShown = 50

// An auditView is the data of the audit page.
type auditView struct {
	Audit view.Audit
	Later bool // not the first page
	Fault fault
}

// Reasons reports whether an entry has a reason. Without any, the page has no column for them.
func (v auditView) Reasons() bool {
	return slices.ContainsFunc(v.Audit.Entries, func(e view.AuditEntry) bool { return e.Reason != "" })
}

func (d *dashboard) showAudit(r *http.Request) page {
	q := view.AuditQuery{Before: r.URL.Query().Get("before"), N: auditShown}
	trail, err := d.Audit(r.Context(), q)
	v := auditView{Audit: trail, Later: q.Before != "", Fault: faultOf("the audit trail cannot be read", err)}
	return page{name: "audit", title: "Audit", data: v}
}
